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

export class LossLane {
  readonly #canvas = element("canvas", "gv-loss", { role: "img" });
  readonly #value = element("b", "");
  readonly #max = element("span", "gv-loss-end");
  readonly #min = element("span", "gv-loss-end");
  readonly #painter = new LossPainter(this.#canvas);
  readonly label = element("div", "gv-loss-label", {}, this.#max, element("span", "", {}, "loss ", this.#value), this.#min);
  readonly lane = element("div", "gv-loss-lane", {}, this.#canvas);

  constructor() {
    this.lane.style.height = `${HEIGHT}px`;
  }

  /** A run without a loss has no lane for it, and two runs have two losses. */
  show(isThere: boolean): void {
    this.label.hidden = this.lane.hidden = !isThere;
  }

  get chips(): LossPainter["chips"] {
    return this.#painter.chips;
  }

  resize(width: number, dpr: number): void {
    resize(this.#canvas, width, Math.round(HEIGHT * dpr), dpr);
  }

  paint(lane: Lane, newest: number | null, pixels: Pixels, theme: Theme, marks: Marks, dpr: number): void {
    const range = this.#painter.paint(lane, pixels, theme, marks, dpr);
    const text = newest === null ? "–" : format.glance(newest);
    setText(this.#value, text);
    this.#value.classList.toggle("gv-bad", newest !== null && !Number.isFinite(newest));
    this.#sayRange(range, text);
  }

  #sayRange(range: LossRange | null, now: string): void {
    const flat = !range || range.max === range.min;
    setText(this.#max, flat ? "" : format.glance(range.max));
    setText(this.#min, flat ? "" : `${range.log ? "(log) " : ""}${format.glance(range.min)}`);
    this.#canvas.setAttribute(
      "aria-label",
      range ? `loss: now ${now}, between ${format.glance(range.min)} and ${format.glance(range.max)}` : "loss: none recorded yet",
    );
  }
}
