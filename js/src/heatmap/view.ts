// One view: the parts of a displayed widget, what the user can do with them, and what to do over when something changes.
import { Announcer } from "./announcer";
import { Axis } from "../time/axis";
import { Brush } from "./brush";
import { domainBetween } from "../data/colour";
import type { Domain } from "../data/colour";
import { Copy } from "./copy";
import { crosshairIn } from "./crosshair";
import type { Places } from "./cursor";
import { onDrag } from "../kit/drag";
import type { Drag } from "../kit/drag";
import { element, UNSPOKEN } from "../kit/element";
import { FocusedRow } from "./focus";
import { messageOf } from "../kit/errors";
import { part } from "../kit/extent";
import { framesOf } from "../kit/frames";
import { headLine } from "./head";
import { Labels } from "../rows/labels";
import { legendOf } from "./legend";
import { Lens } from "../time/lens";
import type { Shared } from "../data/link";
import { listen } from "../kit/listen";
import { lossRow } from "./losslane";
import { Marks } from "./marks";
import { Modules } from "../rows/modules";
import { Numbers } from "./numbers";
import type { Unit } from "../rows/folds";
import { sortedIn } from "../rows/order";
import type { Order } from "../rows/order";
import { paint } from "./paint";
import type { Parts } from "./paint";
import { plotOf } from "./plot";
import { Rangebar } from "../time/rangebar";
import { layOut } from "../rows/rows";
import type { Scene } from "./scene";
import { Source } from "../data/source";
import type { Change, Store } from "../data/store";
import { readTheme } from "../kit/theme";
import type { Theme } from "../kit/theme";
import { Toolbar } from "./toolbar";

/** Css pixels: a narrow widget, and between names and lanes (heatmap.css has it too). */
const NARROW = 560;
const GAP = 10;

