// Which columns a device pixel shows.
//
// A column at least a pixel wide owns the pixels from round(start) to round(stop). Narrower columns share
// pixels: then the pixel shows every column that touches it, so that nothing is lost by downscaling.
import type { Columns } from "./wire";

export interface Pixels {
  width: number;
  span: number;
  /** First and last column shown by each pixel; first > last where there is none. */
  first: Int32Array;
  last: Int32Array;
  /** One more than the last pixel that shows a column. */
  end: number;
}

/** Iterations from the left edge to the right: what is planned, or else the next power of two. */
export function spanOf(newest: number, planned: number | null): number {
  if (planned !== null && planned > 0) return Math.max(planned, newest);
  return 2 ** Math.ceil(Math.log2(Math.max(64, newest)));
}

export function placeColumns(columns: Pick<Columns, "count" | "start" | "stop">, span: number, width: number): Pixels {
  const { count, start, stop } = columns;
  const first = new Int32Array(width).fill(1);
  const last = new Int32Array(width).fill(0);
  const shared = new Uint8Array(width);
  let end = 0;
  const show = (pixel: number, column: number): void => {
    if (first[pixel]! > last[pixel]!) first[pixel] = last[pixel] = column;
    else if (column < first[pixel]!) first[pixel] = column;
    else if (column > last[pixel]!) last[pixel] = column;
    end = Math.max(end, pixel + 1);
  };
  // Multiply before dividing: an edge that falls on a pixel edge must come out whole.
  const edge = (iteration: number): number => (iteration * width) / span;
  const touched = (c: number): [number, number] => [
    Math.floor(edge(start[c]!)),
    Math.min(width, Math.ceil(edge(stop[c]!))),
  ];
  const isNarrow = (c: number): boolean => (stop[c]! - start[c]!) * width < span;

  for (let c = 0; c < count; c++) {
    if (!isNarrow(c)) continue;
    const [from, to] = touched(c);
    for (let x = from; x < to; x++) {
      show(x, c);
      shared[x] = 1;
    }
  }
  for (let c = 0; c < count; c++) {
    if (isNarrow(c)) continue;
    const [from, to] = touched(c);
    const owned = [Math.round(edge(start[c]!)), Math.round(edge(stop[c]!))] as const;
    for (let x = from; x < to; x++) {
      if (shared[x] || (x >= owned[0] && x < owned[1])) show(x, c);
    }
  }
  return { width, span, first, last, end };
}

/** The largest number of iterations that one pixel shows. */
export function mostIterations({ first, last, end }: Pixels, { start, stop }: Pick<Columns, "start" | "stop">): number {
  let most = 0;
  for (let x = 0; x < end; x++) {
    if (first[x]! <= last[x]!) most = Math.max(most, stop[last[x]!]! - start[first[x]!]!);
  }
  return most;
}

/** The first pixel that changes when columns from `column` on are new. */
export function firstDirtyPixel(columns: Pick<Columns, "count" | "start">, column: number, span: number, width: number): number {
  if (column >= columns.count) return width;
  return Math.max(0, Math.floor((columns.start[column]! * width) / span));
}

/** What several columns hold together in one row. */
export interface Cell {
  max: number;
  min: number;
  flags: number;
}

export function mergeCell(columns: Columns, row: number, first: number, last: number): Cell {
  const cell: Cell = { max: NaN, min: NaN, flags: 0 };
  for (let c = first, i = first * columns.rows + row; c <= last; c++, i += columns.rows) {
    const max = columns.max[i]!;
    const min = columns.min[i]!;
    if (max > cell.max || Number.isNaN(cell.max)) cell.max = max;
    if (min < cell.min || Number.isNaN(cell.min)) cell.min = min;
    cell.flags |= columns.flags[i]!;
  }
  return cell;
}
