// The loss scale over time, and at its foot the steps that were skipped.
import type { DtypeFeed } from "./feed";
import { element, setText } from "../kit/element";
import { wholeOf } from "../kit/extent";
import * as format from "../kit/format";
import { resize } from "../kit/surface";
import type { Theme } from "../kit/theme";
import { iterationTicks } from "../kit/ticks";
import { Flag } from "../data/wire";

/** Css pixels. */
const HEIGHT = 44;
const FOOT = 7;
const LINE = 1.5;

/** Scales are powers of two, as a rule: every digit counts. */
export const scaleText = (scale: number): string => (Number.isInteger(scale) && scale < 1e9 ? format.count(scale) : format.glance(scale));

interface Range {
  low: number;
  high: number;
}

/** The smallest and the largest scale; null where there is none. */
export function rangeOf({ count, max, min }: DtypeFeed["overview"]): Range | null {
  let [low, high] = [Infinity, -Infinity];
  for (let i = 0; i < count; i++) {
    if (Number.isNaN(max[i]!)) continue;
    low = Math.min(low, min[i]!);
    high = Math.max(high, max[i]!);
  }
  return low <= high ? { low, high } : null;
}

export class ScaleLane {
  readonly #canvas = element("canvas", "gv-scale", { role: "img" });
  readonly #high = element("span", "");
  readonly #low = element("span", "");
  readonly #ticks = element("div", "gv-scale-ticks", { "aria-hidden": "true" });
  readonly #lane = element("div", "gv-scale-lane", {}, this.#canvas, this.#ticks);
  readonly #ends = element("div", "gv-scale-ends", { "aria-hidden": "true" }, this.#high, element("b", "", {}, "loss scale"), this.#low);
  readonly element = element("div", "gv-scale-box", {}, this.#ends, this.#lane);
  readonly #text = document.createElement("canvas").getContext("2d")!;

  update({ overview, run, end, scale }: DtypeFeed, skipped: number, theme: Theme, dpr: number): void {
    const range = rangeOf(overview);
    this.element.hidden = !range || (range.low === 1 && range.high === 1 && !skipped);
    if (this.element.hidden || !range) return;
    const { low, high } = range;
    setText(this.#high, scaleText(high));
    setText(this.#low, low === high ? "" : scaleText(low));
    const said = `now ${scaleText(scale ?? NaN)}, between ${scaleText(low)} and ${scaleText(high)}; ${format.many(skipped, "step")} skipped`;
    this.#canvas.setAttribute("aria-label", `loss scale: ${said}`);
    const width = this.#lane.clientWidth;
    const extent = wholeOf(end, run.iterations);
    this.#paint(overview, range, extent.span, width, theme, dpr);
    this.#text.font = `11px ${getComputedStyle(this.element).fontFamily}`;
    const ticks = iterationTicks(extent, width, (text) => this.#text.measureText(text).width);
    this.#ticks.replaceChildren(...ticks.map(({ label, left }) => {
      const tick = element("span", "", {}, label);
      tick.style.left = `${left}px`;
      return tick;
    }));
  }

  #paint({ count, start, stop, max, min, flags }: DtypeFeed["overview"], { low, high }: Range, span: number, width: number, theme: Theme, dpr: number): void {
    const [w, h] = [Math.round(width * dpr), Math.round(HEIGHT * dpr)];
    const line = Math.max(1, Math.round(LINE * dpr));
    const foot = Math.round(FOOT * dpr);
    resize(this.#canvas, w, h, dpr);
    const x = this.#canvas.getContext("2d")!;
    x.clearRect(0, 0, w, h);
    x.fillStyle = theme.track;
    x.fillRect(0, 0, w, h - foot);
    const room = h - foot - line;
    const octaves = Math.log2(high / low) || 0;
    const y = (value: number): number => Math.round(octaves ? (room * Math.log2(high / value)) / octaves : room / 2);
    const at = (iteration: number): number => Math.round((iteration * w) / span);
    let before = NaN;
    for (let i = 0; i < count; i++) {
      const left = at(start[i]!);
      const right = Math.max(left + 1, at(i + 1 < count ? start[i + 1]! : stop[i]!));
      if (flags[i]! & Flag.not_optimized) {
        x.fillStyle = theme.bad;
        x.fillRect(left, h - foot + line, Math.max(right - left, line), foot - line);
      }
      if (Number.isNaN(max[i]!)) {
        before = NaN;
        continue;
      }
      const [top, bottom] = [y(max[i]!), y(min[i]!)];
      x.fillStyle = theme.accent;
      x.fillRect(left, top, right - left, bottom - top + line);
      if (!Number.isNaN(before) && (before < top || before > bottom)) x.fillRect(left, Math.min(before, top), line, Math.abs(before - (before < top ? top : bottom)) + line);
      before = bottom;
    }
  }
}
