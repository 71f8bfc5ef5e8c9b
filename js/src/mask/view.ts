// One view: the DOM of a displayed mask, and when to paint what.
import type { Change } from "../data/feed";
import { onDrag } from "../kit/drag";
import { element, setLine, setText } from "../kit/element";
import { messageOf } from "../kit/errors";
import type { Frames } from "../kit/frames";
import { framesOf } from "../kit/frames";
import { Ruler } from "../kit/measure";
import { readTheme } from "../kit/theme";
import type { Theme } from "../kit/theme";
import { unitsOf } from "../rows/folds";
import { Modules } from "../rows/modules";
import type { Rowbar } from "../rows/rowbar";
import { rowbar } from "../rows/rowbar";
import { Axis } from "../time/axis";
import { Lens } from "../time/lens";
import { Rangebar } from "../time/rangebar";
import type { Zoombar } from "../time/zoombar";
import { zoombar } from "../time/zoombar";
import { Ask } from "./ask";
import { Cursor } from "./cursor";
import { describe, headline, kindOf } from "./describe";
import { Ink } from "./ink";
import { Legend } from "./legend";
import { Told } from "./told";
import type { Act } from "./plot";
import { MANY_ROWS, PITCH, Plot } from "./plot";
import { AllRuns } from "./runs";
import { sizeOf, total } from "./sizes";
import { State } from "./state";
import type { MaskStore, Wish } from "./store";
import { story } from "./story";
import type { TreeRow } from "./tree";
import { treeOf } from "./tree";

/** In which order rows stand. */
type Order = "declaration" | "size" | "change";

const ORDERS: Record<Order, string> = {
  declaration: "as declared",
  size: "largest first",
  change: "changed most often first",
};

/** Css pixels. */
const NARROW = 560;
/** The newest changes are told; the rest is a scroll away. */
const TOLD = 4;

export class View {
  readonly #lens = new Lens(() => this.#frames.schedule());
  readonly #modules = new Modules();
  #order: Order = "declaration";
  readonly #runs = new AllRuns();
  /** Of what is zoomed into, where the whole picture has merged iterations. */
  readonly #fine = new AllRuns();
  readonly #ruler = new Ruler();
  readonly #rowbar: Rowbar<Order>;
  readonly #zoombar: Zoombar;
  readonly #plot: Plot;
  readonly #axis = new Axis();
  readonly #range: Rangebar;
  readonly #legend = new Legend();
  readonly #ask: Ask;
  readonly #cursor: Cursor;
  readonly #told: Told;
  readonly #sub = element("span", "gv-mask-sub");
  readonly #said = element("div", "gv-mask-said", { role: "status" });
  readonly #error = element("div", "gv-error", { role: "alert" });
  readonly #story = element("ul", "gv-story");
  readonly #probe = element("span", "gv-probe", { "aria-hidden": "true" });
  readonly #grid: HTMLElement;
  readonly #root: HTMLElement;

  #theme: Theme | null = null;
  #ink: Ink | null = null;
  #dpr = 0;
  /** Of a lane, in device pixels. */
  #width = 0;
  #room = 0;
  /** What is to be done before the next painting; `rows`: others have come into view. */
  #stale = { layout: true, theme: true, rows: true };
  #toldFor = "";
  readonly #frames: Frames;

