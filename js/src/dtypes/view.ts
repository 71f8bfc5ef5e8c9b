// One view: the DOM of a displayed table, and when to change what.
import { readInks } from "./bars";
import type { Item, Order } from "./columns";
import { COLUMNS, nextOrder, sorted } from "./columns";
import { factsOf } from "./facts";
import type { DtypeFeed } from "./feed";
import { ScaleLane, scaleText } from "./scale";
import { Table } from "./table";
import { NARROW } from "./wire";
import type { Entries } from "./wire";
import type { Link } from "../data/link";
import { group, press } from "../kit/buttons";
import { element, setLine, setText } from "../kit/element";
import * as format from "../kit/format";
import { isDark, watchTheme } from "../kit/theme";
import { matcher } from "../rows/order";

/** Places in the history's STATES. */
const [UNUSED, FROZEN] = [1, 2];

export class View {
  readonly #where = element("span", "gv-quiet");
  readonly #flags = element("span", "", { role: "status" });
  readonly #scaleText = element("span", "");
  readonly #catching = element("span", "gv-catching", { role: "status" });
  readonly #error = element("div", "gv-error", { role: "alert" });
  readonly #search = element("input", "gv-filter", { type: "search", placeholder: "find parameters", "aria-label": "find parameters" });
  readonly #onlyFlagged = element("button", "gv-button", { type: "button", title: "show only rows in which something does not go together, or has changed" }, "flagged");
  readonly #dtypes: HTMLButtonElement[];
  readonly #scale = new ScaleLane();
  readonly #table: Table;
  readonly #probe = element("span", "gv-probe", { "aria-hidden": "true" });
  readonly #root: HTMLElement;
  readonly #link: Link;

  #items: Item[] = [];
  /** What each item was made of. */
  #made: (string | Entries | undefined)[] = [];
  /** The places that are shown, in order. They stay where they are while numbers change. */
  #order: number[] = [];
  #sort: Order | null = null;
  #dtype = 0;
  #isFlaggedOnly = false;
  #isInOrder = false;
  #frame = 0;

