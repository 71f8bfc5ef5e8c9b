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
import { firstDirtyPixel, mostIterations, placeColumns, spanOf } from "./pixels";
import { Labels } from "./labels";
import type { Layout } from "./rows";
import { layOut, PITCH } from "./rows";
import type { Change, Store } from "./store";
import { summary } from "./summary";
import { isDark, readTheme, watchTheme } from "./theme";
import type { Theme } from "./theme";

/** Css pixels. */
const LOSS_HEIGHT = 54;
const SCROLL_ROWS = 60;
const NARROW = 560;
/** Browsers stop at 65,535 device pixels; half of it leaves room for every browser. */
const CANVAS_LIMIT = 32000;

export class View {
  private readonly head = new Head();
  private readonly axis = new Axis();
  private readonly legend: Legend;
  private readonly labels = new Labels();
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

  private layout: Layout = { rows: [], headers: [], height: 0 };
  private bands: Band[] = [];
  private theme: Theme | null = null;
  private marks: Marks | null = null;
  private dpr = 0;
  private width = 0;
  private rootWidth = 0;
  private stale = { layout: true, theme: true, all: true };
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
    const lossLane = element("div", "gv-loss-lane", {}, this.lossCanvas);
    const plot = element("div", "gv-plot", {}, this.heatCanvas, this.empty);
    const region = element(
      "div",
      "gv-region",
      {
        tabindex: "0",
        role: "application",
        "aria-roledescription": "heatmap",
        "aria-label": `${store.quantity.title}: arrow keys move over the cells, Escape leaves`,
        "data-lm-suppress-shortcuts": "true",
      },
      this.labels.element,
      plot,
    );
    const scroll = element("div", "gv-scroll", {}, region);
    const lossLabel = element("div", "gv-loss-label", {}, this.lossMax, element("span", "", {}, "loss ", this.lossValue), this.lossMin);
    const lanes = element("div", "gv-lanes", {}, lossLabel, lossLane, scroll, this.axis.element);
    const root = element("div", "gv-heatmap", {}, ...this.head.parts, lanes, this.legend.element, this.probe);
    lossLabel.hidden = lossLane.hidden = store.quantity.runs !== null; // two runs have two losses
    this.places = { root, lanes, scroll, region, plot, lossLane };
    this.crosshair = new Crosshair(this.places, signal);
    host.append(root);
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
    scroll.addEventListener("scroll", () => this.hintAtMore(), { signal, passive: true });
    signal.addEventListener("abort", () => {
      unsubscribe();
      resized.disconnect();
      seen.disconnect();
      cancelAnimationFrame(this.frame);
      root.remove();
    });
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
    if (change.kind === "columns") this.from = Math.min(this.from, change.from);
    if (change.kind === "parameters") this.stale.layout = true;
    if (change.kind === "colours") this.stale.theme = true;
    this.schedule();
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
    if (stale.layout || stale.theme) stale.all = true;
    stale.layout = stale.theme = false;
    this.paintData(this.theme!, this.marks!);
  }

  private applyTheme(): void {
    this.places.root.dataset.gvTheme = isDark() ? "dark" : "light";
    this.theme = readTheme(this.probe);
  }

  private applyLayout(): void {
    const { root, scroll, region, plot, lossLane } = this.places;
    const { parameters } = this.store;
    this.rootWidth = root.clientWidth;
    root.classList.toggle("gv-narrow", root.clientWidth < NARROW);
    this.layout = layOut(parameters);
    const { height } = this.layout;
    scroll.classList.toggle("gv-scrolls", parameters.length > SCROLL_ROWS);
    region.style.height = `${Math.max(height, 2 * PITCH)}px`;
    root.style.setProperty("--gv-label", `${this.labels.width(this.layout, root.clientWidth)}px`);
    root.style.setProperty("--gv-scrollbar", `${scroll.offsetWidth - scroll.clientWidth}px`);
    this.labels.update(this.layout);

    this.dpr = devicePixelRatio || 1;
    this.width = Math.max(1, Math.floor(plot.clientWidth * this.dpr));
    const vertical = Math.min(this.dpr, CANVAS_LIMIT / Math.max(1, height));
    this.bands = this.layout.rows.map(({ top }) => {
      const from = Math.round(top * vertical);
      const gap = Math.max(1, Math.round(vertical));
      return { top: from, height: Math.round((top + PITCH) * vertical) - gap - from };
    });
    resize(this.heatCanvas, this.width, Math.max(1, Math.round(height * vertical)), this.dpr, vertical);
    resize(this.lossCanvas, this.width, Math.round(LOSS_HEIGHT * this.dpr), this.dpr, this.dpr);
    lossLane.style.height = `${LOSS_HEIGHT}px`;
    this.hintAtMore();
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
    const { overview, run, domain, scale, table } = store;
    const newest = overview.count ? overview.stop[overview.count - 1]! : 0;
    const span = spanOf(newest, run.iterations);
    const pixels = placeColumns(overview, span, this.width);
    const paintedFor = [span, domain?.lo, domain?.hi].join();
    if (paintedFor !== this.paintedFor) stale.all = true;
    const dirty = stale.all ? 0 : firstDirtyPixel(overview, this.from, span, this.width);
    const touched = this.heat.paint({ columns: overview, pixels, bands: this.bands, domain, scale, table, marks }, dirty);
    this.paintedFor = paintedFor;
    this.from = overview.count;
    stale.all = false;

    this.updateLoss(this.loss.paint(overview, pixels, theme, marks, dpr));
    this.axis.element.style.visibility = overview.count ? "" : "hidden";
    this.axis.update(store.epochs, store.firstEpoch, span, this.width / dpr, (text) => this.labels.measure(text, "axis"));
    this.legend.update(domain, store.seen, noteText(overview.count ? overview.level : 0, mostIterations(pixels, overview), scale.which));
    this.empty.hidden = overview.count > 0;
    this.heatCanvas.setAttribute("aria-label", summary(store));
    Object.assign(this.heatCanvas.dataset, {
      iterations: newest,
      span,
      lo: domain?.lo ?? "",
      hi: domain?.hi ?? "",
      seq: store.newest,
      level: overview.level,
      // The first device pixel that this painting touched.
      from: touched,
    });
    this.crosshair.update({ store, layout: this.layout, pixels, dpr, chips: this.heat.chips, lossChips: this.loss.chips });
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

function resize(canvas: HTMLCanvasElement, width: number, height: number, dprX: number, dprY: number): void {
  if (canvas.width !== width) canvas.width = width;
  if (canvas.height !== height) canvas.height = height;
  canvas.style.width = `${width / dprX}px`;
  canvas.style.height = `${height / dprY}px`;
}
