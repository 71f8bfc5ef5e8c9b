// Where the axis has ticks and labels, so that labels never collide.
import type { Extent } from "./extent";
import { count } from "./format";

export interface Tick {
  /** Css pixels from the left edge. */
  x: number;
  /** Empty: a tick without a label. */
  label: string;
  /** Left edge of the label's text. */
  left: number;
}

/** Css pixels kept free between two labels, and between two ticks. */
const AIR = 10;
const TICK_AIR = 5;

type Measure = (text: string) => number;

export function iterationTicks({ start, span }: Extent, width: number, measure: Measure): Tick[] {
  const placed: Tick[] = [];
  // A label every 80 pixels or so, as many as numbers of this size leave room for.
  const wanted = Math.max(2, Math.floor(width / Math.max(80, measure(count(start + span)) + 3 * AIR)));
  let free = -Infinity;
  for (const value of roundNumbers(start, start + span, wanted)) {
    const label = count(value);
    const x = ((value - start) / span) * width;
    const size = measure(label);
    const left = Math.max(0, Math.min(width - size, x - size / 2));
    if (left < free) continue;
    placed.push({ x, label, left });
    free = left + size + AIR;
  }
  return placed;
}

/** Whole multiples of 1, 2 or 5 times a power of ten, about as many as wanted. */
function* roundNumbers(start: number, stop: number, wanted: number): Generator<number> {
  const power = 10 ** Math.floor(Math.log10((stop - start) / wanted));
  const error = (stop - start) / wanted / power;
  const factor = error >= Math.sqrt(50) ? 10 : error >= Math.sqrt(10) ? 5 : error >= Math.SQRT2 ? 2 : 1;
  const step = Math.max(1, Math.round(factor * power));
  for (let value = step * Math.ceil(start / step); value <= stop; value += step) yield value;
}

/** Steps of 1, 2, 5, 10, 20 ... until the labels have room. */
function* steps(): Generator<number> {
  for (let ten = 1; ; ten *= 10) yield* [ten, 2 * ten, 5 * ten];
}

/** Epoch starts: a tick each while there is room, and labels 0 1 2, or 0 2 4, or 0 5 10, or 0 10 20 ... */
export function epochTicks(starts: ArrayLike<number>, firstEpoch: number, extent: Extent, width: number, measure: Measure): Tick[] {
  const epochs = epochsIn(starts, extent);
  for (const step of steps()) {
    const placed = tryStep(step);
    if (placed) return placed;
  }
  return [];

  function tryStep(step: number): Tick[] | null {
    const placed: Tick[] = [];
    let labels = 0;
    let free = -Infinity;
    let lastTick = -Infinity;
    for (const i of epochs) {
      const number = firstEpoch + i; // from 0, as in the history's frames
      const isFirst = i === epochs[0];
      // The epoch that the left edge lies in has its name there, and its tick out of sight.
      const x = Math.max(-1, ((starts[i]! - extent.start) / extent.span) * width);
      const left = x + 4;
      const text = isFirst ? `epoch ${count(number)}` : count(number);
      const right = left + measure(text);
      let labelled = isFirst || number % step === 0;
      if (labelled && left < free) {
        // Larger steps make room. Only what is right beside the wide "epoch 0" simply goes without.
        if (labels > 1 || step <= 2) return null;
        labelled = false;
      }
      labelled &&= right <= width;
      if (!labelled && (x - lastTick < TICK_AIR || x < free - AIR + TICK_AIR)) continue;
      placed.push({ x, label: labelled ? text : "", left });
      lastTick = x;
      if (!labelled) continue;
      labels += 1;
      free = right + AIR;
    }
    return placed;
  }
}

/** The places of the epochs that have iterations in view. */
function epochsIn(starts: ArrayLike<number>, { start, span }: Extent): number[] {
  const places = Array.from({ length: starts.length }, (_, i) => i);
  return places.filter((i) => starts[i]! < start + span && (starts[i]! >= start || !(starts[i + 1]! <= start)));
}
