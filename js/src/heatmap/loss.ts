// The loss lane: a line, a band from min to max where it stands for several iterations, and red chips where
// the loss was not finite.
import type { Chip } from "./chips";
import { placeChips } from "./chips";
import type { Lane } from "../data/lanes";
import { eachCell } from "../data/lanes";
import { isNonFinite, Look, lookOf } from "../data/looks";
import type { Marks } from "./marks";
import type { Pixels } from "../data/pixels";
import type { Theme } from "../kit/theme";
import { Flag } from "../data/wire";

export interface LossRange {
  min: number;
  max: number;
  /** Whether the lane is logarithmic: a loss that has fallen a hundredfold is a flat line otherwise. */
  log: boolean;
}

const LOG_FROM = 100;

export interface Point {
  /** The middle of what it stands for, and that one's ends, in device pixels. */
  x: number;
  max: number;
  min: number;
}

export class LossPainter {
  chips: Chip[] = [];

  constructor(private readonly canvas: HTMLCanvasElement) {}

  /** Paint the whole lane (it is one line); returns the range of the finite losses. */
  paint(lane: Lane, pixels: Pixels, theme: Theme, marks: Marks, dpr: number): LossRange | null {
    const { width, height } = this.canvas;
    const x = this.canvas.getContext("2d")!;
    x.clearRect(0, 0, width, height);
    const line = Math.max(1, Math.round(dpr));
    x.fillStyle = theme.line;
    x.fillRect(0, height - line, width, line);

    const { pieces, looks } = trace(lane, pixels);
    const range = rangeOf(pieces);
    this.chips = [];
    placeChips(this.chips, looks, 0, pixels.end, marks.chipSize);

    // Red ticks first: a line that goes on beside a tick stays visible.
    for (const chip of this.chips) {
      const wide = chip.to - chip.from > 3 * dpr;
      x.fillStyle = theme.bad;
      x.globalAlpha = wide ? 0.22 : 1;
      x.fillRect(chip.from, 0, Math.max(line, chip.to - chip.from), height - line);
      x.globalAlpha = 1;
    }
    if (range) {
      const scale = range.log ? Math.log : (value: number): number => value;
      const [low, high] = [scale(range.min), scale(range.max)];
      const top = 4 * dpr;
      const bottom = height - 5 * dpr;
      const y = (value: number): number =>
        high === low ? (top + bottom) / 2 : bottom - ((scale(value) - low) / (high - low)) * (bottom - top);
      for (const piece of pieces) drawPiece(x, piece, y, theme.accent, dpr);
    }
    const chipHeight = Math.round(12 * dpr);
    for (const chip of this.chips) marks.chip(x, chip, 0, chipHeight);
    return range;
  }
}

/** Points between the losses that are not finite, and the looks of every pixel. */
function trace(lane: Lane, pixels: Pixels): { pieces: Point[][]; looks: Uint8Array } {
  const looks = new Uint8Array(pixels.width);
  const pieces: Point[][] = [[]];
  eachCell(lane, pixels, ({ max, min, flags }, from, to) => {
    const look = flags & Flag.nonfinite ? lookOf(NaN, flags) : Look.value;
    looks.fill(look, from, to);
    if (Number.isFinite(max)) pieces.at(-1)!.push({ x: (from + to) / 2, max, min });
    // A pixel may hold a finite loss and a NaN; only one with nothing finite parts the line.
    else if (isNonFinite(look)) pieces.push([]);
  });
  return { pieces, looks };
}

function rangeOf(pieces: Point[][]): LossRange | null {
  let min = Infinity;
  let max = -Infinity;
  for (const piece of pieces) {
    for (const point of piece) {
      if (point.min < min) min = point.min;
      if (point.max > max) max = point.max;
    }
  }
  return max >= min ? { min, max, log: min > 0 && max >= LOG_FROM * min } : null;
}

export function drawPiece(x: CanvasRenderingContext2D, piece: Point[], y: (value: number) => number, colour: string, dpr: number): void {
  if (!piece.length) return;
  if (piece.some((point) => point.max > point.min)) {
    x.beginPath();
    for (const point of piece) x.lineTo(point.x, y(point.max));
    for (let i = piece.length - 1; i >= 0; i--) x.lineTo(piece[i]!.x, y(piece[i]!.min));
    x.closePath();
    x.globalAlpha = 0.3;
    x.fillStyle = colour;
    x.fill();
    x.globalAlpha = 1;
  }
  x.beginPath();
  x.strokeStyle = x.fillStyle = colour;
  x.lineWidth = 1.5 * dpr;
  x.lineJoin = "round";
  for (const point of piece) x.lineTo(point.x, y((point.max + point.min) / 2));
  x.stroke();
  if (piece.length > 1) return;
  // A lone point has no line.
  x.beginPath();
  x.arc(piece[0]!.x, y((piece[0]!.max + piece[0]!.min) / 2), 1.75 * dpr, 0, 7);
  x.fill();
}
