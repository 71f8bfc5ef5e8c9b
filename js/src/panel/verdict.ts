// Where a run first went wrong, in words.
import * as format from "../kit/format";
import type { Verdict } from "./wire";

const KINDS = { nan: "NaN", posinf: "+inf", neginf: "−inf" } as const;

/** A factor below which a size is about what it was. */
const CLEAR = 1.5;

/** What is said behind the name of what it is. */
export function verdictText({ iteration, parameter, kind, growth, before }: Verdict): string {
  const isLoss = parameter === "loss";
  const first = isLoss ? "before any gradient" : "first in the model";
  return ` went non-finite (${KINDS[kind]}) at iteration ${format.count(iteration)}, ${first}.${growthText(isLoss, growth, before)}`;
}

function growthText(isLoss: boolean, growth: number | null, before: number): string {
  if (growth === null) return "";
  const it = isLoss ? "It" : "Its gradient";
  const when = `in the ${before} iterations before`;
  if (growth >= CLEAR) return ` ${it} had grown ${fold(growth)}-fold ${when}.`;
  if (growth <= 1 / CLEAR) return ` ${it} had shrunk ${fold(1 / growth)}-fold ${when}.`;
  return ` ${it} had hardly changed ${when}.`;
}

const fold = (factor: number): string => (factor < 10 ? factor.toPrecision(2).replace(/\.0$/, "") : factor < 1e6 ? format.count(factor) : format.glance(factor));
