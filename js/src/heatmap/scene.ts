// The picture as it was last painted: where its cells are, which one is beside another, and what each says.
import { around, has, iterationAt, nextCell, pixelOf } from "./cells";
import { coveredBy } from "./chips";
import type { Chip } from "./chips";
import type { Description } from "../kit/tooltip";
import type { When } from "./describe";
import { describeFold, describeLoss, describeParameter } from "./describe";
import type { Scale } from "../data/colour";
import * as format from "../kit/format";
import type { Lane } from "../data/lanes";
import { laneOf, mergeCell } from "../data/lanes";
import type { Pixels } from "../data/pixels";
import { wordOf } from "../data/looks";
import type { Layout, Row } from "../rows/rows";
import { rank } from "../rows/order";
import { placeOf, rowAt } from "../rows/rows";
import type { Quantity, Store } from "../data/store";
import type { Columns } from "../data/wire";

export interface Scene {
  store: Store;
  quantity: Quantity;
  scale: Scale;
  layout: Layout;
  columns: Columns;
  /** Whether each column has the numbers of one iteration, its first. */
  exact: boolean;
  laneOf(row: Row): Lane;
  lossLane: Lane;
  pixels: Pixels;
  /** Device pixels to a css pixel, sideways. */
  dpr: number;
  /** By row, as far as rows are painted. */
  chipsOf(row: number): readonly Chip[];
  lossChips: readonly Chip[];
}

/** The row of the loss, which is above all others. */
export const LOSS = -1;

/** A cell by its row's place and its iteration. */
export interface Spot {
  row: number;
  iteration: number;
}

/** A cell by its row's place and one of the device pixels that show it. */
export interface Place {
  row: number;
  pixel: number;
}

/** The cell at css pixels from the left edge and the top of all cells; with `isLoss` that of the loss. */
export function cellAt({ layout, pixels, dpr }: Scene, x: number, y: number, isLoss: boolean): Place | null {
  const pixel = Math.floor(x * dpr);
  const row = isLoss ? LOSS : rowAt(layout, y);
  return row !== null && has(pixels, pixel) ? { row, pixel } : null;
}

/** The cell of an iteration in the row of this name, or in the module that it was folded into; or else in that place. */
export function cellOf({ layout: { rows }, pixels, columns }: Scene, name: string, { row: place, iteration }: Spot): Place | null {
  if (!rows.length) return null;
  const named = placeOf(rows, name);
  const row = named < 0 ? Math.min(place, rows.length - 1) : named;
  const pixel = pixelOf(pixels, columns, iteration);
  return pixel === undefined ? null : { row, pixel };
}

/** The name that a cell is of: in a folded module that of the parameter that stands highest there. */
export function nameAt({ store, layout, columns, pixels }: Scene, { row, pixel }: Place): string {
  const height = (place: number): number => rank(mergeCell(laneOf(columns, place), pixels.first[pixel]!, pixels.last[pixel]!), "norm");
  return store.names[layout.rows[row]!.members.reduce((a, b) => (height(b) > height(a) ? b : a))]!;
}

export const spotOf = ({ pixels, columns }: Scene, { row, pixel }: Place): Spot => ({ row, iteration: iterationAt(pixels, columns, pixel) });

const MOVES: Record<string, readonly [number, number]> = {
  ArrowLeft: [0, -1],
  ArrowRight: [0, 1],
  ArrowUp: [-1, 0],
  ArrowDown: [1, 0],
  PageUp: [-10, 0],
  PageDown: [10, 0],
  Home: [0, -Infinity],
  End: [0, Infinity],
};

/** Where a key leads from a cell. The first one leads to the newest cell. */
export function stepped(scene: Scene, key: string, from: Place | null): Spot | null {
  const { layout, pixels } = scene;
  const move = MOVES[key];
  if (!move || !layout.rows.length || pixels.end === 0) return null;
  const [down, right] = move;
  let { row, pixel } = from ?? { row: 0, pixel: pixels.end - 1 };
  if (from) row = Math.max(0, Math.min(layout.rows.length - 1, row + down));
  if (right === -Infinity) pixel = nextCell(pixels, -1, 1) ?? pixel;
  else if (right === Infinity) pixel = pixels.end - 1;
  else if (right && from) pixel = nextCell(pixels, pixel, right) ?? pixel;
  return spotOf(scene, { row, pixel });
}

/** What a cell says, and the device pixels [from, to) that stand for it. */
export function tell(scene: Scene, { row, pixel }: Place): { description: Description; from: number; to: number } {
  const { store, layout, columns, pixels } = scene;
  const [first, last] = [pixels.first[pixel]!, pixels.last[pixel]!];
  const chips = row === LOSS ? scene.lossChips : scene.chipsOf(row);
  const chip = chips.find((c) => c.glyph && c.right - c.left > c.to - c.from && pixel >= c.from && pixel < c.to);
  // A chip stands for its cells: box the chip, or the box would hide its glyph.
  const [from, to] = chip ? [chip.left, chip.right] : around(pixels, pixel);
  const [start, stop] = [columns.start[first]!, columns.stop[last]!];
  // Of a parameter, where others of a column were not recorded; each of them has a loss.
  const isOne = scene.exact && first === last && row !== LOSS;
  const when = { start, stop, isOne, firstEpoch: store.epochOf(start), lastEpoch: store.epochOf(isOne ? start : stop - 1) };
  const description = row === LOSS ? describeLoss(mergeCell(scene.lossLane, first, last), when) : describe(scene, layout.rows[row]!, first, last, when);
  // The cell under the pointer may lie under the mark of another: say what that mark stands for.
  const cover = coveredBy(chips, pixel);
  if (cover) {
    const iterations = [columns.start[pixels.first[cover.from]!]!, columns.stop[pixels.last[cover.to - 1]!]!] as const;
    description.flags.push(`beside: ${wordOf(cover.look)} at ${format.iterations(...iterations)}`);
  }
  return { description, from, to };
}

function describe({ store, quantity, columns, laneOf: lane }: Scene, row: Row, first: number, last: number, when: When): Description {
  const cell = mergeCell(lane(row), first, last);
  if (!row.folded) return describeParameter(store.parameters[row.members[0]!]!, cell, when, quantity);
  const inside = row.members.map((place) => ({ name: store.names[place]!, cell: mergeCell(laneOf(columns, place), first, last) }));
  return describeFold(row.name, inside, cell, when, quantity);
}
