// One view: the DOM of a displayed widget, and when to paint what.
import { Announcer } from "./announcer";
import { Axis } from "../time/axis";
import { between, SelectionBoxes } from "./brush";
import type { Corner } from "./brush";
import { domainBetween } from "../data/colour";
import type { Domain } from "../data/colour";
import { Crosshair } from "./crosshair";
import type { Places, Shown } from "./crosshair";
import { onDrag } from "../kit/drag";
import type { Drag } from "../kit/drag";
import { element, setText } from "../kit/element";
import { part } from "../kit/extent";
import { Head } from "./head";
import { Labels } from "../rows/labels";
import { Lanes, lossLane, mergeCell, mergeColumns } from "../data/lanes";
import { Legend, noteText } from "./legend";
import { Lens } from "../time/lens";
import { LossLane } from "./losslane";
import { Marks } from "./marks";
import { Modules } from "../rows/modules";
import { sorted } from "../rows/order";
import type { Order } from "../rows/order";
import { columnsIn, firstDirtyPixel, mostIterations, placeColumns } from "../data/pixels";
import { Plot } from "./plot";
import { Rangebar } from "../time/rangebar";
import { layOut } from "../rows/rows";
import { Source } from "../data/source";
import type { Change, Store } from "../data/store";
import { summary } from "./summary";
import { isDark, readTheme, watchTheme } from "../kit/theme";
import type { Theme } from "../kit/theme";
import { Toolbar } from "./toolbar";

/** Css pixels. */
const NARROW = 560;
/** A pointer that goes less far than this has clicked. */
const CLICK = 4;

export class View {
  readonly #lens = new Lens(() => this.#schedule());
  readonly #modules = new Modules();
  readonly #source: Source;
  #order: Order = "declaration";
  /** The colours' range that the user wants. */
  #byHand: Domain | null = null;
  readonly #lanes = new Lanes();
  readonly #head = new Head();
  readonly #toolbar: Toolbar;
  readonly #loss = new LossLane();
  readonly #labels: Labels;
  readonly #plot: Plot;
  readonly #axis = new Axis();
  readonly #range: Rangebar;
  readonly #legend: Legend;
  readonly #probe = element("span", "gv-probe", { "aria-hidden": "true" });
  readonly #boxes = new SelectionBoxes();
  readonly #announcer = new Announcer();
  readonly #places: Places;
  readonly #crosshair: Crosshair;

  #theme: Theme | null = null;
  #marks: Marks | null = null;
  #dpr = 0;
  /** Of a lane, in device pixels. */
  #width = 0;
  #rootWidth = 0;
  /** What is to be done before the next painting; `rows`: others are in view, or they stand in another order. */
  #stale = { layout: true, theme: true, rows: true, all: true };
  /** The first column not painted yet. */
  #from = 0;
  /** What the last painting of everything was made for. */
  #paintedFor = "";
  #frame = 0;
  #visible = true;

