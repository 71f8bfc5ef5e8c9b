// Shares of a gradient's entries that a narrower dtype would not keep.
import * as format from "../kit/format";
import type { Entries, Fates } from "./wire";

export type Fate = keyof Fates;

/** Entries that could be lost: zeros stay zeros, and what is not finite was lost before. */
export const losable = ({ entries, zero, nonfinite }: Entries): number => entries - zero - nonfinite;

/** Between 0 and 1; null where nothing was counted or nothing could be lost. */
export function share(entries: Entries | undefined, dtype: number, fate: Fate): number | null {
  const whole = entries ? losable(entries) : NaN;
  return entries && whole > 0 ? entries.fates[dtype]![fate] / whole : null;
}

/** "0 %" is none and "100 %" all: what lies between never says either. */
export function percent(share: number): string {
  const value = 100 * share;
  if (share === 0 || share === 1) return `${value} %`;
  if (value < 0.1) return "< 0.1 %";
  if (value > 99.9) return "> 99.9 %";
  return `${value < 10 ? value.toFixed(1) : value < 99 ? value.toFixed(0) : value.toFixed(1)} %`;
}

const WORDS: Record<Fate, string> = { underflow: "would be zero", subnormal: "would be subnormal", overflow: "would be too large" };

/** The numbers behind a share, in a sentence. */
export function sentence(entries: Entries, dtype: number, fate: Fate): string {
  const { zero, nonfinite, fates } = entries;
  const said = [`${format.count(fates[dtype]![fate])} of ${format.count(losable(entries))} entries ${WORDS[fate]}`];
  if (zero) said.push(`${format.count(zero)} more ${zero === 1 ? "is" : "are"} zero already`);
  if (nonfinite) said.push(`${format.count(nonfinite)} more ${nonfinite === 1 ? "is" : "are"} not finite`);
  return `${said.join("; ")} (iteration ${format.count(entries.iteration)})`;
}
