// What some columns hold, all in all: the range of their values, and which marks each parameter has.
import type { Columns } from "./wire";
import { Flag } from "./wire";

export class Survey {
  /** Of sizes above 0. */
  smallest = Infinity;
  largest = 0;
  /** OR of every flag seen so far, by parameter. */
  seen: Uint8Array = new Uint8Array(0);
  /** Whether any iteration has a loss. */
  hasLoss = false;

  add({ rows, count, max, min, flags }: Columns): this {
    if (!count) return this;
    if (rows - 1 > this.seen.length) {
      // Parameters that come later were not recorded before.
      const seen = new Uint8Array(rows - 1).fill(this.seen.length ? Flag.not_recorded : 0);
      seen.set(this.seen);
      this.seen = seen;
    }
    const { seen } = this;
    for (let c = 0, i = 0; c < count; c++, i++) {
      for (let r = 0; r < rows - 1; r++, i++) seen[r]! |= flags[i]!;
      // It has its own lane.
      this.hasLoss ||= flags[i] !== Flag.not_recorded || max[i] === max[i];
    }
    this.#measure(max, rows, count);
    // Iterations that nobody merged have one number each.
    if (min !== max) this.#measure(min, rows, count);
    return this;
  }

  #measure(numbers: Float32Array, rows: number, count: number): void {
    let { smallest, largest } = this;
    for (let c = 0, i = 0; c < count; c++, i++) {
      for (let r = 0; r < rows - 1; r++, i++) {
        // Comparisons with NaN are false; zero has no logarithm.
        const size = Math.abs(numbers[i]!);
        if (size > largest) largest = size;
        if (size > 0 && size < smallest) smallest = size;
      }
    }
    this.smallest = smallest;
    this.largest = largest;
  }
}
