// A cell in words, for the tooltip and the screen reader.
import * as format from "../kit/format";
import type { Description } from "../kit/tooltip";
import type { Cell } from "../data/lanes";
import { words } from "../data/looks";
import type { Parameter, Quantity } from "../data/store";
import { Flag } from "../data/wire";

export interface When {
  start: number;
  stop: number;
  /** Only the first of these iterations was recorded. */
  isOne: boolean;
  firstEpoch: number;
  lastEpoch: number;
}

function whenText({ start, stop, isOne, firstEpoch, lastEpoch }: When): string {
  // Counted from 0, as in the history's frames: what is read here is looked up there.
  const epochs = firstEpoch === lastEpoch ? `epoch ${format.count(firstEpoch)}` : `epochs ${format.count(firstEpoch)}–${format.count(lastEpoch)}`;
  const several = format.iterations(start, stop);
  const which = isOne && stop - start > 1 ? `iteration ${format.count(start)}, the only one recorded of ${several}` : several;
  return `${which} · ${epochs}`;
}

function valueText(noun: string, cell: Cell): string {
  if (!Number.isFinite(cell.max)) return "";
  if (cell.min === cell.max) return `${noun} ${format.precise(cell.max)}`;
  return `${noun} max ${format.precise(cell.max)}, min ${format.precise(cell.min)}`;
}

/** A ratio in words. */
function compared(ratio: number, [run, reference]: readonly [string, string]): string {
  const [larger, smaller, times] = ratio < 1 ? [reference, run, 1 / ratio] : [run, reference, ratio];
  if (format.glance(times) === "1.00") return `${run} is ${ratio === 1 ? "" : "about "}as large as ${reference}`;
  return `${larger} is ${format.glance(times)} times ${smaller}`;
}

export function describeParameter(parameter: Parameter, cell: Cell, when: When, { noun, runs, where, of }: Quantity): Description {
  const several = when.stop - when.start > 1 && !when.isOne;
  return {
    title: parameter.name,
    kind: parameter.dtype ? `${format.shape(parameter.shape)} · ${parameter.dtype}` : of,
    when: whenText(when),
    value: valueText(noun, cell) + (runs && cell.min > 0 && cell.min === cell.max ? ` (${compared(cell.max, runs)})` : ""),
    flags: words(cell.flags, several && cell.max > 0, where),
  };
}

/** How many names are read in a glance. */
const NAMED = 2;

/** A folded module: which of its parameters has the largest value, and which have a flag. */
export function describeFold(module: string, inside: readonly { name: string; cell: Cell }[], cell: Cell, when: When, quantity: Quantity): Description {
  const short = (name: string): string => name.slice(module.length + 1);
  const flags = words(cell.flags, false, quantity.where, (flag) => {
    const those = inside.filter((each) => each.cell.flags & flag);
    if (those.length === inside.length) return "";
    const named = those.slice(0, NAMED).map((each) => short(each.name));
    return `: ${named.join(", ")}${those.length > NAMED ? ` and ${format.count(those.length - NAMED)} more` : ""}`;
  });
  const largest = inside.reduce((a, b) => (b.cell.max > a.cell.max || Number.isNaN(a.cell.max) ? b : a));
  return {
    title: module,
    kind: `${format.many(inside.length, quantity.of)}, as one row`,
    when: whenText(when),
    value: valueText(quantity.noun, cell) + (Number.isFinite(largest.cell.max) ? `, largest in ${short(largest.name)}` : ""),
    flags,
  };
}

export function describeLoss(cell: Cell, when: When): Description {
  const flags: string[] = [];
  if (cell.flags & Flag.nan) flags.push("the loss is NaN");
  if (cell.flags & Flag.posinf) flags.push("the loss is +inf");
  if (cell.flags & Flag.neginf) flags.push("the loss is −inf");
  if (cell.flags & Flag.not_recorded) flags.push(flags.length || Number.isFinite(cell.max) ? "not recorded (in part)" : "not recorded");
  return { title: "batch loss", kind: "", when: whenText(when), value: valueText("loss", cell), flags };
}

export function sentence({ title, when, value, flags }: Description): string {
  return [title, when.replace(" · ", ", "), value, ...flags].filter(Boolean).join(", ");
}
