// Whether a parameter trains, and if not, why: bits, since a column may hold several iterations and a row several
// parameters.
import type { Lane } from "../data/lanes";
import { Flag } from "../data/wire";

export const State = {
  trained: 1,
  frozen: 2,
  unused: 4,
  not_optimized: 8,
  not_recorded: 16,
} as const;

const SEEN = Flag.nan | Flag.posinf | Flag.neginf | Flag.zero;

/** What a cell says. A gradient that no optimizer takes trains nothing. */
export function stateOf(max: number, flags: number): number {
  let bits = 0;
  if (flags & Flag.not_optimized) bits |= State.not_optimized;
  else if (max === max || flags & SEEN) bits |= State.trained;
  if (flags & Flag.unused) bits |= State.unused;
  if (flags & Flag.frozen) bits |= State.frozen;
  if (flags & Flag.not_recorded) bits |= State.not_recorded;
  return bits || State.not_recorded;
}

/** What the columns from one to another say together. */
export function stateIn({ max, flags, offset, stride }: Lane, first: number, last: number): number {
  let bits = 0;
  for (let c = first, i = offset + first * stride; c <= last; c++, i += stride) bits |= stateOf(max[i]!, flags[i]!);
  return bits;
}

/** In the order in which they are painted, from the bottom, and told. */
export const STATES: readonly { bit: number; word: string; meaning: string; always: boolean }[] = [
  { bit: State.trained, word: "trained", meaning: "trained", always: true },
  { bit: State.frozen, word: "frozen", meaning: "frozen", always: true },
  { bit: State.unused, word: "unused", meaning: "unused: no path from the loss", always: true },
  { bit: State.not_optimized, word: "not in an optimizer", meaning: "not in an optimizer", always: true },
  { bit: State.not_recorded, word: "not recorded", meaning: "not recorded", always: false },
];

/** Bits in a word or a few: "trained", "partly trained, frozen", "frozen, unused". */
export function words(bits: number): string {
  const found = STATES.filter(({ bit }) => bits & bit).map(({ word }) => word);
  return bits & State.trained && found.length > 1 ? `partly ${found.join(", ")}` : found.join(", ");
}
