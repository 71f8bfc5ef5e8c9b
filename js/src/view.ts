// One view: the DOM of a displayed widget, and when to paint what.
import { Axis } from "./axis";
import { Crosshair } from "./crosshair";
import type { Places } from "./crosshair";
import { element, setText } from "./element";
import * as format from "./format";
import { Head } from "./head";
import type { Band } from "./heat";
import { HeatPainter } from "./heat";
import { Legend, noteText } from "./legend";
import { LossPainter } from "./loss";
import type { LossRange } from "./loss";
import { Marks } from "./marks";
import { firstDirtyPixel, mostIterations, placeColumns } from "./pixels";
import { extentOf, panned, wholeOf, zoomed } from "./extent";
import type { Extent, Zoom } from "./extent";
import { onDrag, zoomByWheel } from "./gestures";
import { unitsOf } from "./folds";
import { Labels } from "./labels";
import { Lanes, lossLane } from "./lanes";
import { MANY_ROWS, Modules } from "./modules";
import { Rangebar } from "./rangebar";
import type { Layout } from "./rows";
import { firstBelow, layOut, PITCH } from "./rows";
import type { Change, Store } from "./store";
import { summary } from "./summary";
import { isDark, readTheme, watchTheme } from "./theme";
import type { Theme } from "./theme";
import { Toolbar } from "./toolbar";

/** Css pixels. */
const LOSS_HEIGHT = 54;
const NARROW = 560;
/** Rows out of sight are painted this far, so that scrolling shows them at once. */
const OVERSCAN = 320;
/** Iterations of a tail: as many as have some pixels each. */
const TAIL_WIDTH = 4;

export class View {
  private readonly head = new Head();
  private readonly axis = new Axis();
  private readonly range: Rangebar;
  private readonly legend: Legend;
  private readonly toolbar: Toolbar;
  private readonly labels: Labels;
  private readonly heatCanvas = element("canvas", "gv-heat", { role: "img" });
  private readonly lossCanvas = element("canvas", "gv-loss", { role: "img" });
  private readonly empty = element("div", "gv-empty", {}, element("span", "", {}, "no iteration recorded yet"));
  private readonly lossValue = element("b", "");
  private readonly lossMax = element("span", "gv-loss-end");
  private readonly lossMin = element("span", "gv-loss-end");
  private readonly probe = element("span", "gv-probe", { "aria-hidden": "true" });
  private readonly places: Places;
  private readonly crosshair: Crosshair;
  private readonly heat = new HeatPainter(this.heatCanvas);
  private readonly loss = new LossPainter(this.lossCanvas);

  private readonly modules = new Modules();
  private readonly lanes = new Lanes();
  private zoom: Zoom = { kind: "whole" };
  /** As last painted. */
  extent: Extent = { start: 0, span: 1 };
  whole: Extent = this.extent;
  private layout: Layout = { rows: [], headers: [], height: 0 };
  /** The rows [first, last) that are painted: those in view and some more. */
  private painted = { first: 0, last: 0 };
  private bands: Band[] = [];
  private theme: Theme | null = null;
  private marks: Marks | null = null;
  private dpr = 0;
  private width = 0;
  private rootWidth = 0;
  private stale = { layout: true, theme: true, rows: true, all: true };
  /** The first column not painted yet. */
  private from = 0;
  /** What the last painting of everything was made for. */
  private paintedFor = "";
  private frame = 0;
  private visible = true;

  constructor(
    private readonly store: Store,
    host: HTMLElement,
    private readonly signal: AbortSignal,
  ) {
    this.legend = new Legend(store.quantity);
    this.toolbar = new Toolbar({
      deeper: (by) => this.fold(() => this.modules.deeper(by)),
      zoom: (factor) => this.zoomBy(factor),
      showAll: () => this.zoomTo({ kind: "whole" }),
      showTail: () => this.showTail(),
    });
    this.range = new Rangebar(this, signal);
    this.labels = new Labels((module, isOpen) => this.fold(() => (isOpen ? this.modules.fold(module) : this.modules.open(module))));
    const lossLane = element("div", "gv-loss-lane", {}, this.lossCanvas);
    const plot = element("div", "gv-plot", {}, this.heatCanvas, this.empty);
    const region = element(
      "div",
      "gv-region",
      {
        tabindex: "0",
        role: "application",
        "aria-roledescription": "heatmap",
        "aria-label": `${store.quantity.title}: arrow keys move over the cells, Space folds and opens modules, plus and minus zoom, Escape leaves`,
      },
      this.labels.element,
      plot,
    );
    const scroll = element("div", "gv-scroll", {}, region);
    const lossLabel = element("div", "gv-loss-label", {}, this.lossMax, element("span", "", {}, "loss ", this.lossValue), this.lossMin);
    const lanes = element("div", "gv-lanes", {}, lossLabel, lossLane, scroll, this.axis.element, this.range.element);
    const root = element("div", "gv-heatmap", { "data-lm-suppress-shortcuts": "true" }, ...this.head.parts, this.toolbar.element, lanes, this.legend.element, this.probe);
    lossLabel.hidden = lossLane.hidden = store.quantity.runs !== null; // two runs have two losses
    this.places = { root, lanes, scroll, region, plot, lossLane };
    this.crosshair = new Crosshair(this.places, (row) => this.foldRow(row), signal);
    host.append(root);
    this.modules.read(store.parameters);
    this.watch();
    this.head.update(store);
    this.schedule();
  }

