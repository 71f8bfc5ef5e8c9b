// How the entries are distributed: bars by size, positive ones upwards and negative ones downwards, and beside them what
// has no size on the grid, each under the mark that it has everywhere.
import { Marks } from "../heatmap/marks";
import { Look } from "../data/looks";
import { boxOf, element, setText } from "../kit/element";
import * as format from "../kit/format";
import { listen } from "../kit/listen";
import { resize } from "../kit/surface";
import type { Theme } from "../kit/theme";
import { tooltip } from "../kit/tooltip";
import type { Bars, Special } from "./bins";
import { barsOf } from "./bins";

/** Css pixels. */
const HEIGHT = 96;
const SPECIAL = 26;
const GAP = 6;
/** A bar is at least so wide; and what is there is seen, however few they are. */
const NARROWEST = 6;
const LOWEST = 2;

/** In the order in which they stand, at the left and at the right of the bars. */
const LEFT: readonly Special[] = ["zero", "below"];
const RIGHT: readonly Special[] = ["above", "neginf", "posinf", "nan"];
const WORDS: Record<Special, readonly [string, string]> = {
  zero: ["0", "zeros"],
  below: ["tiny", "smaller than 2⁻⁴⁸"],
  above: ["huge", "2¹⁶ or larger"],
  neginf: ["−inf", "−inf"],
  posinf: ["+inf", "+inf"],
  nan: ["NaN", "NaN"],
};
const LOOKS: Partial<Record<Special, Look>> = { nan: Look.nan, posinf: Look.posinf, neginf: Look.neginf };

interface Slot {
  left: number;
  right: number;
  words: string;
}

const DIGITS = "⁰¹²³⁴⁵⁶⁷⁸⁹";
const superscript = (exponent: number): string => (exponent < 0 ? "⁻" : "") + [...String(Math.abs(exponent))].map((d) => (d === "." ? "·" : DIGITS[Number(d)])).join("");
const power = (exponent: number): string => `2${superscript(exponent)}`;

