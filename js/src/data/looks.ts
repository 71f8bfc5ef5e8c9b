// How a cell looks, decided by its flags and its value. What a look is painted with: marks.ts.
import type { Scale } from "./colour";
import { Flag } from "./wire";

/** The looks of a cell. `none`: no column has come here yet. */
export const enum Look {
  none = 0,
  value = 1,
  value_not_optimized = 2,
  zero = 3,
  unused = 4,
  frozen = 5,
  not_recorded = 6,
  nan = 7,
  posinf = 8,
  neginf = 9,
  bothinf = 10,
}

/** Trouble wins over a value, a value over its absence: what matters survives merging. */
export function lookOf(value: number, flags: number): Look {
  if (flags & Flag.nan) return Look.nan;
  const infs = flags & (Flag.posinf | Flag.neginf);
  if (infs) return infs === Flag.posinf ? Look.posinf : infs === Flag.neginf ? Look.neginf : Look.bothinf;
  if (value > 0) return flags & Flag.not_optimized ? Look.value_not_optimized : Look.value;
  if (value === 0 || flags & Flag.zero) return Look.zero;
  if (flags & Flag.unused) return Look.unused;
  if (flags & Flag.frozen) return Look.frozen;
  return Look.not_recorded;
}

/** How a cell looks in which this value is shown: where signs or zeros are ordinary numbers, they have colours. */
export const lookIn = ({ base, signed }: Scale, value: number, flags: number): Look => lookOf((base === 1 || signed) && value === value ? 1 : value, flags);

export const isNonFinite = (look: number): boolean => look >= Look.nan;

/** Legend entries in order; the last ones appear only in pictures that have them. */
export const LEGEND: readonly { look: Look; word: string; always: boolean }[] = [
  { look: Look.frozen, word: "frozen", always: true },
  { look: Look.unused, word: "unused", always: true },
  { look: Look.zero, word: "zero", always: true },
  { look: Look.nan, word: "NaN", always: true },
  { look: Look.posinf, word: "+inf", always: true },
  { look: Look.neginf, word: "−inf", always: true },
  { look: Look.bothinf, word: "±inf", always: false },
  { look: Look.value_not_optimized, word: "not in the optimizer", always: false },
  { look: Look.not_recorded, word: "not recorded", always: false },
];

export const wordOf = (look: number): string => LEGEND.find((entry) => entry.look === look)?.word ?? "";

/**
 * The flags of a cell in words. `partly`: some of the cell's iterations have a positive value; `where`: which runs a
 * flag may be of, if several; `whose`: behind a flag's words, which parameters of a folded module have it.
 */
export function words(flags: number, partly: boolean, where = "", whose: (flag: number) => string = () => ""): string[] {
  const seen = where || " in the gradient";
  const some = `${where}${partly ? " (in part)" : ""}`;
  const all: [number, string][] = [
    [Flag.nan, `NaN${seen}`],
    [Flag.posinf, `+inf${seen}`],
    [Flag.neginf, `−inf${seen}`],
    [Flag.zero, `zero${some}`],
    [Flag.unused, where ? `unused${some}` : `unused: no path from the loss${some}`],
    [Flag.frozen, `frozen${some}`],
    [Flag.not_optimized, `not in the optimizer${where}`],
    [Flag.not_recorded, `not recorded${some}`],
  ];
  return all.filter(([flag]) => flags & flag).map(([flag, word]) => word + whose(flag));
}
