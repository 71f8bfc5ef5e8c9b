// In which order rows stand.
import type { Unit } from "./folds";
import type { Extent } from "../kit/extent";
import type { Cell, Lanes } from "../data/lanes";
import { mergeCell, mergeColumns } from "../data/lanes";
import { columnsIn } from "../data/pixels";
import type { Columns } from "../data/wire";
import { Flag } from "../data/wire";

export type Order = "declaration" | "norm" | "change";

/** How high a row stands: by its largest value, or by how many times its smallest that is. Trouble comes first. */
export function rank({ max, min, flags }: Cell, order: Order): number {
  if (flags & Flag.nonfinite) return Infinity;
  const largest = Math.max(Math.abs(max), Math.abs(min));
  if (Number.isNaN(largest)) return -1;
  if (order === "norm") return largest;
  // What was zero at some time has changed more than any number says.
  return largest === 0 ? 0 : Math.min(largest / Math.min(Math.abs(max), Math.abs(min)), Number.MAX_VALUE);
}

/** The units in order; those that stand equally high as they are declared. Blocks are torn apart. */
export function sorted(units: readonly Unit[], order: Order, cellOf: (unit: Unit) => Cell): Unit[] {
  const ranked = units.map((unit) => ({ unit: { ...unit, block: "" }, rank: rank(cellOf(unit), order) }));
  return ranked.sort((a, b) => (a.rank === b.rank ? 0 : b.rank - a.rank)).map(({ unit }) => unit);
}

/** So many of the rows are read each by itself, at most: more are read faster all at once, as they lie in memory. */
const ALONE = 1 / 8;

/** The units in order, by what they are in these iterations. */
export function sortedIn(columns: Columns, extent: Extent, units: readonly Unit[], order: Order, lanes: Lanes): readonly Unit[] {
  if (order === "declaration") return units;
  const [first, end] = columnsIn(columns, extent);
  const alone = units.filter((unit) => unit.members.length === 1).length;
  if (alone <= ALONE * columns.rows) return sorted(units, order, (unit) => mergeCell(lanes.lane(columns, unit.members), first, end - 1));
  const merged = mergeColumns(columns, first, end);
  return sorted(units, order, (unit) => mergeCell(lanes.lane(merged, unit.members), 0, merged.count - 1));
}

/** Names that hold every word of a text, whichever case they are in. */
export function matcher(text: string): (name: string) => boolean {
  const wanted = text.toLowerCase().split(/\s+/).filter(Boolean);
  return (name) => wanted.every((word) => name.toLowerCase().includes(word));
}
