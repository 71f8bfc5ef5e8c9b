// Cells as pixels show them: all pixels with the same columns are one.
import type { Pixels } from "../data/pixels";
import type { Columns } from "../data/wire";

export const has = (pixels: Pixels, pixel: number): boolean => pixel >= 0 && pixel < pixels.end && pixels.first[pixel]! <= pixels.last[pixel]!;

const same = (pixels: Pixels, a: number, b: number): boolean => pixels.first[a] === pixels.first[b] && pixels.last[a] === pixels.last[b];

/** The pixels [from, to) that show the same columns as this one. */
export function around(pixels: Pixels, pixel: number): [number, number] {
  let from = pixel;
  let to = pixel + 1;
  while (from > 0 && same(pixels, from - 1, pixel)) from -= 1;
  while (to < pixels.end && same(pixels, to, pixel)) to += 1;
  return [from, to];
}

/** The next cell in a direction, 1 or -1; null at the end. */
export function nextCell(pixels: Pixels, pixel: number, direction: number): number | null {
  let x = pixel + direction;
  while (x >= 0 && x < pixels.end && (!has(pixels, x) || (pixel >= 0 && same(pixels, x, pixel)))) x += direction;
  return has(pixels, x) ? x : null;
}

/** An iteration that leads back to this pixel's cell. */
export function iterationAt(pixels: Pixels, columns: Columns, pixel: number): number {
  const start = columns.start[pixels.first[pixel]!]!;
  const { extent, width } = pixels;
  const inside = Math.ceil(extent.start + (pixel * extent.span) / width);
  return Math.max(start, Math.min(inside, columns.stop[pixels.last[pixel]!]! - 1));
}

/** The pixel that shows an iteration, if one does. */
export function pixelOf(pixels: Pixels, { start, stop }: Columns, iteration: number): number | undefined {
  const edge = ((iteration - pixels.extent.start) * pixels.width) / pixels.extent.span;
  // The pixel that an iteration begins in is its own or, after rounding, still the one before's.
  return [Math.floor(edge), Math.round(edge)].find(
    (x) => has(pixels, x) && start[pixels.first[x]!]! <= iteration && iteration < stop[pixels.last[x]!]!,
  );
}
