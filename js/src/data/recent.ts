// The newest columns as they came: fine, where the overview has merged them already.
import { hasLossAlone, Overview } from "./overview";
import type { Columns } from "./wire";

/** So many columns at least; old ones go when there are twice as many, so that most appends move nothing. */
const KEPT = 1024;

export class Recent {
  readonly columns = new Overview(0, Infinity);

  /** Append; returns the index of the first column that is new or changed. */
  add(columns: Columns): number {
    const from = this.columns.append(columns);
    const old = this.columns.count - KEPT;
    if (old < KEPT) return from;
    this.columns.drop(old);
    return 0;
  }

  /** The first iteration that is here; a loss that belongs to a column that is not does not count. */
  get start(): number {
    const { columns } = this;
    for (let c = 0; c < columns.count; c++) if (!hasLossAlone(columns, c)) return columns.start[c]!;
    return Infinity;
  }
}
