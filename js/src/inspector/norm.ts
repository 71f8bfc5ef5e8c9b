// The norm over time, on a logarithmic axis: a line, a band from min to max where it stands for several iterations, and the
// marks of the heatmap where there is no number.
import type { Chip } from "../heatmap/chips";
import { placeChips } from "../heatmap/chips";
import type { Point } from "../heatmap/loss";
import { drawPiece } from "../heatmap/loss";
import type { Marks } from "../heatmap/marks";
import type { Lane } from "../data/lanes";
import { eachCell } from "../data/lanes";
import { isNonFinite, Look, lookOf } from "../data/looks";
import type { Pixels } from "../data/pixels";
import type { Theme } from "../kit/theme";

export interface NormRange {
  /** Of what is above 0; null where nothing is. */
  ends: readonly [number, number] | null;
  /** All looks that are to be seen. */
  looks: ReadonlySet<number>;
}

/** Css pixels. */
const CHIP = 13;
const ZERO = 9;

export function paintNorm(canvas: HTMLCanvasElement, lane: Lane, pixels: Pixels, theme: Theme, marks: Marks, dpr: number): NormRange {
  const { width, height } = canvas;
  const x = canvas.getContext("2d")!;
  x.clearRect(0, 0, width, height);
  const { pieces, looks, ends } = trace(lane, pixels);
  for (let from = 0; from < pixels.end; ) {
    const look = looks[from]!;
    let to = from + 1;
    while (to < pixels.end && looks[to] === look) to += 1;
    // Zero has no place on a logarithmic axis: it is a line at its foot.
    if (look === Look.zero) marks.run(x, look, from, to, height - ZERO * dpr, ZERO * dpr);
    else if (look === Look.frozen || look === Look.unused || look === Look.not_recorded) marks.run(x, look, from, to, 0, height);
    from = to;
  }
  const chips: Chip[] = [];
  placeChips(chips, looks, 0, pixels.end, marks.chipSize);
  for (const chip of chips) {
    x.fillStyle = theme.bad;
    x.globalAlpha = chip.to - chip.from > 3 * dpr ? 0.22 : 1;
    x.fillRect(chip.from, 0, Math.max(1, chip.to - chip.from), height);
    x.globalAlpha = 1;
  }
  if (ends) {
    const [low, high] = ends.map(Math.log) as [number, number];
    const [top, bottom] = [4 * dpr, height - 4 * dpr];
    const y = (value: number): number => (high === low ? (top + bottom) / 2 : bottom - ((Math.log(value) - low) / (high - low)) * (bottom - top));
    for (const piece of pieces) drawPiece(x, piece, y, theme.accent, dpr);
  }
  for (const chip of chips) marks.chip(x, chip, 0, Math.round(CHIP * dpr));
  return { ends, looks: new Set(looks.subarray(0, pixels.end)) };
}

/** Points that have a place on the axis, apart wherever there is none; and the look of every pixel. */
function trace(lane: Lane, pixels: Pixels): { pieces: Point[][]; looks: Uint8Array; ends: readonly [number, number] | null } {
  const looks = new Uint8Array(pixels.width);
  const pieces: Point[][] = [[]];
  let [smallest, largest] = [Infinity, 0];
  eachCell(lane, pixels, ({ max, min, flags }, from, to) => {
    const look = lookOf(max, flags);
    looks.fill(look, from, to);
    if (max > 0) {
      // Zeros among others: the band ends at the smallest that is none.
      const low = min > 0 ? min : max;
      pieces.at(-1)!.push({ x: (from + to) / 2, max, min: low });
      smallest = Math.min(smallest, low);
      largest = Math.max(largest, max);
    } else if (pieces.at(-1)!.length || isNonFinite(look)) pieces.push([]);
  });
  return { pieces, looks, ends: largest ? [smallest, largest] : null };
}