  constructor(
    private readonly store: Store,
    host: HTMLElement,
    private readonly signal: AbortSignal,
  ) {
    this.#source = new Source(store);
    this.#toolbar = new Toolbar({
      choose: (choice) => {
        this.#source.choice = { ...this.#source.choice, ...choice };
        this.#setRange(null);
      },
      deeper: (by) => this.#arrange(() => this.#modules.deeper(by)),
      filter: (text) => this.#arrange(() => this.#modules.filter(text)),
      sort: (order) => this.#arrange(() => (this.#order = order)),
      zoom: (factor) => this.#lens.by(factor, this.#crosshair.iteration),
      showAll: () => this.#lens.toAll(),
      showTail: () => this.#lens.toTail(),
      zoomToSelection: () => store.selection && this.#lens.to(part(...store.selection.iterations, this.#lens.whole)),
      deselect: () => store.select(null),
    }, store.offers);
    this.#labels = new Labels((module, isOpen) => this.#arrange(() => (isOpen ? this.#modules.fold(module) : this.#modules.open(module))));
    this.#plot = new Plot(this.#labels, store.quantity.title, () => this.#refresh("rows"), signal);
    this.#range = new Rangebar(this.#lens, signal);
    this.#legend = new Legend(
      store.quantity,
      (low, high) => this.#setRange(domainBetween(low, high, this.#source.scale) ?? this.#byHand),
      () => this.#setRange(null),
    );
    const { scroll, region, cells } = this.#plot;
    const { label, lane } = this.#loss;
    const lanes = element("div", "gv-lanes", {}, label, lane, scroll, this.#axis.element, this.#range.element);
    const parts = [...this.#head.parts, this.#toolbar.element, lanes, this.#toolbar.selection, this.#legend.element, this.#probe, this.#announcer.element];
    const root = element("div", "gv-heatmap", { "data-lm-suppress-shortcuts": "true" }, ...parts);
    this.#places = { root, lanes, scroll, region, plot: cells, lossLane: lane };
    cells.append(this.#boxes.element);
    this.#crosshair = new Crosshair(
      this.#places,
      {
        fold: (row) => this.#foldRow(row),
        selectTo: (row, iteration, from) => this.#brush(this.#cornerOf(from), this.#cornerOf({ row, iteration })),
        deselect: () => store.select(null),
      },
      signal,
    );
    host.append(root);
    this.#modules.read(store.parameters);
    this.#watch();
    this.#watchZoom();
    this.#watchBrush();
    this.#head.update(store);
    this.#schedule();
  }

  #watch(): void {
    const { signal, store } = this;
    const { root } = this.#places;
    const unsubscribe = store.subscribe((change) => this.#onChange(change));
    // Its height follows from what we draw.
    const resized = new ResizeObserver(() => root.clientWidth !== this.#rootWidth && this.#refresh("layout"));
    resized.observe(root);
    // Skipping starts only once the browser has said that we are out of sight.
    const seen = new IntersectionObserver((entries) => {
      this.#visible = entries.at(-1)!.isIntersecting;
      if (this.#visible) this.#schedule();
    });
    seen.observe(root);
    watchTheme(() => this.#refresh("theme"), signal);
    this.#watchResolution();
    signal.addEventListener("abort", () => {
      unsubscribe();
      resized.disconnect();
      seen.disconnect();
      cancelAnimationFrame(this.#frame);
      root.remove();
    });
  }

  #watchZoom(): void {
    const { signal } = this;
    const lens = this.#lens;
    const { lanes, plot, lossLane, region } = this.#places;
    lens.followWheel(lanes, plot, signal);
    lens.followKeys(region, () => this.#crosshair.iteration, signal);
    const pan = (down: PointerEvent): { move(event: PointerEvent): void } => {
      const from = lens.extent;
      return { move: (event) => lens.pan(down.clientX - event.clientX, from) };
    };
    onDrag(this.#axis.element, pan, signal);
    for (const target of [plot, lossLane, this.#axis.element]) target.addEventListener("dblclick", () => lens.toAll(), { signal });
  }

  /** A click holds the crosshair; a pointer that goes on selects. */
  #watchBrush(): void {
    const { plot } = this.#places;
    const begin = (down: PointerEvent): Drag => {
      const box = plot.getBoundingClientRect();
      const corner = (event: PointerEvent): Corner => ({ x: event.clientX - box.left, y: event.clientY - box.top });
      let isBrush = false;
      return {
        move: (event) => {
          isBrush ||= Math.hypot(event.clientX - down.clientX, event.clientY - down.clientY) >= CLICK;
          if (isBrush) this.#brush(corner(down), corner(event));
        },
        end: () => !isBrush && this.#crosshair.togglePin(),
      };
    };
    onDrag(plot, begin, this.signal);
  }

  #brush(from: Corner, to: Corner): void {
    const { store } = this;
    const [lens, plot] = [this.#lens, this.#plot];
    const { columns } = this.#source.columnsFor(lens.extent);
    store.select(between(from, to, plot.layout, this.#names, lens, columns));
  }

  /** The middle of a cell. */
  #cornerOf({ row, iteration }: Shown): Corner {
    const { extent, width } = this.#lens;
    return { x: ((iteration + 0.5 - extent.start) * width) / extent.span, y: this.#plot.layout.rows[row]!.top + 1 };
  }

  get #names(): string[] {
    return this.store.parameters.map((parameter) => parameter.name);
  }

  /** A media query matches one resolution: after each change there is a new one to watch. */
  #watchResolution(): void {
    if (this.signal.aborted) return;
    const query = matchMedia(`(resolution: ${devicePixelRatio}dppx)`);
    const changed = (): void => {
      this.#refresh("layout");
      this.#watchResolution();
    };
    query.addEventListener("change", changed, { once: true, signal: this.signal });
  }

  #onChange(change: Change): void {
    if (change.kind === "columns") {
      this.#from = Math.min(this.#from, change.from);
      this.#lanes.forget(change.from);
    }
    if (change.kind === "parameters") this.#arrange(() => this.#modules.read(this.store.parameters));
    if (change.kind === "answer" && this.#source.receive(change.message, change.buffers)) this.#stale.theme = true;
    if (change.kind === "colours") this.#stale.theme = true;
    this.#schedule();
  }

  /** Other rows, or another order of them. */
  #arrange(act: () => void): void {
    act();
    this.#refresh("layout");
  }

  /** Open the module that this row stands for, or fold the one that it is in. */
  #foldRow(place: number): void {
    const row = this.#plot.layout.rows[place];
    if (row?.folded) this.#arrange(() => this.#modules.open(row.name));
    else if (row?.block) this.#arrange(() => this.#modules.fold(row.block));
  }

  #setRange(domain: Domain | null): void {
    this.#byHand = domain;
    this.#schedule();
  }

  #refresh(what: "layout" | "theme" | "rows"): void {
    this.#stale[what] = true;
    this.#schedule();
  }

  #schedule(): void {
    if (this.#frame || !this.#visible) return;
    this.#frame = requestAnimationFrame(() => {
      this.#frame = 0;
      try {
        this.#paint();
      } catch (error) {
        // Not through the store: that would schedule the next failure.
        this.#head.showError(error instanceof Error ? error.message : String(error));
      }
    });
  }

  #paint(): void {
    const { store } = this;
    const stale = this.#stale;
    if (this.#places.root.clientWidth === 0) return; // a detached or collapsed cell; the observer calls again
    this.#head.update(store);
    if (stale.theme || !this.#theme) this.#applyTheme();
    if (stale.layout) this.#applyLayout();
    if (stale.layout || stale.theme) this.#legend.paint((this.#marks = new Marks(this.#theme!, this.#dpr)), this.#source.table, this.#dpr);
    if (stale.layout || stale.rows) this.#plot.takeRows(this.#width, this.#dpr);
    if (stale.layout || stale.theme || stale.rows) stale.all = true;
    stale.layout = stale.theme = stale.rows = false;
    this.#paintData(this.#theme!, this.#marks!);
  }

  #applyTheme(): void {
    this.#places.root.dataset.gvTheme = isDark() ? "dark" : "light";
    this.#theme = readTheme(this.#probe);
  }

  #applyLayout(): void {
    const { root, scroll, plot } = this.#places;
    const { parameters } = this.store;
    this.#rootWidth = root.clientWidth;
    root.classList.toggle("gv-narrow", root.clientWidth < NARROW);
    this.#plot.layOut(layOut(this.#sortedUnits()));
    root.style.setProperty("--gv-label", `${this.#labels.width(parameters, root.clientWidth, this.#order !== "declaration")}px`);
    root.style.setProperty("--gv-scrollbar", `${scroll.offsetWidth - scroll.clientWidth}px`);
    this.#toolbar.updateRows(this.#modules, this.#order);
    this.#dpr = devicePixelRatio || 1;
    this.#width = Math.max(1, Math.floor(plot.clientWidth * this.#dpr));
    this.#loss.resize(this.#width, this.#dpr);
  }

  /** By what is in view now. New columns do not move rows: nobody could read them. */
  #sortedUnits(): ReturnType<typeof sorted> {
    const { units } = this.#modules;
    if (this.#order === "declaration") return units;
    const { columns } = this.#source.columnsFor(this.#lens.extent);
    const [first, end] = columnsIn(columns, this.#lens.extent);
    const merged = mergeColumns(columns, first, end);
    const lanes = new Lanes();
    return sorted(units, this.#order, (unit) => mergeCell(lanes.lane(merged, unit.members), 0, merged.count - 1));
  }

  #paintData(theme: Theme, marks: Marks): void {
    const { store } = this;
    const [stale, dpr, lens, plot] = [this.#stale, this.#dpr, this.#lens, this.#plot];
    const source = this.#source;
    lens.update(store.end, store.run.iterations, this.#width / dpr);
    const { extent } = lens;
    source.want(extent, this.#width, performance.now());
    const { columns, level } = source.columnsFor(extent);
    const { scale, table } = source;
    const domain = this.#byHand ?? source.domain;
    const pixels = placeColumns(columns, extent, this.#width);
    const isOverview = columns === store.overview;
    const paintedFor = [extent.start, extent.span, isOverview, domain?.lo, domain?.hi].join();
    // What is not the overview are other columns every time.
    if (paintedFor !== this.#paintedFor || !isOverview) stale.all = true;
    const dirty = stale.all ? 0 : firstDirtyPixel(columns, this.#from, extent, this.#width);
    const lanes = plot.rows.map((row) => this.#lanes.lane(columns, row.members));
    const touched = plot.paint({ lanes, pixels, domain, scale, table, marks }, dirty);
    this.#paintedFor = paintedFor;
    this.#from = store.overview.count;
    stale.all = false;

    const loss = lossLane(columns);
    this.#loss.show(!store.quantity.runs && (store.hasLoss || !store.end));
    this.#loss.paint(loss, store.loss, pixels, theme, marks, dpr);
    this.#axis.element.style.visibility = store.end ? "" : "hidden";
    this.#axis.update(store.epochs, store.firstEpoch, extent, this.#width / dpr, (text) => this.#labels.measure(text, "axis"));
    this.#range.update();
    this.#toolbar.updateZoom(lens);
    this.#toolbar.updateSelection(store.selection);
    this.#boxes.update(store.selection, plot.layout, this.#names, lens);
    this.#announcer.update(store, performance.now());
    const note = source.error || (source.isWaiting ? "waiting for the kernel …" : noteText(level, mostIterations(pixels, columns), scale.which));
    this.#legend.update(source.quantity.label, domain, this.#byHand !== null, source.seen, note);
    this.#toolbar.updateChoice(source, store.stages);
    const nothing = !store.end ? "no iteration recorded yet" : plot.layout.rows.length ? "" : "no parameter has such a name";
    setText(plot.empty, nothing);
    plot.empty.hidden = !nothing;
    plot.canvas.setAttribute("aria-label", summary({ quantity: source.quantity, parameters: store.parameters, overview: store.overview, domain, seen: source.seen }));
    Object.assign(plot.canvas.dataset, {
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
    this.#crosshair.update({
      store,
      quantity: source.quantity,
      layout: plot.layout,
      columns,
      laneOf: (row) => this.#lanes.lane(columns, row.members),
      lossLane: loss,
      pixels,
      dpr,
      chipsOf: (row) => plot.chipsOf(row),
      lossChips: this.#loss.chips,
    });
  }
}