export class Histogram {
  readonly #canvas = element("canvas", "gv-bins", { role: "img" });
  readonly #labels = element("div", "gv-bins-labels", { "aria-hidden": "true" });
  readonly #tooltip = tooltip();
  readonly element = element("div", "gv-histogram", {}, this.#canvas, this.#labels, this.#tooltip.element);
  #slots: Slot[] = [];
  /** What the picture was made of. */
  #made: unknown[] = [];

  constructor(signal: AbortSignal) {
    const point = ({ clientX, clientY }: PointerEvent): void => {
      const box = boxOf(this.element);
      const slot = this.#slots.find(({ left, right }) => clientX - box.left >= left && clientX - box.left < right);
      if (!slot) return this.#tooltip.hide();
      this.#tooltip.show({ title: "", kind: "", when: "", value: slot.words, flags: [] }, clientX - box.left, clientY - box.top, this.element);
    };
    listen(this.#canvas, "pointermove", point, { signal });
    listen(this.#canvas, "pointerleave", () => this.#tooltip.hide(), { signal });
  }

  paint(bins: Float64Array, room: number, theme: Theme, marks: Marks, dpr: number): void {
    const made = [bins, room, theme, marks, dpr];
    if (made.every((each, i) => each === this.#made[i])) return;
    this.#made = made;
    resize(this.#canvas, Math.floor(room * dpr), Math.round(HEIGHT * dpr), dpr);
    const all = barsOf(bins, Math.max(8, Math.floor((room - 3 * (SPECIAL + GAP)) / NARROWEST)));
    this.#slots = [];
    this.#labels.replaceChildren();
    const x = this.#canvas.getContext("2d")!;
    x.clearRect(0, 0, this.#canvas.width, this.#canvas.height);
    x.save();
    x.scale(dpr, dpr);
    this.#draw(x, all, room, theme, marks);
    x.restore();
    this.#canvas.setAttribute("aria-label", said(all));
  }

  #draw(x: CanvasRenderingContext2D, all: Bars, room: number, theme: Theme, marks: Marks): void {
    const { bars, special, tallest, total } = all;
    const isThere = (kind: Special): boolean => special[kind] > 0;
    const [lefts, rights] = [LEFT.filter(isThere), RIGHT.filter(isThere)];
    // As much room below as the negative ones need on the same scale.
    const lowest = Math.max(0, ...bars.map((bar) => bar.negative));
    const foot = Math.round(((HEIGHT - 2 * LOWEST) * tallest) / (tallest + lowest) + LOWEST);
    const size = (count: number): number => (count ? Math.max(LOWEST, (count / tallest) * (foot - LOWEST)) : 0);
    const share = (count: number): string => `${format.many(count, "entry").replace("entrys", "entries")}, ${format.glance((100 * count) / total)} %`;

    const put = (kind: Special, left: number): void => {
      const height = size(special[kind]);
      const look = LOOKS[kind];
      x.fillStyle = look === undefined ? theme.mark : theme.bad;
      x.fillRect(left, foot - height, SPECIAL, height);
      if (look !== undefined) {
        x.save();
        x.scale(1 / marks.dpr, 1 / marks.dpr);
        const [from, to] = [Math.round(left * marks.dpr), Math.round((left + SPECIAL) * marks.dpr)];
        marks.chip(x, { look, from, to, left: from, right: to, glyph: true }, Math.round((foot - Math.max(height, 14)) * marks.dpr), Math.round(14 * marks.dpr));
        x.restore();
      }
      this.#label(WORDS[kind][0], left + SPECIAL / 2, room);
      this.#slots.push({ left: left - GAP / 2, right: left + SPECIAL + GAP / 2, words: `${WORDS[kind][1]}: ${share(special[kind])}` });
    };
    lefts.forEach((kind, i) => put(kind, i * (SPECIAL + GAP)));
    rights.forEach((kind, i) => put(kind, room - (rights.length - i) * (SPECIAL + GAP) + GAP));

    const from = lefts.length * (SPECIAL + GAP) + (lefts.length ? GAP : 0);
    const to = room - rights.length * (SPECIAL + GAP) - (rights.length ? GAP : 0);
    x.fillStyle = theme.line;
    x.fillRect(from, foot, to - from, 1);
    if (!bars.length) return;
    const wide = Math.min(22, (to - from) / bars.length);
    const begin = from + (to - from - wide * bars.length) / 2;
    bars.forEach((bar, i) => {
      const left = begin + i * wide;
      x.fillStyle = theme.accent;
      x.fillRect(left, foot - size(bar.positive), wide - 1, size(bar.positive));
      x.globalAlpha = 0.55;
      x.fillRect(left, foot + 1, wide - 1, size(bar.negative));
      x.globalAlpha = 1;
      const words = `size ${power(bar.low)} to ${power(bar.high)}: ${share(bar.positive + bar.negative)} (${format.count(bar.positive)} positive, ${format.count(bar.negative)} negative)`;
      this.#slots.push({ left, right: left + wide, words });
    });
    const [first, last] = [bars[0]!.low, bars.at(-1)!.high];
    const at = (exponent: number): number => begin + ((exponent - first) / (last - first)) * wide * bars.length;
    const step = [1, 2, 4, 8, 16, 32].find((each) => (wide * bars.length * each) / (last - first) >= 38) ?? 64;
    for (let exponent = Math.ceil(first / step) * step; exponent <= last; exponent += step) this.#label(power(exponent), at(exponent), room);
  }

  #label(text: string, middle: number, room: number): void {
    const label = element("span", "");
    setText(label, text);
    label.style.left = `${Math.max(12, Math.min(room - 12, middle))}px`;
    this.#labels.append(label);
  }
}

function said({ bars, special, total }: Bars): string {
  const peak = bars.reduce((a, b) => (b.positive + b.negative > a.positive + a.negative ? b : a), bars[0]!);
  const most = peak ? [`most of them of size ${power(peak.low)} to ${power(peak.high)}`] : [];
  const others = [...LEFT, ...RIGHT].filter((kind) => special[kind]).map((kind) => `${format.count(special[kind])} ${WORDS[kind][1]}`);
  return [`${format.count(total)} entries`, ...most, ...others].join(", ");
}
