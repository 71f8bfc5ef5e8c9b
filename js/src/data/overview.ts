// A bounded picture of a run of any length. The same algorithm as gradviz/history/overview.py, held
// to the same golden bytes (tests/data/overview.json).
//
// At level n, columns in the same block of 2**n iterations are one. When there are more than the capacity, the
// level rises. A merge keeps the largest and the smallest finite value and every flag, so one bad iteration in
// 100,000 is never lost.
//
// A column that says nothing of any parameter, neither a value nor a flag, is of an iteration at which only the
// loss was recorded: it becomes one with the column before it.
import type { Columns } from "./wire";
import { Flag } from "./wire";

/** Columns kept. 4096 are more than a screen has pixels; 1,000 parameters then take 37 MB. */
export const CAPACITY = 4096;

/** What there is one of in a column, and in each of its cells. */
const BY_COLUMN = ["start", "stop"] as const;
const BY_CELL = ["max", "min", "flags"] as const;

export class Overview implements Columns {
  level = 0;
  count = 0;
  rows: number;
  start: Uint32Array = new Uint32Array(0);
  stop: Uint32Array = new Uint32Array(0);
  max: Float32Array = new Float32Array(0);
  min: Float32Array = new Float32Array(0);
  flags: Uint8Array = new Uint8Array(0);

  constructor(
    rows = 0,
    readonly capacity = CAPACITY,
  ) {
    this.rows = rows;
  }

  /** Append columns; returns the index of the first column that is new or changed. */
  append(columns: Columns): number {
    if (columns.count === 0) return this.count;
    // Parameters may be added during a run.
    const grows = columns.rows > this.rows;
    if (grows) Object.assign(this, withRows(this, columns.rows));
    else if (columns.rows < this.rows) columns = withRows(columns, this.rows);
    const { count, rows } = this;
    this.reserve(count + columns.count);
    for (const name of BY_COLUMN) this[name].set(columns[name], count);
    for (const name of BY_CELL) this[name].set(columns[name], count * rows);
    this.count += columns.count;
    const last = Math.max(0, count - 1);
    let from = count > 0 && this.#isOne(last, count) ? last : count;
    this.#merge(from);
    while (this.count > this.capacity) {
      this.level += 1;
      this.#merge(0);
      from = 0;
    }
    return grows ? 0 : from;
  }

  /** Whether column b goes on with the column a before it. */
  #isOne(a: number, b: number): boolean {
    return this.start[a]! >>> this.level === this.start[b]! >>> this.level || hasLossAlone(this, b);
  }

  /** Merge what shares a block, from column `first` on. */
  #merge(first: number): void {
    const { rows, start, stop, max, min, flags } = this;
    let to = first;
    for (let from = first + 1; from < this.count; from++) {
      if (!this.#isOne(to, from)) {
        to += 1;
        if (to === from) continue;
        start[to] = start[from]!;
        stop[to] = stop[from]!;
        for (const cells of [max, min, flags]) cells.copyWithin(to * rows, from * rows, (from + 1) * rows);
        continue;
      }
      stop[to] = stop[from]!;
      for (let r = 0, a = to * rows, b = from * rows; r < rows; r++, a++, b++) {
        // A comparison with NaN is false: the finite one of the two stays, NaN only if both are.
        if (max[b]! > max[a]! || Number.isNaN(max[a])) max[a] = max[b]!;
        if (min[b]! < min[a]! || Number.isNaN(min[a])) min[a] = min[b]!;
        flags[a]! |= flags[b]!;
      }
    }
    this.count = Math.min(this.count, to + 1);
  }

  /** Have room for so many columns. */
  reserve(count: number): void {
    const { start, stop, rows } = this;
    if (count <= start.length) return;
    const size = Math.max(count, Math.min(2 * start.length, this.capacity + 64), 64);
    Object.assign(this, { start: grown(start, size), stop: grown(stop, size) }, cellsGrown(this, size * rows));
  }
}

/** The same numbers, and room for more. */
function grown<T extends Uint32Array | Float32Array | Uint8Array>(from: T, length: number): T {
  const to = new (from.constructor as new (length: number) => T)(length);
  to.set(from);
  return to;
}

/** The same of what cells hold. */
export function cellsGrown({ max, min, flags }: Pick<Columns, (typeof BY_CELL)[number]>, length: number): Pick<Columns, (typeof BY_CELL)[number]> {
  return { max: grown(max, length), min: grown(min, length), flags: grown(flags, length) };
}

/** Whether a column says nothing of any parameter: the first one's cell tells it of all. */
export function hasLossAlone({ rows, flags, max }: Columns, column: number): boolean {
  const first = column * rows;
  return rows > 1 && flags[first] === 0 && Number.isNaN(max[first]);
}

/** The same columns with more parameters: those that came later were not recorded. The loss stays last. */
export function withRows(columns: Columns, rows: number): Columns {
  const { count, start, stop } = columns;
  const old = columns.rows;
  const wide: Columns = {
    count,
    rows,
    start: start.slice(0, count),
    stop: stop.slice(0, count),
    max: new Float32Array(count * rows).fill(NaN),
    min: new Float32Array(count * rows).fill(NaN),
    flags: new Uint8Array(count * rows).fill(Flag.not_recorded),
  };
  for (let c = 0; c < count; c++) {
    if (old === 0) continue;
    for (const name of BY_CELL) {
      const from = columns[name].subarray(c * old, (c + 1) * old);
      wide[name].set(from.subarray(0, old - 1), c * rows);
      wide[name][(c + 1) * rows - 1] = from[old - 1]!;
    }
  }
  return wide;
}