  constructor(
    private readonly feed: DtypeFeed,
    host: HTMLElement,
    private readonly signal: AbortSignal,
  ) {
    this.#dtypes = NARROW.map(([dtype, word], place) => {
      const each = element("button", "gv-button", { type: "button", title: `what the gradients' entries would be in ${dtype}` }, word);
      each.addEventListener("click", () => this.#arrange(() => (this.#dtype = place)));
      return each;
    });
    this.#search.addEventListener("input", () => this.#arrange());
    this.#onlyFlagged.addEventListener("click", () => this.#arrange(() => (this.#isFlaggedOnly = !this.#isFlaggedOnly)));
    this.#link = feed.link(() => this.#mark(), signal);
    const look = (name: string): void => this.#link.look("parameters", name);
    this.#table = new Table((column) => this.#arrange(() => (this.#sort = nextOrder(this.#sort, column))), look, signal);
    const title = element("div", "gv-title", {}, element("b", "", {}, "Dtypes"), " ", this.#where, " ", this.#catching);
    const summary = element("div", "gv-summary gv-quiet", {}, this.#flags, this.#scaleText);
    const inDtype = element("div", "gv-in", {}, element("span", "gv-quiet", { "aria-hidden": "true" }, "gradients in"), group("what gradients would be in", ...this.#dtypes));
    const tools = element("div", "gv-tools", {}, this.#search, group("rows", this.#onlyFlagged), inDtype);
    this.#root = element("div", "gv gv-dtypes", { "data-lm-suppress-shortcuts": "true" }, title, summary, this.#error, this.#scale.element, tools, this.#table.element, this.#probe);
    host.append(this.#root);
    this.#watch();
    this.#schedule();
  }

  #watch(): void {
    const { feed, signal } = this;
    const unsubscribe = feed.subscribe(() => this.#schedule());
    let width = 0;
    const resized = new ResizeObserver(() => {
      if (this.#root.clientWidth !== width) this.#schedule();
      width = this.#root.clientWidth;
    });
    resized.observe(this.#root);
    watchTheme(() => this.#schedule(), signal);
    signal.addEventListener("abort", () => {
      unsubscribe();
      resized.disconnect();
      cancelAnimationFrame(this.#frame);
      this.#root.remove();
    });
  }

  #arrange(change?: () => void): void {
    change?.();
    this.#isInOrder = false;
    this.#schedule();
  }

  #schedule(): void {
    cancelAnimationFrame(this.#frame);
    this.#frame = requestAnimationFrame(() => {
      try {
        this.#update();
      } catch (error) {
        setLine(this.#error, `gradviz could not draw: ${error instanceof Error ? error.message : String(error)}`);
      }
    });
  }

  #update(): void {
    const { feed } = this;
    const dpr = devicePixelRatio || 1;
    this.#root.dataset.gvTheme = isDark() ? "dark" : "light";
    const theme = readInks(this.#probe);
    this.#makeItems();
    if (!this.#isInOrder) this.#putInOrder();
    this.#isInOrder = true;
    this.#say();
    this.#scale.update(feed, feed.skipped, theme, dpr);
    const items = this.#order.map((place) => this.#items[place]!);
    this.#table.update(items, { dtype: this.#dtype, theme, dpr }, this.#sort, this.#hidden(), this.#nothing());
    this.#mark();
  }

  /** What is looked into and what is selected, here or in another widget of the run. */
  #mark(): void {
    const { selection } = this.#link.shared;
    this.#table.mark(this.#link.focused("parameters"), new Set(selection?.of === "parameters" ? selection.parameters : []));
  }

  /** Items in which nothing has changed stay the same. */
  #makeItems(): void {
    const { parameters, forms, states, entries } = this.feed;
    if (parameters.length !== this.#items.length) this.#isInOrder = false;
    this.#items.length = parameters.length;
    parameters.forEach((parameter, place) => {
      const own = forms.get(place);
      const newest = entries.get(place);
      const made = `${parameter.name} ${parameter.dtype} ${parameter.shape} ${states[place]} ${[...(own?.entries() ?? [])].map(([of, each]) => `${of} ${each.length} ${each.at(-1)!.iteration}`)}`;
      if (this.#made[2 * place] === made && this.#made[2 * place + 1] === newest) return;
      this.#made[2 * place] = made;
      this.#made[2 * place + 1] = newest;
      const facts = factsOf(own);
      if (facts.notes.length !== this.#items[place]?.facts.notes.length && this.#isFlaggedOnly) this.#isInOrder = false;
      const without = states[place] === FROZEN ? "frozen" : states[place] === UNUSED ? "unused" : null;
      this.#items[place] = { ...parameter, place, facts, entries: newest, without };
    });
  }

  #putInOrder(): void {
    const fits = matcher(this.#search.value);
    const shown = this.#items.filter(({ name, facts }) => fits(name) && (!this.#isFlaggedOnly || facts.notes.length > 0));
    this.#order = sorted(shown, this.#sort, this.#dtype).map(({ place }) => place);
  }

  #say(): void {
    const { run, catchingUp, error, scale, skipped, missing } = this.feed;
    setText(this.#where, run.iteration ? (run.nothing ?? `after iteration ${format.count(run.iteration - 1)}`) : "");
    setLine(this.#catching, catchingUp ? "catching up …" : null);
    setLine(this.#error, error && `gradviz could not draw: ${error}`);
    const flagged = this.#items.filter(({ facts }) => facts.notes.length).length;
    setText(this.#flags, this.#items.length ? (flagged ? `${format.many(flagged, "row")} flagged` : "all dtypes go together") : "");
    const devices = this.#devices();
    const more = [devices.length === 1 ? `all on ${devices[0]}` : "", scale !== null && scale !== 1 ? `loss scale ${scaleText(scale)}` : "", skipped ? `${format.many(skipped, "step")} skipped` : "", missing ? `without the entries of ${format.many(missing, "gradient")}` : ""];
    setText(this.#scaleText, more.filter(Boolean).map((text) => ` · ${text}`).join(""));
    this.#dtypes.forEach((each, place) => press(each, place === this.#dtype));
    press(this.#onlyFlagged, this.#isFlaggedOnly);
  }

  #devices(): string[] {
    return [...new Set(this.#items.flatMap(({ facts }) => [facts.parameter, facts.gradient, facts.master, ...facts.state.map(([, form]) => form)].flatMap((form) => form?.device ?? [])))];
  }

  /** Columns that would say nothing, or the same of every parameter. */
  #hidden(): Set<string> {
    const items = this.#items;
    const hidden = new Set<string>();
    if (this.#devices().length < 2) hidden.add("device");
    for (const key of ["master", "activation"] as const) {
      const column = COLUMNS.find((each) => each.key === key)!;
      if (items.every((item) => column.cell(item, 0).look === "muted")) hidden.add(key);
    }
    return hidden;
  }

  #nothing(): string {
    const { run, newest } = this.feed;
    if (!newest) return run.nothing!;
    if (!this.#items.length) return (run.iteration && run.nothing) || "nothing is recorded yet: dtypes come with the first iteration";
    return this.#search.value.trim() ? "no parameter has such a name" : "no row is flagged";
  }
}