  private watch(): void {
    const { signal, store } = this;
    const { root, scroll } = this.places;
    const unsubscribe = store.subscribe((change) => this.onChange(change));
    // Its height follows from what we draw.
    const resized = new ResizeObserver(() => root.clientWidth !== this.rootWidth && this.refresh("layout"));
    resized.observe(root);
    // Skipping starts only once the browser has said that we are out of sight.
    const seen = new IntersectionObserver((entries) => {
      this.visible = entries.at(-1)!.isIntersecting;
      if (this.visible) this.schedule();
    });
    seen.observe(root);
    watchTheme(() => this.refresh("theme"), signal);
    this.watchResolution();
    this.watchZoom();
    scroll.addEventListener("scroll", () => this.onScroll(), { signal, passive: true });
    signal.addEventListener("abort", () => {
      unsubscribe();
      resized.disconnect();
      seen.disconnect();
      cancelAnimationFrame(this.frame);
      root.remove();
    });
  }

  private watchZoom(): void {
    const { signal, axis } = this;
    const { lanes, plot, lossLane, region } = this.places;
    zoomByWheel(lanes, plot, this, signal);
    const pan = (from: PointerEvent): ((event: PointerEvent) => void) => {
      const { extent, whole } = this;
      return (event) => this.zoomTo(panned(extent, ((from.clientX - event.clientX) / axis.element.clientWidth) * extent.span, whole));
    };
    onDrag(axis.element, pan, signal);
    for (const target of [plot, lossLane, axis.element]) target.addEventListener("dblclick", () => this.zoomTo({ kind: "whole" }), { signal });
    region.addEventListener("keydown", (event) => this.onZoomKey(event), { signal });
  }

  private onZoomKey(event: KeyboardEvent): void {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const acts: Record<string, () => void> = {
      "+": () => this.zoomBy(1 / 2),
      "=": () => this.zoomBy(1 / 2),
      "-": () => this.zoomBy(2),
      0: () => this.zoomTo({ kind: "whole" }),
      t: () => this.showTail(),
    };
    const act = acts[event.key];
    if (!act) return;
    act();
    event.preventDefault();
    event.stopPropagation();
  }

  zoomTo(zoom: Zoom): void {
    this.zoom = zoom;
    this.schedule();
  }

  /** About what is looked at, or else the newest iteration in view, where something is. */
  private zoomBy(factor: number): void {
    const { extent, whole } = this;
    const newest = Math.min(this.store.end, extent.start + extent.span);
    const about = this.crosshair.iteration ?? (this.zoom.kind === "part" ? extent.start + extent.span / 2 : newest);
    this.zoomTo(zoomed(extent, factor, about, whole));
  }

  private showTail(): void {
    this.zoomTo({ kind: "tail", span: Math.max(32, Math.floor(this.width / this.dpr / TAIL_WIDTH)) });
  }

  /** A media query matches one resolution: after each change there is a new one to watch. */
  private watchResolution(): void {
    if (this.signal.aborted) return;
    const query = matchMedia(`(resolution: ${devicePixelRatio}dppx)`);
    const changed = (): void => {
      this.refresh("layout");
      this.watchResolution();
    };
    query.addEventListener("change", changed, { once: true, signal: this.signal });
  }

  private onChange(change: Change): void {
    if (change.kind === "columns") {
      this.from = Math.min(this.from, change.from);
      this.lanes.forget(change.from);
    }
    if (change.kind === "parameters") {
      this.modules.read(this.store.parameters);
      this.stale.layout = true;
    }
    if (change.kind === "colours") this.stale.theme = true;
    this.schedule();
  }