  constructor(
    private readonly store: MaskStore,
    host: HTMLElement,
    private readonly signal: AbortSignal,
  ) {
    const lens = this.#lens;
    this.#rowbar = rowbar<Order>(
      {
        deeper: (by) => this.#arrange(() => this.#modules.deeper(by)),
        filter: (text) => this.#arrange(() => this.#modules.filter(text)),
        sort: (order) => this.#arrange(() => (this.#order = order)),
      },
      ORDERS,
      "parameter",
    );
    this.#zoombar = zoombar({ zoom: (factor) => lens.by(factor, this.#cursor.iteration), showAll: () => lens.toAll(), showTail: () => lens.toTail() });
    this.#plot = new Plot(this.#ruler, () => this.#refresh("rows"), signal);
    this.#range = new Rangebar(lens, signal);
    const column = (word: string, className: string): HTMLElement => element("span", className, { role: "columnheader" }, word);
    const header = element("div", "gv-mask-header gv-mask-columns", { role: "row", "aria-rowindex": "1" }, column("module", ""), column("entries", "gv-mask-size"), column("bytes", "gv-mask-size gv-mask-bytes"), column("iterations", "gv-mask-over"), column("", ""));
    const help = "arrow keys move from row to row and from change to change, Enter freezes or unfreezes, Space folds and opens modules, plus and minus zoom, Escape leaves";
    this.#grid = element("div", "gv-region", { tabindex: "0", role: "treegrid", "aria-label": `which parameters train: ${help}` }, header, this.#plot.scroll);
    const time = element("div", "gv-mask-time gv-mask-columns", {}, this.#axis.element, this.#range.element);
    const table = element("div", "gv-mask-table", {}, this.#grid, time);
    this.#ask = new Ask(table);
    table.append(this.#ask.element);
    const head = element("div", "gv-mask-head", {}, element("b", "", {}, "Which parameters train"), this.#sub);
    const tools = element("div", "gv-tools", { role: "toolbar", "aria-label": "frozen mask" }, ...this.#rowbar.parts, this.#zoombar.element);
    this.#root = element("div", "gv gv-mask", { "data-lm-suppress-shortcuts": "true" }, head, this.#error, tools, table, this.#legend.element, this.#said, this.#story, this.#probe);
    this.#cursor = new Cursor(
      this.#root,
      this.#grid,
      this.#plot,
      lens,
      () => this.#seen,
      (row, iteration) => this.#describe(row, iteration),
      { fold: (row) => this.#fold(row), act: (row) => this.#want(this.#plot.rows[row]!, this.#grid), point: (iteration) => this.#told.point(iteration) },
      signal,
    );
    this.#told = new Told(store, this.#plot, lens, signal);
    host.append(this.#root);
    this.#modules.read(store.parameters, MANY_ROWS);
    this.#frames = framesOf(this.#root, () => this.#tryPaint(), () => this.#refresh("layout"), () => this.#refresh("theme"), signal);
    this.#watch();
    this.#frames.schedule();
  }

  #watch(): void {
    const { signal, store } = this;
    const root = this.#root;
    const [lens, plot] = [this.#lens, this.#plot];
    const unsubscribe = store.subscribe((change) => this.#onChange(change));
    lens.followWheel(plot.cells, plot.cells, signal);
    lens.followKeys(this.#grid, () => this.#cursor.iteration, signal);
    onDrag(
      this.#axis.element,
      (down) => {
        const from = lens.extent;
        return { move: (event) => lens.pan(down.clientX - event.clientX, from) };
      },
      signal,
    );
    for (const target of [plot.cells, this.#axis.element]) target.addEventListener("dblclick", () => lens.toAll(), { signal });
    this.#grid.addEventListener("click", (event) => this.#onClick(event), { signal });
    signal.addEventListener("abort", () => {
      unsubscribe();
      root.remove();
    });
  }

  #onChange(change: Change): void {
    if (change.kind === "columns") {
      this.#runs.forget(change.from);
      this.#fine.forget(change.recent);
    }
    if (change.kind === "parameters") this.#arrange(() => this.#modules.read(this.store.parameters, MANY_ROWS));
    this.#frames.schedule();
  }

  #onClick(event: MouseEvent): void {
    const target = (event.target as Element).closest<HTMLElement>("button");
    const name = (event.target as Element).closest<HTMLElement>("[data-name]")?.dataset.name;
    if (name && (event.target as Element).closest(".gv-mask-name")) this.#told.look(name);
    const row = this.#plot.rows.findIndex((each) => each.name === name);
    if (!target || row < 0) return;
    if (target.dataset.act) this.#want(this.#plot.rows[row]!, target);
    else this.#fold(row);
  }

  #fold(index: number): void {
    const { name, open } = this.#plot.rows[index]!;
    if (open !== null) this.#arrange(() => (open ? this.#modules.fold(name) : this.#modules.open(name)));
  }

  /** Freeze or unfreeze a row: ask the user first, and say at once what cannot be. `back` gets the focus again. */
  #want(row: TreeRow, back: HTMLElement): void {
    const { store } = this;
    const act = this.#actOf(row);
    if (act !== "freeze" && act !== "unfreeze") return;
    if (store.barred) return store.tell(store.barred, true);
    const kind = kindOf(row, this.#parameters);
    const text =
      act === "freeze"
        ? `${kind}. The values stay as they are from the next iteration on; the optimizer keeps its moments.`
        : `${kind}. They train from the next iteration on.`;
    const top = this.#grid.offsetTop + this.#plot.scroll.offsetTop - this.#plot.scroll.scrollTop + this.#plot.rows.indexOf(row) * PITCH;
    const title = `${act === "freeze" ? "Freeze" : "Unfreeze"} ${row.name}?`;
    this.#ask.open({ title, text, word: act === "freeze" ? "Freeze" : "Unfreeze" }, top + PITCH, top, () => store.wish(this.#wishOf(act, row)), back);
  }

  #wishOf(verb: Wish["verb"], { name, members, open }: TreeRow): Wish {
    const inside = this.#parameters.filter((parameter) => parameter.name.startsWith(`${name}.`)).length;
    // A module of which a part is filtered out is meant in part.
    const isWhole = open !== null && inside === members.length;
    return { verb, name, parameters: isWhole ? [] : members.map((place) => this.#parameters[place]!.name), modules: isWhole ? [name] : [] };
  }

  #actOf(row: TreeRow): Act {
    if (this.store.isOffline) return null;
    if (this.store.waiting.has(row.name)) return "wait";
    const now = this.#now(row.members);
    if (!now || !(now & ~(State.not_optimized | State.not_recorded))) return null;
    return now === State.frozen ? "unfreeze" : "freeze";
  }

  get #parameters(): MaskStore["parameters"] {
    return this.store.parameters;
  }

  /** The newest state of some parameters together. */
  #now(members: readonly number[]): number {
    return this.#runs.of(members).bits.at(-1) ?? 0;
  }

  /** The runs of what is in view. */
  get #seen(): AllRuns {
    const { columns } = this.store.columnsFor(this.#lens.extent);
    return columns === this.store.overview ? this.#runs : this.#fine;
  }

  #describe(index: number, iteration: number): ReturnType<typeof describe> {
    const row = this.#plot.rows[index]!;
    const runs = this.#seen;
    return describe(row, runs.of(row.members), (place) => runs.of([place]), iteration, runs.end, this.#parameters);
  }

  #arrange(act: () => void): void {
    act();
    this.#refresh("layout");
  }

  #refresh(what: "layout" | "theme" | "rows"): void {
    this.#stale[what] = true;
    this.#frames.schedule();
  }

  #tryPaint(): void {
    try {
      this.#paint();
    } catch (error) {
      setLine(this.#error, `gradviz could not draw: ${messageOf(error)}`);
    }
  }

  #paint(): void {
    const { store } = this;
    const stale = this.#stale;
    this.#runs.update(store.overview, this.#parameters.length);
    if (stale.theme || !this.#theme) this.#theme = readTheme(this.#probe);
    if (stale.layout) this.#applyLayout();
    if (stale.layout || stale.theme) this.#legend.paint((this.#ink = new Ink(this.#theme!, this.#dpr)), this.#dpr);
    if (stale.layout || stale.rows) this.#plot.takeRows(this.#parameters, this.#room, this.#width, this.#dpr);
    stale.layout = stale.theme = stale.rows = false;
    this.#paintData();
  }

  #applyLayout(): void {
    const root = this.#root;
    const { scroll, cells } = this.#plot;
    root.classList.toggle("gv-narrow", root.clientWidth < NARROW);
    this.#ruler.follow(root);
    const isFlat = this.#order !== "declaration";
    this.#plot.layOut(treeOf(this.#sortedUnits(), isFlat));
    // Of all rows, open: folding and filtering move nothing sideways.
    this.#room = this.#plot.room(treeOf(unitsOf(this.#parameters, new Set()), isFlat), root.clientWidth);
    root.style.setProperty("--gv-label", `${this.#room}px`);
    root.style.setProperty("--gv-scrollbar", `${scroll.offsetWidth - scroll.clientWidth}px`);
    this.#dpr = devicePixelRatio || 1;
    this.#width = Math.max(1, Math.floor(cells.clientWidth * this.#dpr));
  }

  /** New columns do not move rows: nobody could read them. */
  #sortedUnits(): ReturnType<typeof unitsOf> {
    const { units } = this.#modules;
    if (this.#order === "declaration") return units;
    const rank = ({ members }: (typeof units)[number]): number =>
      this.#order === "size" ? (total(members.map((place) => sizeOf(this.#parameters[place]!))).entries ?? 0) : this.#runs.of(members).start.length;
    return units.map((unit) => ({ unit, by: rank(unit) })).sort((a, b) => b.by - a.by).map(({ unit }) => unit);
  }

  #paintData(): void {
    const { store } = this;
    const [lens, plot, runs] = [this.#lens, this.#plot, this.#runs];
    lens.update(store.end, store.run.iterations, this.#width / this.#dpr);
    const { columns } = store.columnsFor(lens.extent);
    if (columns !== store.overview) this.#fine.update(columns, this.#parameters.length);
    plot.paint(this.#seen, lens.extent, this.#width, this.#ink!);
    plot.say((row) => this.#now(row.members), (row) => this.#actOf(row));
    this.#axis.element.style.visibility = store.end ? "" : "hidden";
    this.#axis.update(store.epochs, store.firstEpoch, lens.extent, this.#width / this.#dpr, (text) => this.#ruler.measure(text, "axis"));
    this.#range.update();
    this.#rowbar.update(this.#modules, this.#order);
    this.#zoombar.update(lens);
    const { nothing } = store.run;
    const isOver = !["training", "paused"].includes(store.run.status);
    setText(this.#sub, nothing ?? headline(this.#parameters, (place) => this.#now([place]), store.end, isOver));
    let seen = 0;
    for (let place = 0; place < this.#parameters.length; place++) for (const bits of runs.of([place]).bits) seen |= bits;
    this.#legend.update(seen);
    setLine(this.#error, store.error && `gradviz could not draw: ${store.error}`);
    this.#saySaid();
    this.#tell();
    setLine(plot.empty, nothing ?? (plot.rows.length ? null : "no parameter has such a name"));
    Object.assign(plot.canvas.dataset, { iterations: store.end, start: lens.extent.start, span: lens.extent.span, seq: store.newest });
    this.#cursor.update();
    this.#told.update();
  }

  #saySaid(): void {
    const { said, waiting } = this.store;
    const waits = waiting.size ? `waiting for the kernel, which answers between two iterations of a run in the background (loop.start), or when its cell is done …` : "";
    setLine(this.#said, waits || (said?.text ?? ""));
    this.#said.classList.toggle("gv-bad-news", !waits && (said?.isError ?? false));
  }

  #tell(): void {
    const { store } = this;
    const key = `${this.#runs.version} ${store.changes.length} ${store.changes.at(-1)?.iteration}`;
    if (key === this.#toldFor) return;
    this.#toldFor = key;
    const lines = story(store.changes, this.#parameters, (place) => this.#runs.of([place]));
    const items = lines.map(({ iteration, text }) => element("li", "", {}, ...(iteration === null ? [] : [element("b", "", {}, String(iteration).replace(/\B(?=(\d{3})+$)/g, ",")), " "]), text));
    this.#story.replaceChildren(...items);
    this.#story.hidden = !items.length;
    this.#story.classList.toggle("gv-long", items.length > TOLD);
  }
}
