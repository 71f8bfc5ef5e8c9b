// The loss above the rows: its lane, and the numbers beside it.
import { element, setText } from "../kit/element";
import * as format from "../kit/format";
import type { Lane } from "../data/lanes";
import { LossPainter } from "./loss";
import type { LossRange } from "./loss";
import type { Marks } from "./marks";
import type { Pixels } from "../data/pixels";
import { resize } from "../kit/surface";
import type { Theme } from "../kit/theme";

/** Css pixels. */
const HEIGHT = 54;

export interface LossLane {
  label: HTMLElement;
  lane: HTMLElement;
  readonly chips: LossPainter["chips"];
  /** A run without a loss has no lane for it, and two runs have two losses. */
  show(isThere: boolean): void;
  resize(width: number, dpr: number): void;
  paint(lane: Lane, newest: number | null, pixels: Pixels, theme: Theme, marks: Marks, dpr: number): void;
}

export function lossRow(): LossLane {
  const canvas = element("canvas", "gv-loss", { role: "img" });
  const value = element("b", "");
  const [max, min] = [element("span", "gv-loss-end"), element("span", "gv-loss-end")];
  const painter = new LossPainter(canvas);
  const label = element("div", "gv-loss-label", {}, max, element("span", "", {}, "loss ", value), min);
  const lane = element("div", "gv-loss-lane", {}, canvas);
  lane.style.height = `${HEIGHT}px`;

  function sayRange(range: LossRange | null, now: string): void {
    const flat = !range || range.max === range.min;
    setText(max, flat ? "" : format.glance(range.max));
    setText(min, flat ? "" : `${range.log ? "(log) " : ""}${format.glance(range.min)}`);
    const words = range ? `loss: now ${now}, between ${format.glance(range.min)} and ${format.glance(range.max)}` : "loss: none recorded yet";
    canvas.setAttribute("aria-label", words);
  }

  return {
    label,
    lane,

    get chips() {
      return painter.chips;
    },

    show(isThere) {
      label.hidden = lane.hidden = !isThere;
    },

    resize(width, dpr) {
      resize(canvas, width, Math.round(HEIGHT * dpr), dpr);
    },

    paint(losses, newest, pixels, theme, marks, dpr) {
      const text = newest === null ? "–" : format.glance(newest);
      setText(value, text);
      value.classList.toggle("gv-bad", newest !== null && !Number.isFinite(newest));
      sayRange(painter.paint(losses, pixels, theme, marks, dpr), text);
    },
  };
}
