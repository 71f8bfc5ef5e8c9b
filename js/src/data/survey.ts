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
    let { smallest, largest } = this;
    for (let c = 0, i = 0; c < count; c++) {
      for (let r = 0; r < rows; r++, i++) {
        if (r === rows - 1) {
          this.hasLoss ||= flags[i] !== Flag.not_recorded || max[i] === max[i];
          continue; // it has its own lane
        }
        this.seen[r]! |= flags[i]!;
        // Comparisons with NaN are false; zero has no logarithm.
        const high = Math.abs(max[i]!);
        const low = Math.abs(min[i]!);
        if (high > largest) largest = high;
        if (low > largest) largest = low;
        if (low > 0 && low < smallest) smallest = low;
        if (high > 0 && high < smallest) smallest = high;
      }
    }
    this.smallest = smallest;
    this.largest = largest;
    return this;
  }
}