  private fold(act: () => void): void {
    act();
    this.refresh("layout");
  }

  /** Open the module that this row stands for, or fold the one that it is in. */
  private foldRow(place: number): void {
    const row = this.layout.rows[place];
    if (row?.folded) this.fold(() => this.modules.open(row.name));
    else if (row?.block) this.fold(() => this.modules.fold(row.block));
  }

  private refresh(what: "layout" | "theme"): void {
    this.stale[what] = true;
    this.schedule();
  }

  private schedule(): void {
    if (this.frame || !this.visible) return;
    this.frame = requestAnimationFrame(() => {
      this.frame = 0;
      try {
        this.paint();
      } catch (error) {
        // Not through the store: that would schedule the next failure.
        this.head.showError(error instanceof Error ? error.message : String(error));
      }
    });
  }

  private paint(): void {
    const { store, stale } = this;
    if (this.places.root.clientWidth === 0) return; // a detached or collapsed cell; the observer calls again
    this.head.update(store);
    if (stale.theme || !this.theme) this.applyTheme();
    if (stale.layout) this.applyLayout();
    if (stale.layout || stale.theme) this.legend.paint((this.marks = new Marks(this.theme!, this.dpr)), store.table, this.dpr);
    if (stale.layout || stale.rows) this.applyRows();
    if (stale.layout || stale.theme || stale.rows) stale.all = true;
    stale.layout = stale.theme = stale.rows = false;
    this.paintData(this.theme!, this.marks!);
  }

  private applyTheme(): void {
    this.places.root.dataset.gvTheme = isDark() ? "dark" : "light";
    this.theme = readTheme(this.probe);
  }

  private applyLayout(): void {
    const { root, scroll, region, plot, lossLane } = this.places;
    this.rootWidth = root.clientWidth;
    root.classList.toggle("gv-narrow", root.clientWidth < NARROW);
    this.layout = layOut(unitsOf(this.store.parameters, this.modules.folded));
    const { height, rows } = this.layout;
    scroll.classList.toggle("gv-scrolls", rows.length > MANY_ROWS);
    region.style.height = `${Math.max(height, 2 * PITCH)}px`;
    // As when all is open: folding a module moves nothing sideways.
    root.style.setProperty("--gv-label", `${this.labels.width(layOut(unitsOf(this.store.parameters, new Set())), root.clientWidth)}px`);
    root.style.setProperty("--gv-scrollbar", `${scroll.offsetWidth - scroll.clientWidth}px`);
    this.toolbar.updateRows({ deeper: !this.modules.isDeepest, shallower: !this.modules.isShallowest });

    this.dpr = devicePixelRatio || 1;
    this.width = Math.max(1, Math.floor(plot.clientWidth * this.dpr));
    resize(this.lossCanvas, this.width, Math.round(LOSS_HEIGHT * this.dpr), this.dpr);
    lossLane.style.height = `${LOSS_HEIGHT}px`;
    this.hintAtMore();
  }

  /** The canvas and the labels hold the rows in view, and those that a little scrolling brings there. */
  private applyRows(): void {
    const { scroll } = this.places;
    const { rows, headers, height } = this.layout;
    const scrolls = scroll.classList.contains("gv-scrolls");
    const top = scrolls ? scroll.scrollTop - OVERSCAN : 0;
    const bottom = scrolls ? scroll.scrollTop + scroll.clientHeight + OVERSCAN : height;
    const first = firstBelow(rows, top);
    const last = Math.min(rows.length, firstBelow(rows, bottom) + 1);
    this.painted = { first, last };
    const shown = rows.slice(first, last);
    this.labels.update(shown, headers.filter((header) => header.top + header.height > top && header.top < bottom));
    // On whole device pixels, wherever the rows begin.
    const device = (y: number): number => Math.round(y * this.dpr);
    const origin = shown.length ? device(shown[0]!.top) : 0;
    const gap = Math.max(1, Math.round(this.dpr));
    this.bands = shown.map((row) => ({ top: device(row.top) - origin, height: device(row.top + PITCH) - gap - device(row.top) }));
    this.heatCanvas.style.top = `${origin / this.dpr}px`;
    const end = shown.at(-1);
    resize(this.heatCanvas, this.width, Math.max(1, end ? device(end.top + PITCH) - origin : 0), this.dpr);
  }

