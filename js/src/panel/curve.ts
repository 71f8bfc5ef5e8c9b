// One curve: a metric's name and newest number, and its values over time with a band where they are merged.
import { element, setLine, setText } from "../kit/element";
import { firstPlace } from "../kit/bisect";
import type { Extent } from "../kit/extent";
import * as format from "../kit/format";
import { listen } from "../kit/listen";
import { resize } from "../kit/surface";
import type { Theme } from "../kit/theme";
import type { Description } from "../kit/tooltip";
import type { Cell, Lane } from "../data/lanes";
import { mergeCell } from "../data/lanes";
import type { Pixels } from "../data/pixels";
import { placeColumns } from "../data/pixels";
import type { Columns } from "../data/wire";
import { Flag } from "../data/wire";
import { LossPainter } from "../heatmap/loss";
import type { Marks } from "../heatmap/marks";

/** Css pixels. */
const HEIGHT = 40;

/** What a curve shows. */
export interface Series {
  name: string;
  /** The newest of its own values; null where there is none. */
  newest: number | null;
  /** Further words about it: what the epoch has come to so far. */
  beside: string;
  columns: Columns;
  /** Its row in the columns. */
  row: number;
  extent: Extent;
  /** What one step of its time is. */
  of: "iteration" | "epoch";
}

/** What is pointed at: a place in the time of a curve, and where that is on the page. */
export interface Pointed {
  series: Series;
  step: number;
  description: Description;
  x: number;
  y: number;
}

export interface Brushes {
  theme: Theme;
  marks: Marks;
  dpr: number;
}

export class Curve {
  readonly #name = element("span", "gv-curve-name");
  readonly #value = element("b", "");
  readonly #beside = element("span", "gv-curve-beside");
  readonly #canvas = element("canvas", "", { role: "img" });
  readonly #line = element("i", "gv-curve-cursor");
  readonly #lane = element("div", "gv-curve-lane", {}, this.#canvas, this.#line);
  readonly element = element("div", "gv-curve", {}, element("div", "gv-curve-head", {}, this.#name, " ", this.#value, this.#beside), this.#lane);
  readonly #painter = new LossPainter(this.#canvas);
  #series: Series | null = null;
  #pixels: Pixels | null = null;

  /** `point`: the pointer is at a place, or has left. */
  constructor(point: (at: Pointed | null) => void) {
    listen(this.#lane, "pointermove", (event) => point(this.#at(event)));
    listen(this.#lane, "pointerleave", () => point(null));
  }

  update(series: Series, { theme, marks, dpr }: Brushes): void {
    this.#series = series;
    const { name, newest, beside, columns, row, extent } = series;
    const width = Math.max(1, Math.floor(this.#lane.clientWidth * dpr));
    resize(this.#canvas, width, Math.round(HEIGHT * dpr), dpr);
    this.#pixels = placeColumns(columns, extent, width);
    const range = this.#painter.paint(laneOf(columns, row), this.#pixels, theme, marks, dpr);
    const now = newest === null ? "–" : format.glance(newest);
    setText(this.#name, name);
    this.element.title = name;
    setText(this.#value, now);
    this.#value.classList.toggle("gv-bad", newest !== null && !Number.isFinite(newest));
    setLine(this.#beside, beside);
    const between = range ? `, between ${format.glance(range.min)} and ${format.glance(range.max)}${range.log ? ", on a logarithmic axis" : ""}` : "";
    this.#canvas.setAttribute("aria-label", `${name} by ${series.of}: now ${now}${between}`);
  }

  /** Draw a line at an iteration. */
  showCursor(iteration: number | null): void {
    const at = this.#series;
    const share = at && iteration !== null && at.of === "iteration" ? (iteration + 0.5 - at.extent.start) / at.extent.span : -1;
    this.#line.hidden = share < 0 || share > 1;
    this.#line.style.left = `${100 * share}%`;
  }

  #at(event: PointerEvent): Pointed | null {
    const [series, pixels] = [this.#series, this.#pixels];
    if (!series || !pixels) return null;
    const box = this.#lane.getBoundingClientRect();
    const pixel = Math.floor(((event.clientX - box.left) / box.width) * pixels.width);
    const { columns, extent, row } = series;
    const step = Math.floor(extent.start + ((event.clientX - box.left) / box.width) * extent.span);
    const column = Math.min(columns.count, firstPlace(columns.count, (c) => columns.start[c]! > step)) - 1;
    if (column < 0 || pixel < 0 || pixel >= pixels.end) return null;
    const [first, last] = [pixels.first[pixel]!, pixels.last[pixel]!];
    const [from, to] = first <= last ? [first, last] : [column, column];
    const description = describe(series, mergeCell(laneOf(columns, row), from, to), columns.start[from]!, columns.stop[to]!);
    return { series, step: Math.max(columns.start[from]!, Math.min(step, columns.stop[to]! - 1)), description, x: event.clientX, y: event.clientY };
  }
}

const FLAGS: readonly [number, string][] = [
  [Flag.nan, "NaN"],
  [Flag.posinf, "+inf"],
  [Flag.neginf, "−inf"],
  [Flag.not_recorded, "not recorded"],
];

const laneOf = ({ max, min, flags, rows }: Columns, row: number): Lane => ({ max, min, flags, offset: row, stride: rows });

function describe({ name, of }: Series, cell: Cell, start: number, stop: number): Description {
  const isOne = cell.min === cell.max;
  const value = !Number.isFinite(cell.max) ? "" : isOne ? format.precise(cell.max) : `max ${format.precise(cell.max)}, min ${format.precise(cell.min)}`;
  const when = of === "iteration" ? format.iterations(start, stop) : stop - start > 1 ? `epochs ${format.count(start)}–${format.count(stop - 1)}` : `epoch ${format.count(start)}`;
  const flags = FLAGS.filter(([flag]) => cell.flags & flag).map(([, word]) => (value ? `${word} (in part)` : word));
  return { title: name, kind: "", when, value, flags };
}
