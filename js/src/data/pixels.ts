// Which columns a device pixel shows.
//
// A column at least a pixel wide owns the pixels from round(start) to round(stop). Narrower columns share
// pixels: then the pixel shows every column that touches it, so that nothing is lost by downscaling.
import { firstPlace } from "../kit/bisect";
import type { Extent } from "../kit/extent";
import type { Columns } from "./wire";

export interface Pixels {
  width: number;
  extent: Extent;
  /** First and last column shown by each pixel; first > last where there is none. */
  first: Int32Array;
  last: Int32Array;
  /** One more than the last pixel that shows a column. */
  end: number;
}

export function placeColumns(columns: Pick<Columns, "count" | "start" | "stop">, extent: Extent, width: number): Pixels {
  const { start, stop } = columns;
  const { span } = extent;
  const [from, to] = columnsIn(columns, extent);
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
  const edge = (iteration: number): number => ((iteration - extent.start) * width) / span;
  const touched = (c: number): [number, number] => [
    Math.max(0, Math.floor(edge(start[c]!))),
    Math.min(width, Math.ceil(edge(stop[c]!))),
  ];
  const isNarrow = (c: number): boolean => (stop[c]! - start[c]!) * width < span;

  for (let c = from; c < to; c++) {
    if (!isNarrow(c)) continue;
    const [left, right] = touched(c);
    for (let x = left; x < right; x++) {
      show(x, c);
      shared[x] = 1;
    }
  }
  for (let c = from; c < to; c++) {
    if (isNarrow(c)) continue;
    const [left, right] = touched(c);
    const owned = [Math.round(edge(start[c]!)), Math.round(edge(stop[c]!))] as const;
    for (let x = left; x < right; x++) {
      if (shared[x] || (x >= owned[0] && x < owned[1])) show(x, c);
    }
  }
  return { width, extent, first, last, end };
}

/** The columns [from, to) that have iterations in view. */
export function columnsIn({ count, start, stop }: Pick<Columns, "count" | "start" | "stop">, extent: Extent): [number, number] {
  return [firstPlace(count, (c) => stop[c]! > extent.start), firstPlace(count, (c) => start[c]! >= extent.start + extent.span)];
}

/** The largest number of iterations that one pixel shows; `exact`: one of each column's was recorded. */
export function mostIterations({ first, last, end }: Pixels, { start, stop }: Pick<Columns, "start" | "stop">, exact = false): number {
  let most = 0;
  for (let x = 0; x < end; x++) {
    if (exact && first[x] === last[x]) most = Math.max(most, 1);
    else if (first[x]! <= last[x]!) most = Math.max(most, stop[last[x]!]! - start[first[x]!]!);
  }
  return most;
}

/** The first pixel that changes when columns from `column` on are new. */
export function firstDirtyPixel(columns: Pick<Columns, "count" | "start">, column: number, { start, span }: Extent, width: number): number {
  if (column >= columns.count) return width;
  return Math.max(0, Math.min(width, Math.floor(((columns.start[column]! - start) * width) / span)));
}
