// A gradient's distribution over the octaves, in the colours of what a narrower dtype would make of each.
import { resize } from "../kit/surface";
import { readTheme } from "../kit/theme";
import type { Theme } from "../kit/theme";
import type { Entries } from "./wire";
import { BARS, FIRST } from "./wire";

/** Css pixels. */
export const BAR = 2;
export const WIDTH = BARS * BAR;
export const HEIGHT = 20;

/** Octaves of each narrow dtype: from which on entries are not lost, are normal numbers, and are too large. */
const LIMITS: readonly [number, number, number][] = [
  [-25, -14, 16],
  [-134, -126, 128],
  [-10, -6, 9],
  [-17, -14, 16],
];

/** What bars are painted with. */
export interface Inks extends Theme {
  warn: string;
}

export function readInks(probe: HTMLElement): Inks {
  const theme = readTheme(probe);
  probe.style.color = "var(--gv-warn)";
  return { ...theme, warn: getComputedStyle(probe).color };
}

export interface Limits {
  kept: number;
  normal: number;
  tooLarge: number;
}

export function limitsOf(dtype: number): Limits {
  const [kept, normal, tooLarge] = LIMITS[dtype]!;
  return { kept, normal, tooLarge };
}

/** The octave of a bar; the first one holds all below the grid, the last one all above. */
export const octaveOf = (bar: number): number => FIRST + bar - 1;

export function paintBars(canvas: HTMLCanvasElement, { heights }: Entries, dtype: number, theme: Inks, dpr: number): void {
  const bar = Math.max(1, Math.round(BAR * dpr));
  const height = Math.round(HEIGHT * dpr);
  const line = Math.max(1, Math.round(dpr));
  resize(canvas, BARS * bar, height, dpr);
  const x = canvas.getContext("2d")!;
  x.clearRect(0, 0, canvas.width, height);
  x.fillStyle = theme.line;
  x.fillRect(0, height - line, canvas.width, line);
  const { kept, normal, tooLarge } = limitsOf(dtype);
  // Where the dtype's numbers end, so that it does not take an eye for colours.
  x.fillStyle = theme.mark;
  for (const edge of [kept, normal, tooLarge]) {
    const place = edge - FIRST + 1;
    if (place > 0 && place < BARS) x.fillRect(place * bar, height - Math.round(4 * dpr), line, Math.round(4 * dpr));
  }
  const room = height - line;
  heights.forEach((size, place) => {
    if (!size) return;
    const octave = octaveOf(place);
    x.fillStyle = octave < kept || octave >= tooLarge ? theme.bad : octave < normal ? theme.warn : theme.accent;
    const tall = Math.max(line, Math.round((size / 255) * room));
    x.fillRect(place * bar, room - tall, Math.max(1, bar - (bar > 2 ? line : 0)), tall);
  });
}

/** What a screen reader says of it. */
export function describeBars({ heights }: Entries): string {
  const filled = [...heights.keys()].filter((place) => heights[place]);
  if (!filled.length) return "no entry but zeros, or what is not finite";
  const total = heights.reduce((sum, height) => sum + height, 0);
  let seen = 0;
  const middle = [...heights.keys()].find((place) => (seen += heights[place]!) >= total / 2)!;
  const [first, last] = [filled[0]!, filled.at(-1)!];
  return `magnitudes from ${edge(first)} to ${edge(last + 1)}, half of them below about ${edge(middle + 1)}`;
}

const edge = (bar: number): string => (bar <= 0 ? "zero" : bar >= BARS ? "infinity" : `2 to the ${octaveOf(bar)}`);
