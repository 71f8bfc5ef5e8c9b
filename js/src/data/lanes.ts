// The numbers of a row: those of a parameter, where they lie among all, or those of several as one.
import { cellsGrown } from "./overview";
import type { Pixels } from "./pixels";
import type { Columns } from "./wire";
import { Flag } from "./wire";

/** Cell c of a row is at `offset + c * stride`. */
export interface Lane {
  max: Float32Array;
  min: Float32Array;
  flags: Uint8Array;
  offset: number;
  stride: number;
}

/** What several columns hold together in one row. */
export interface Cell {
  max: number;
  min: number;
  flags: number;
}

/** Of a row that the columns do not know yet. */
const UNKNOWN: Lane = {
  max: Float32Array.of(NaN),
  min: Float32Array.of(NaN),
  flags: Uint8Array.of(Flag.not_recorded),
  offset: 0,
  stride: 0,
};

export function laneOf({ max, min, flags, rows }: Columns, place: number): Lane {
  return place < rows - 1 ? { max, min, flags, offset: place, stride: rows } : UNKNOWN;
}

/** The loss is the last row. */
export function lossLane({ max, min, flags, rows }: Columns): Lane {
  return rows ? { max, min, flags, offset: rows - 1, stride: rows } : UNKNOWN;
}

export function mergeCell({ max, min, flags, offset, stride }: Lane, first: number, last: number): Cell {
  let high = -Infinity;
  let low = Infinity;
  let union = 0;
  for (let c = first, i = offset + first * stride; c <= last; c++, i += stride) {
    // A comparison with NaN is false.
    if (max[i]! > high) high = max[i]!;
    if (min[i]! < low) low = min[i]!;
    union |= flags[i]!;
  }
  return { max: high < low ? NaN : high, min: high < low ? NaN : low, flags: union };
}

/** What pixels show of a row: those of the same columns are one cell, from the pixel `from` up to `to`. */
export function eachCell(lane: Lane, { first, last, end }: Pixels, act: (cell: Cell, from: number, to: number) => void): void {
  for (let from = 0, to = 0; from < end; from = to) {
    do to += 1;
    while (to < end && first[to] === first[from] && last[to] === last[from]);
    if (first[from]! <= last[from]!) act(mergeCell(lane, first[from]!, last[from]!), from, to);
  }
}

/** The columns [first, end) as one: what sorting looks at. All rows at once, as they lie in memory. */
export function mergeColumns(columns: Columns, first: number, end: number): Columns {
  const { rows } = columns;
  const count = first < end ? 1 : 0;
  const max = new Float32Array(rows).fill(-Infinity);
  const min = new Float32Array(rows).fill(Infinity);
  const flags = new Uint8Array(rows);
  // What is read millions of times is looked up once; a comparison with NaN is false.
  const { max: highs, min: lows, flags: marks } = columns;
  for (let c = first, i = first * rows; c < end; c++) {
    for (let r = 0; r < rows; r++, i++) {
      if (highs[i]! > max[r]!) max[r] = highs[i]!;
      if (lows[i]! < min[r]!) min[r] = lows[i]!;
      flags[r]! |= marks[i]!;
    }
  }
  for (let r = 0; r < rows; r++) if (max[r] === -Infinity) max[r] = min[r] = NaN;
  return { count, rows, start: columns.start.slice(first, first + count), stop: columns.stop.slice(end - count, end), max, min, flags };
}

/** Several parameters as one row: in each column the largest, the smallest, and every flag. */
class Fold implements Lane {
  readonly offset = 0;
  readonly stride = 1;
  max: Float32Array = new Float32Array(0);
  min: Float32Array = new Float32Array(0);
  flags: Uint8Array = new Uint8Array(0);
  #done = 0;

  constructor(private readonly members: readonly number[]) {}

  /** Columns from this one on are new. */
  forget(column: number): void {
    this.#done = Math.min(this.#done, column);
  }

  update(columns: Columns): this {
    if (this.#done === columns.count) return this;
    if (this.max.length < columns.count) Object.assign(this, cellsGrown(this, columns.start.length));
    const { max, min, flags, members } = this;
    const { rows, max: highs, min: lows, flags: marks } = columns;
    const known = Int32Array.from(members.filter((place) => place < rows - 1));
    const unknown = known.length < members.length ? Flag.not_recorded : 0;
    for (let c = this.#done; c < columns.count; c++) {
      let high = -Infinity;
      let low = Infinity;
      let union: number = unknown;
      for (let k = 0; k < known.length; k++) {
        const i = c * rows + known[k]!;
        if (highs[i]! > high) high = highs[i]!;
        if (lows[i]! < low) low = lows[i]!;
        union |= marks[i]!;
      }
      max[c] = high === -Infinity ? NaN : high;
      min[c] = low === Infinity ? NaN : low;
      flags[c] = union;
    }
    this.#done = columns.count;
    return this;
  }
}

/** The lanes of columns; folded ones are kept, so that a zoom or a new colour merges nothing again. */
export class Lanes {
  readonly #folds = new WeakMap<Columns, Map<string, Fold>>();

  /** Columns from this one on are new or changed. */
  forget(columns: Columns, column: number): void {
    for (const fold of this.#folds.get(columns)?.values() ?? []) fold.forget(column);
  }

  lane(columns: Columns, members: readonly number[]): Lane {
    if (members.length === 1) return laneOf(columns, members[0]!);
    let folds = this.#folds.get(columns);
    if (!folds) this.#folds.set(columns, (folds = new Map()));
    const key = members.join();
    let fold = folds.get(key);
    if (!fold) folds.set(key, (fold = new Fold(members)));
    return fold.update(columns);
  }
}