  private onScroll(): void {
    this.hintAtMore();
    const { scroll } = this.places;
    const { first, last } = this.painted;
    const { rows } = this.layout;
    const isPainted = firstBelow(rows, scroll.scrollTop) >= first && firstBelow(rows, scroll.scrollTop + scroll.clientHeight) <= last;
    if (isPainted) return;
    this.stale.rows = true;
    this.schedule();
  }

  /** Rows out of sight above or below fade: some browsers hide the scroll bar. */
  private hintAtMore(): void {
    const { scroll } = this.places;
    const scrolls = scroll.classList.contains("gv-scrolls");
    scroll.classList.toggle("gv-above", scrolls && scroll.scrollTop > 4);
    scroll.classList.toggle("gv-below", scrolls && scroll.scrollTop + scroll.clientHeight < scroll.scrollHeight - 4);
  }

  private paintData(theme: Theme, marks: Marks): void {
    const { store, stale, dpr } = this;
    const { run, domain, scale, table } = store;
    this.whole = wholeOf(store.end, run.iterations);
    const extent = (this.extent = extentOf(this.zoom, store.end, this.whole));
    const { columns, level } = store.columnsFor(extent);
    const pixels = placeColumns(columns, extent, this.width);
    const isWhole = columns === store.overview;
    const paintedFor = [extent.start, extent.span, isWhole, domain?.lo, domain?.hi].join();
    // What is not the whole are other columns every time.
    if (paintedFor !== this.paintedFor || !isWhole) stale.all = true;
    const dirty = stale.all ? 0 : firstDirtyPixel(columns, this.from, extent, this.width);
    const rows = this.layout.rows.slice(this.painted.first, this.painted.last);
    const lanes = rows.map((row) => this.lanes.lane(columns, row.members));
    const touched = this.heat.paint({ lanes, pixels, bands: this.bands, domain, scale, table, marks }, dirty);
    this.paintedFor = paintedFor;
    this.from = store.overview.count;
    stale.all = false;

    const loss = lossLane(columns);
    const hasRows = store.overview.count > 0;
    this.updateLoss(this.loss.paint(loss, pixels, theme, marks, dpr));
    this.axis.element.style.visibility = hasRows ? "" : "hidden";
    this.axis.update(store.epochs, store.firstEpoch, extent, this.width / dpr, (text) => this.labels.measure(text, "axis"));
    this.range.update(extent, this.whole);
    this.toolbar.updateZoom(this.zoom.kind, extent, this.whole);
    this.legend.update(domain, store.seen, noteText(level, mostIterations(pixels, columns), scale.which));
    this.empty.hidden = hasRows;
    this.heatCanvas.setAttribute("aria-label", summary(store));
    Object.assign(this.heatCanvas.dataset, {
      iterations: store.end,
      start: extent.start,
      span: extent.span,
      lo: domain?.lo ?? "",
      hi: domain?.hi ?? "",
      seq: store.newest,
      level,
      // The first device pixel that this painting touched.
      from: touched,
    });
    this.crosshair.update({
      store,
      layout: this.layout,
      columns,
      laneOf: (row) => this.lanes.lane(columns, row.members),
      lossLane: loss,
      pixels,
      dpr,
      chipsOf: (row) => this.heat.chips[row - this.painted.first] ?? [],
      lossChips: this.loss.chips,
    });
  }

  private updateLoss(range: LossRange | null): void {
    const { loss } = this.store;
    let text = "–";
    let bad = false;
    if (loss !== null) {
      bad = !Number.isFinite(loss);
      if (Number.isNaN(loss)) text = "NaN";
      else if (bad) text = loss > 0 ? "+inf" : "−inf";
      else text = format.glance(loss);
    }
    setText(this.lossValue, text);
    this.lossValue.classList.toggle("gv-bad", bad);
    const flat = !range || range.max === range.min;
    setText(this.lossMax, flat ? "" : format.glance(range.max));
    setText(this.lossMin, flat ? "" : `${range.log ? "(log) " : ""}${format.glance(range.min)}`);
    this.lossCanvas.setAttribute(
      "aria-label",
      range ? `loss: now ${text}, between ${format.glance(range.min)} and ${format.glance(range.max)}` : "loss: none recorded yet",
    );
  }
}

function resize(canvas: HTMLCanvasElement, width: number, height: number, dpr: number): void {
  if (canvas.width !== width) canvas.width = width;
  if (canvas.height !== height) canvas.height = height;
  canvas.style.width = `${width / dpr}px`;
  canvas.style.height = `${height / dpr}px`;
}
