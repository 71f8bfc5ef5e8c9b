// Where runs lie on device pixels, and their painting.
import type { Extent } from "../kit/extent";
import type { Ink } from "./ink";
import type { Runs } from "./runs";

/** A row in device pixels. */
export interface Band {
  top: number;
  height: number;
}

export interface Stretch {
  from: number;
  to: number;
  bits: number;
}

/** The runs that are in view, as device pixels. One that is shorter than a pixel has one all the same. */
export function stretches({ start, bits }: Runs, end: number, extent: Extent, width: number): Stretch[] {
  const edge = (iteration: number): number => Math.round(((iteration - extent.start) * width) / extent.span);
  const found: Stretch[] = [];
  for (let k = 0; k < start.length; k++) {
    const stop = start[k + 1] ?? end;
    if (stop <= extent.start || start[k]! >= extent.start + extent.span || !bits[k]) continue;
    const from = Math.max(0, Math.min(width - 1, edge(start[k]!)));
    found.push({ from, to: Math.min(width, Math.max(from + 1, edge(stop))), bits: bits[k]! });
  }
  return found;
}

export function paintLane(x: CanvasRenderingContext2D, ink: Ink, runs: readonly Stretch[], width: number, { top, height }: Band): void {
  x.clearRect(0, top, width, height);
  ink.blank(x, runs.at(-1)?.to ?? 0, width, top, height);
  // The short ones last: what happened at a single iteration of many is not to be painted over.
  for (const { from, to, bits } of [...runs].sort((a, b) => b.to - b.from - (a.to - a.from))) {
    x.clearRect(from, top, to - from, height);
    ink.paint(x, bits, from, to, top, height);
  }
}
