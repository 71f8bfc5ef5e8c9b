// The rows: names at the left, cells at the right, in a box that scrolls where there are many.
//
// Only the rows in view, and those that a little scrolling brings there, are painted and have labels.
import { element } from "../kit/element";
import { HeatPainter } from "./heat";
import type { Band, Picture } from "./heat";
import type { Chip } from "./chips";
import { Lanes } from "../data/lanes";
import { firstDirtyPixel } from "../data/pixels";
import type { Labels } from "../rows/labels";
import { MANY_ROWS } from "../rows/modules";
import type { Layout, Row } from "../rows/rows";
import { firstBelow, PITCH } from "../rows/rows";
import { resize } from "../kit/surface";
import type { Columns } from "../data/wire";
import { listen } from "../kit/listen";

/** Css pixels that are painted out of sight. */
const OVERSCAN = 320;

export class Plot {
  readonly canvas = element("canvas", "gv-heat", { role: "img" });
  readonly empty = element("span", "");
  readonly cells = element("div", "gv-plot", {}, this.canvas, element("div", "gv-empty", {}, this.empty));
  readonly region: HTMLElement;
  readonly scroll: HTMLElement;
  layout: Layout = { rows: [], headers: [], height: 0 };
  readonly #painter = new HeatPainter(this.canvas);
  readonly lanes = new Lanes();
  /** The first column that is not painted yet. */
  #from = 0;
  /** What the last painting of everything was made for. */
  #painted: { columns: Columns; key: string } | null = null;
  #first = 0;
  /** The rows that are painted, from `first` on. */
  #shown: Row[] = [];
  #bands: Band[] = [];

  /** `onScroll`: other rows than those that are painted have come into view. */
  constructor(
    private readonly labels: Labels,
    title: string,
    onScroll: () => void,
    signal: AbortSignal,
  ) {
    const help = "arrow keys move, with Shift they select, Enter holds a cell, Space folds and opens modules, plus and minus zoom, Escape leaves";
    const attributes = { tabindex: "0", role: "application", "aria-roledescription": "heatmap", "aria-label": `${title}: ${help}` };
    this.region = element("div", "gv-region", attributes, labels.element, this.cells);
    this.scroll = element("div", "gv-scroll", {}, this.region);
    const scrolled = (): void => {
      this.#hintAtMore();
      if (!this.#isPainted) onScroll();
    };
    listen(this.scroll, "scroll", scrolled, { signal, passive: true });
  }

  layOut(layout: Layout): void {
    this.layout = layout;
    this.scroll.classList.toggle("gv-scrolls", layout.rows.length > MANY_ROWS);
    this.region.style.height = `${Math.max(layout.height, 2 * PITCH)}px`;
    this.#hintAtMore();
  }

  /** Take the rows that are in view now; `width` in device pixels. */
  takeRows(width: number, dpr: number): void {
    const { rows, headers } = this.layout;
    const [top, bottom] = [this.#top - OVERSCAN, this.#bottom + OVERSCAN];
    this.#first = firstBelow(rows, top);
    this.#shown = rows.slice(this.#first, firstBelow(rows, bottom) + 1);
    this.labels.update(this.#shown, headers.filter((header) => header.top + header.height > top && header.top < bottom));
    // On whole device pixels, wherever the rows begin.
    const device = (y: number): number => Math.round(y * dpr);
    const origin = device(this.#shown[0]?.top ?? 0);
    const gap = Math.max(1, Math.round(dpr));
    this.#bands = this.#shown.map((row) => ({ top: device(row.top) - origin, height: device(row.top + PITCH) - gap - device(row.top) }));
    this.forgetAll();
    this.canvas.style.top = `${origin / dpr}px`;
    resize(this.canvas, width, Math.max(1, device((this.#shown.at(-1)?.top ?? 0) + PITCH) - origin), dpr);
  }

  /** Columns from this one on are new or changed. */
  forget(columns: Columns, column: number): void {
    if (columns === this.#painted?.columns) this.#from = Math.min(this.#from, column);
    this.lanes.forget(columns, column);
  }

  /** Paint everything next time. */
  forgetAll(): void {
    this.#painted = null;
  }

  /** Paint what is new, or everything where other iterations or colours are shown. Returns the first device pixel touched. */
  paint(columns: Columns, picture: Omit<Picture, "bands" | "lanes">): number {
    const { pixels, domain } = picture;
    const { extent, width } = pixels;
    const key = [extent.start, extent.span, domain?.lo, domain?.hi].join();
    const isSame = columns === this.#painted?.columns && key === this.#painted.key;
    const lanes = this.#shown.map((row) => this.lanes.lane(columns, row.members));
    const dirty = isSame ? firstDirtyPixel(columns, this.#from, extent, width) : 0;
    this.#painted = { columns, key };
    this.#from = columns.count;
    return this.#painter.paint({ ...picture, lanes, bands: this.#bands }, dirty);
  }

  /** Of a row by its place in the layout. */
  chipsOf(row: number): readonly Chip[] {
    return this.#painter.chips[row - this.#first] ?? [];
  }

  get #scrolls(): boolean {
    return this.scroll.classList.contains("gv-scrolls");
  }

  get #top(): number {
    return this.#scrolls ? this.scroll.scrollTop : 0;
  }

  get #bottom(): number {
    return this.#scrolls ? this.scroll.scrollTop + this.scroll.clientHeight : this.layout.height;
  }

  get #isPainted(): boolean {
    const { rows } = this.layout;
    return firstBelow(rows, this.#top) >= this.#first && firstBelow(rows, this.#bottom) <= this.#first + this.#shown.length;
  }

  /** Rows out of sight above or below fade: some browsers hide the scroll bar. */
  #hintAtMore(): void {
    const { scroll } = this;
    const scrolls = this.#scrolls;
    scroll.classList.toggle("gv-above", scrolls && scroll.scrollTop > 4);
    scroll.classList.toggle("gv-below", scrolls && scroll.scrollTop + scroll.clientHeight < scroll.scrollHeight - 4);
  }
}
