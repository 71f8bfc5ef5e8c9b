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

/** Css pixels: the height of a box that scrolls (rows.css has it too), and what is painted out of sight. */
const HIGHEST = 640;
const OVERSCAN = 320;

export interface Plot {
  region: HTMLElement;
  scroll: HTMLElement;
  cells: HTMLElement;
  canvas: HTMLCanvasElement;
  empty: HTMLElement;
  lanes: Lanes;
  readonly layout: Layout;
  /** Take other rows, or another order of them. What is asked of the page's layout is asked later, by `resize`. */
  layOut(layout: Layout): void;
  /** Name the rows that are in view now. */
  takeRows(): void;
  /** Give the rows that are in view their canvas; `width` in device pixels. */
  resize(width: number, dpr: number): void;
  /** Columns from this one on are new or changed. */
  forget(columns: Columns, column: number): void;
  /** Paint everything next time. */
  forgetAll(): void;
  /** Paint what is new, or everything where other iterations or colours are shown. Returns the first device pixel touched. */
  paint(columns: Columns, picture: Omit<Picture, "bands" | "lanes">): number;
  /** Of a row by its place in the layout. */
  chipsOf(row: number): readonly Chip[];
}

/** `onScroll`: other rows than those that are painted have come into view. */
export function plotOf(labels: Labels, title: string, onScroll: () => void, signal: AbortSignal): Plot {
  const canvas = element("canvas", "gv-heat", { role: "img" });
  const empty = element("span", "");
  const cells = element("div", "gv-plot", {}, canvas, element("div", "gv-empty", {}, empty));
  const help = "arrow keys move, with Shift they select, Enter holds a cell, Space folds and opens modules, plus and minus zoom, Escape leaves";
  const attributes = { tabindex: "0", role: "application", "aria-roledescription": "heatmap", "aria-label": `${title}: ${help}` };
  const region = element("div", "gv-region", attributes, labels.element, cells);
  const scroll = element("div", "gv-scroll", {}, region);
  const painter = new HeatPainter(canvas);
  const lanes = new Lanes();
  let layout: Layout = { rows: [], headers: [], height: 0 };
  let isLong = false;
  /** How far it is scrolled, kept: to ask an element lays out the page. */
  let scrolled = 0;
  /** The rows that are painted, and the place of the first of them. */
  let shown: Row[] = [];
  let first = 0;
  let bands: Band[] = [];
  /** The first column that is not painted yet. */
  let next = 0;
  /** What the last painting of everything was made for. */
  let painted: { columns: Columns; key: string } | null = null;

  listen(scroll, "scroll", () => look() || onScroll(), { signal, passive: true });

  /** The heights between which rows are in view. */
  function view(): [number, number] {
    const top = isLong ? Math.min(scrolled, layout.height - HIGHEST) : 0;
    return [top, isLong ? top + HIGHEST : layout.height];
  }

  /** See how far it is scrolled; returns whether the rows that are in view are those that were taken. */
  function look(): boolean {
    const { scrollTop, clientHeight, scrollHeight } = scroll;
    scrolled = scrollTop;
    // Rows out of sight above or below fade: some browsers hide the scroll bar.
    scroll.classList.toggle("gv-above", isLong && scrollTop > 4);
    scroll.classList.toggle("gv-below", isLong && scrollTop + clientHeight < scrollHeight - 4);
    const [top, bottom] = view();
    return firstBelow(layout.rows, top) >= first && firstBelow(layout.rows, bottom) <= first + shown.length;
  }

  const plot: Plot = {
    region,
    scroll,
    cells,
    canvas,
    empty,
    lanes,

    get layout() {
      return layout;
    },

    layOut(wanted) {
      layout = wanted;
      isLong = layout.rows.length > MANY_ROWS;
      scroll.classList.toggle("gv-scrolls", isLong);
      region.style.height = `${Math.max(layout.height, 2 * PITCH)}px`;
      plot.takeRows();
    },

    takeRows() {
      const { rows, headers } = layout;
      const [top, bottom] = view();
      const isNear = (y: number, height: number): boolean => y + height > top - OVERSCAN && y < bottom + OVERSCAN;
      first = firstBelow(rows, top - OVERSCAN);
      shown = rows.slice(first, firstBelow(rows, bottom + OVERSCAN) + 1);
      labels.update(shown, headers.filter((header) => isNear(header.top, header.height)));
      plot.forgetAll();
    },

    resize(width, dpr) {
      // A box that scrolls no longer, or scrolls again, stands at its beginning.
      if (!look()) plot.takeRows();
      // On whole device pixels, wherever the rows begin.
      const device = (y: number): number => Math.round(y * dpr);
      const origin = device(shown[0]?.top ?? 0);
      const gap = Math.max(1, Math.round(dpr));
      bands = shown.map((row) => ({ top: device(row.top) - origin, height: device(row.top + PITCH) - gap - device(row.top) }));
      canvas.style.top = `${origin / dpr}px`;
      resize(canvas, width, Math.max(1, device((shown.at(-1)?.top ?? 0) + PITCH) - origin), dpr);
    },

    forget(columns, column) {
      if (columns === painted?.columns) next = Math.min(next, column);
      lanes.forget(columns, column);
    },

    forgetAll() {
      painted = null;
    },

    paint(columns, picture) {
      const { pixels, domain } = picture;
      const { extent, width } = pixels;
      const key = [extent.start, extent.span, domain?.lo, domain?.hi].join();
      const isSame = columns === painted?.columns && key === painted.key;
      const dirty = isSame ? firstDirtyPixel(columns, next, extent, width) : 0;
      painted = { columns, key };
      next = columns.count;
      return painter.paint({ ...picture, bands, lanes: shown.map((row) => lanes.lane(columns, row.members)) }, dirty);
    },

    chipsOf: (row) => painter.chips[row - first] ?? [],
  };
  return plot;
}