export function view(store: Store, host: HTMLElement, signal: AbortSignal): void {
  const lens = new Lens(() => frames.schedule());
  const modules = new Modules();
  const source = new Source(store);
  let units: readonly Unit[] = [];
  let order: Order = "declaration";
  /** The colours' range that the user wants. */
  let byHand: Domain | null = null;
  let theme: Theme | null = null;
  let marks: Marks | null = null;
  let dpr = 1;
  /** Of a lane, in device pixels. */
  let width = 1;
  let scene: Scene | null = null;
  /** What is to be done before the next painting; `rows`: others are in view, or they stand in another order. */
  const stale = { layout: true, theme: true, rows: true };

  const refresh = (what: keyof typeof stale): void => {
    stale[what] = true;
    frames.schedule();
  };
  /** Other rows. */
  const arrange = (act: () => void): void => {
    act();
    units = modules.units;
    refresh("layout");
  };
  const setRange = (domain: Domain | null): void => {
    byHand = domain;
    frames.schedule();
  };
  /** Open the module that this row stands for, or fold the one that it is in. */
  const foldRow = (place: number): void => {
    const row = plot.layout.rows[place];
    if (row?.folded) arrange(() => modules.open(row.name));
    else if (row?.block) arrange(() => modules.fold(row.block));
  };

  const head = headLine();
  const copy: Copy = new Copy(() => scene && [root, scene]);
  const commands = {
    choose: (choice: Partial<Source["choice"]>) => {
      source.choice = { ...source.choice, ...choice };
      setRange(null);
    },
    deeper: (by: 1 | -1) => arrange(() => modules.deeper(by)),
    filter: (text: string) => arrange(() => modules.filter(text)),
    sort: (wanted: Order) => {
      order = wanted;
      refresh("layout");
    },
    zoom: (factor: number) => lens.by(factor, crosshair.here()?.iteration ?? null),
    showAll: () => lens.toAll(),
    showTail: () => lens.toTail(),
    zoomToSelection: () => store.selection && lens.to(part(...store.selection.iterations, lens.whole)),
    deselect: () => store.select(null),
  };
  const toolbar = new Toolbar(commands, store, copy.element);
  const loss = lossRow();
  const link = store.link(onTold, signal);
  const labels = new Labels((module, isOpen) => arrange(() => (isOpen ? modules.fold(module) : modules.open(module))), (name) => link.look(store.of, name));
  const plot = plotOf(labels, store.quantity.title, () => refresh("rows"), signal);
  const axis = new Axis();
  const range = new Rangebar(lens, signal);
  const legend = legendOf(
    store.quantity,
    (low, high) => setRange(domainBetween(low, high, source.shown.scale) ?? byHand),
    () => setRange(null),
  );
  const numbers = new Numbers(() => scene);
  const announcer = new Announcer();
  const probe = element("span", "gv-probe", UNSPOKEN);
  const { scroll, region, cells } = plot;
  const lanes = element("div", "gv-lanes", {}, loss.label, loss.lane, scroll, axis.element, range.element);
  const above = [...head.parts, toolbar.element];
  const below = element("div", "gv-foot-parts", {}, toolbar.selection, legend.element, copy.said, numbers.element);
  const root = element("div", "gv gv-heatmap", { "data-lm-suppress-shortcuts": "true" }, ...above, lanes, below, probe, announcer.element);
  const places: Places = { root, lanes, scroll, region, plot: cells, lossLane: loss.lane };
  const brush = new Brush(store, source, lens, plot, (event) => crosshair.press(event), signal);
  const crosshair = crosshairIn(places, { fold: foldRow, select: (from, to) => brush.cells(from, to), deselect: commands.deselect, focus: (name, iteration) => link.tell("focus", { of: store.of, name, iteration }) }, link, signal);
  const focused = new FocusedRow(link, store.of, plot);
  labels.focused = focused.name;
  const parts: Parts = { store, source, lens, plot, loss, axis, range, labels, legend, toolbar, brush, announcer };

  const frames = framesOf(root, act, () => refresh("layout"), () => refresh("theme"), signal);
  host.append(root);
  followZoom(places, axis.element, lens, () => crosshair.here()?.iteration ?? null, signal);
  const unsubscribe = store.subscribe(onChange);
  listen(signal, "abort", () => {
    unsubscribe();
    root.remove();
  });
  head.update(store);
  arrange(() => modules.read(store.parameters));
  if (store.selection) tellSelection();

  /** Something was told, here or in another widget of the run. */
  function onTold(what: keyof Shared, isOwn: boolean): void {
    if (what === "cursor" && !isOwn) crosshair.follow();
    if (what !== "focus") return;
    labels.focused = focused.name;
    if (isOwn) refresh("rows");
    else arrange(() => focused.unfold(modules));
  }

  function onChange(change: Change): void {
    if (change.kind === "columns") {
      plot.forget(store.overview, change.from);
      plot.forget(store.recent.columns, change.recent);
    }
    if (change.kind === "selection") tellSelection();
    if (change.kind === "parameters") arrange(() => modules.read(store.parameters));
    if (change.kind === "colours" || (change.kind === "answer" && source.receive(change.message, change.buffers))) stale.theme = true;
    frames.schedule();
  }

  function tellSelection(): void {
    const { of, selection } = store;
    link.tell("selection", selection && { of, ...selection });
  }

  function act(): void {
    try {
      prepare();
      focused.update(lens, crosshair);
      scene = paint(parts, { theme: theme!, marks: marks!, dpr, width, byHand });
      crosshair.update(scene);
    } catch (error) {
      // Not through the store: that would schedule the next failure.
      head.showError(messageOf(error));
    }
  }

  function prepare(): void {
    head.update(store);
    if (stale.theme) {
      theme = readTheme(probe);
      plot.forgetAll();
    }
    if (stale.layout) applyLayout();
    else if (stale.rows) plot.takeRows();
    if (stale.theme || marks?.dpr !== dpr) legend.paint((marks = new Marks(theme!, dpr)), source.shown.table);
    if (stale.layout || stale.rows) plot.resize(width, dpr);
    stale.layout = stale.theme = stale.rows = false;
  }

  function applyLayout(): void {
    const room = root.clientWidth;
    const label = labels.width(store.parameters, room, order !== "declaration");
    // All is written before anything is asked: each question after a change lays out the page.
    const isNarrow = room < NARROW;
    root.classList.toggle("gv-narrow", isNarrow);
    // Where it counts, and not by a property that every name would inherit.
    lanes.style.gridTemplateColumns = region.style.gridTemplateColumns = `${label}px minmax(0, 1fr)`;
    below.style.marginLeft = `${isNarrow ? 0 : label + GAP}px`;
    toolbar.rows.update(modules, order);
    // By what is in view now. New columns do not move rows: nobody could read them.
    plot.layOut(layOut(sortedIn(source.columnsFor(lens.extent).columns, lens.extent, units, order, plot.lanes)));
    root.style.setProperty("--gv-scrollbar", `${scroll.offsetWidth - scroll.clientWidth}px`);
    dpr = devicePixelRatio || 1;
    width = Math.max(1, Math.floor(cells.clientWidth * dpr));
    loss.resize(width, dpr);
  }
}

/** The wheel, the keys and the ruler change which iterations are in view. */
function followZoom({ lanes, plot, lossLane, region }: Places, ruler: HTMLElement, lens: Lens, about: () => number | null, signal: AbortSignal): void {
  lens.followWheel(lanes, plot, signal);
  lens.followKeys(region, about, signal);
  const pan = (down: PointerEvent): Drag => {
    const from = lens.extent;
    return { move: (event) => lens.pan(down.clientX - event.clientX, from) };
  };
  onDrag(ruler, pan, signal);
  for (const target of [plot, lossLane, ruler]) listen(target, "dblclick", () => lens.toAll(), { signal });
}
