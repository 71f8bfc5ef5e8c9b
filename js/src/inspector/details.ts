// What was asked of Python, in words and numbers: the stages, and the examples that pull hardest.
import { element } from "../kit/element";
import * as format from "../kit/format";
import type { Answer, Stage } from "./answer";

const WHY: Record<string, string> = {
  unused: "unused: no path from the loss",
  frozen: "frozen",
  not_recorded: "not recorded",
};

/** How to record what is not there. */
export const HOW = {
  stages: 'stages=("backward", "clipped", "update")',
  examples: 'capture=gv.Capture("encoder.*", keep="example_norms")',
  histograms: 'record="all", histograms_every=100',
};

function line(name: string, value: string, isBad = false): HTMLElement {
  const number = element("dd", isBad ? "gv-bad" : "", {}, value);
  return element("div", "gv-fact", {}, element("dt", "", {}, name), number);
}

const quiet = (text: string, code: string): HTMLElement => element("p", "gv-quiet", {}, text, element("code", "", {}, code));

/** The stages as lines; and how to record those that are not there. */
export function stagesOf({ norms, states, unclipped, ratio, skipped, of }: Answer): HTMLElement[] {
  const isMissing = (stage: Stage): boolean => states[stage] === "not_recorded";
  const row = (name: string, stage: Stage, value: number, needs: Stage = stage): HTMLElement => {
    const lacks = isMissing(stage) ? stage : needs;
    const why = WHY[states[lacks]];
    return why ? line(name, why) : line(name, format.precise(value), !Number.isFinite(value));
  };
  const rows = [row("backward", "backward", norms.backward)];
  // What was captured has no steps.
  if (of === "activations") return [element("dl", "gv-facts", {}, ...rows)];
  const isSame = unclipped && states.clipped === "ok";
  rows.push(isSame ? line("clipped", "as backward: nothing was clipped") : row("clipped", "clipped", norms.clipped), row("update ÷ weight", "update", ratio, "weight"), row("weight", "weight", norms.weight));
  const skip = skipped ? [element("p", "gv-quiet", {}, "The step was skipped: a gradient was not finite.")] : [];
  const how = (["clipped", "update", "weight"] as const).some(isMissing) ? [quiet("To record them: ", HOW.stages)] : [];
  return [element("dl", "gv-facts", {}, ...rows), ...skip, ...how];
}

export function examplesOf({ examples, pulls }: Answer): HTMLElement[] {
  if (!examples.length) return [quiet("Not recorded. To record them: ", HOW.examples)];
  const rows = examples.map(([call, example, id], i) => line(`${id === null ? `#${example}` : id}, call ${call}`, format.precise(pulls[i]!), !Number.isFinite(pulls[i]!)));
  return [element("dl", "gv-facts", {}, ...rows)];
}

export const howToBin = (): HTMLElement => quiet("Not recorded. To record them: ", HOW.histograms);
