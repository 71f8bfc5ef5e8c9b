// The newest columns as they came: fine, where the overview has merged them already.
import { hasLossAlone, Overview } from "./overview";
import type { Columns } from "./wire";

/** So many columns at least, and room for twice as many and for what comes at once. */
const KEPT = 1024;
const ROOM = 2 * KEPT + 256;

export class Recent {
  columns = new Overview(0, Infinity);
  /** Gathers what will be left when old columns go: to move so much at once would be felt. */
  #next: Overview | null = null;
  /** Columns that have gone. Their memory is used again: to take new one would be felt too. */
  #gone: Overview | null = null;

  /** Append; returns the index of the first column that is new or changed. */
  add(columns: Columns): number {
    const from = this.columns.append(columns);
    if (this.columns.count <= KEPT) return from;
    this.#next ??= this.#begin();
    this.#next.append(columns);
    if (this.#next.count < KEPT) return from;
    [this.columns, this.#next, this.#gone] = [this.#next, null, this.columns];
    return 0;
  }

  #begin(): Overview {
    const { rows } = this.columns;
    this.columns.reserve(ROOM);
    const next = new Overview(rows, Infinity);
    if (this.#gone?.rows === rows) {
      const { start, stop, max, min, flags } = this.#gone;
      Object.assign(next, { start, stop, max, min, flags });
    }
    next.reserve(ROOM);
    return next;
  }

  /** The first iteration that is here; a loss that belongs to a column that is not does not count. */
  get start(): number {
    const { columns } = this;
    for (let c = 0; c < columns.count; c++) if (!hasLossAlone(columns, c)) return columns.start[c]!;
    return Infinity;
  }
}
