// The table itself: heads that sort, and a row for each parameter, of which only what has changed is touched.
import { describeBars, HEIGHT, paintBars, WIDTH } from "./bars";
import type { Inks } from "./bars";
import type { Column, Item, Order } from "./columns";
import { COLUMNS, NOTHING } from "./columns";
import { element, setText } from "../kit/element";

/** What all cells are shown by. */
export interface Shown {
  dtype: number;
  theme: Inks;
  dpr: number;
}

export class Table {
  readonly #heads = new Map<string, HTMLTableCellElement>();
  // Rows become blocks where there is little room: their roles are said, so that they stay a table all the same.
  readonly #body = element("tbody", "", { role: "rowgroup" });
  readonly #empty = element("div", "gv-nothing", { role: "status" });
  readonly element: HTMLElement;
  readonly #rows = new Map<number, Row>();
  readonly #seen: IntersectionObserver;
  readonly #rowOf = new WeakMap<Element, Row>();
  #shown: Shown | null = null;

  /** `onName`: a parameter is to be looked into. */
  constructor(onSort: (column: Column) => void, onName: (name: string) => void, signal: AbortSignal) {
    const heads = COLUMNS.map((column) => {
      const sort = element("button", "gv-sort", { type: "button", title: `${column.tooltip}. Press to sort.` }, column.title, element("i", "gv-arrow"));
      sort.addEventListener("click", () => onSort(column));
      const head = element("th", "", { role: "columnheader", scope: "col", "data-column": column.key }, sort);
      head.classList.toggle("gv-number", !!column.isNumber);
      this.#heads.set(column.key, head);
      return head;
    });
    const head = element("thead", "", { role: "rowgroup" }, element("tr", "", { role: "row" }, ...heads));
    const table = element("table", "gv-table", { role: "table", "aria-label": "dtypes of the parameters" }, head, this.#body);
    this.#body.addEventListener("click", ({ target }) => {
      const row = (target as Element).closest(".gv-parameter")?.closest<HTMLElement>("tr");
      if (row) onName(row.dataset.parameter!);
    });
    // It scrolls, so that it must be reached by keys.
    this.element = element("div", "gv-table-box", { tabindex: "0", role: "region", "aria-label": "dtypes of the parameters, scrollable" }, table, this.#empty);
    this.#seen = new IntersectionObserver((entries) => {
      for (const { target, isIntersecting } of entries) this.#rowOf.get(target)?.see(isIntersecting, this.#shown);
    });
    signal.addEventListener("abort", () => this.#seen.disconnect());
  }

  /** Show these, in this order; `nothing`: what to say where there are none. */
  update(items: readonly Item[], shown: Shown, order: Order | null, hidden: ReadonlySet<string>, nothing: string): void {
    this.#shown = shown;
    for (const [key, head] of this.#heads) {
      const way = order?.key === key ? order.way : 0;
      head.setAttribute("aria-sort", way > 0 ? "ascending" : way < 0 ? "descending" : "none");
      head.hidden = hidden.has(key);
    }
    const rows = items.map((item) => this.#row(item));
    const by = [shown.dtype, shown.dpr, ...Object.values(shown.theme), ...hidden].join();
    items.forEach((item, i) => rows[i]!.update(item, shown, hidden, by));
    const { children } = this.#body;
    const isSame = rows.length === children.length && rows.every((row, i) => row.element === children[i]);
    if (!isSame) this.#body.replaceChildren(...rows.map((row) => row.element));
    this.#empty.hidden = items.length > 0;
    setText(this.#empty, items.length ? "" : nothing);
  }

  /** Mark the row of the parameter that is looked into, and those that are selected. */
  mark(focused: string, selected: ReadonlySet<string>): void {
    for (const { element } of this.#rows.values()) {
      element.classList.toggle("gv-focused", element.dataset.parameter === focused);
      element.classList.toggle("gv-selected", selected.has(element.dataset.parameter!));
    }
  }

  #row({ place }: Item): Row {
    let row = this.#rows.get(place);
    if (!row) {
      row = new Row();
      this.#rows.set(place, row);
      this.#rowOf.set(row.element, row);
      this.#seen.observe(row.element);
    }
    return row;
  }
}

class Row {
  readonly #name = element("span", "gv-parameter");
  readonly #notes = element("ul", "gv-notes");
  readonly #bars = element("canvas", "gv-bars", { role: "img", width: String(WIDTH), height: String(HEIGHT) });
  readonly #cells = new Map<string, HTMLElement>();
  readonly element = element("tr", "", { role: "row" });
  #item: Item | null = null;
  #by = "";
  #isSeen = false;
  #isPainted = false;

  constructor() {
    for (const { key, title, isNumber } of COLUMNS) {
      const isName = key === "name";
      const cell = isName
        ? element("th", "", { role: "rowheader", scope: "row" }, this.#name, this.#notes)
        : element("td", "", { role: "cell", "data-title": title }, element("span", ""), ...(key === "bars" ? [this.#bars] : []));
      cell.dataset.column = key;
      cell.classList.toggle("gv-number", !!isNumber);
      this.#cells.set(key, cell);
    }
    this.element.append(...this.#cells.values());
  }

  /** `by`: another one whenever the same item is to be shown in another way. */
  update(item: Item, shown: Shown, hidden: ReadonlySet<string>, by: string): void {
    if (item === this.#item && by === this.#by) return;
    if (item.name !== this.#item?.name) this.#setName(item.name);
    this.#item = item;
    this.#by = by;
    this.#isPainted = false;
    const { notes } = item.facts;
    this.element.classList.toggle("gv-flagged", notes.length > 0);
    this.#notes.hidden = !notes.length;
    const texts = notes.map(({ text }) => text);
    if (texts.join("\n") !== [...this.#notes.children].map((each) => each.textContent).join("\n")) {
      this.#notes.replaceChildren(...texts.map((text) => element("li", "", {}, text)));
    }
    const flagged = new Set(notes.flatMap(({ of }) => of));
    for (const column of COLUMNS) {
      const cell = this.#cells.get(column.key)!;
      cell.hidden = hidden.has(column.key);
      if (column.key === "name") continue;
      const { text, title = "", look } = column.cell(item, shown.dtype);
      setText(cell.firstElementChild as HTMLElement, text);
      if (cell.title !== title) cell.title = title;
      cell.toggleAttribute("data-nothing", text === NOTHING.text);
      cell.dataset.look = flagged.has(column.key) ? "warn" : (look ?? "");
    }
    this.#bars.hidden = !item.entries || item.without !== null;
    if (item.entries) this.#bars.setAttribute("aria-label", describeBars(item.entries));
    this.#paint(shown);
  }

  see(isSeen: boolean, shown: Shown | null): void {
    this.#isSeen = isSeen;
    if (shown) this.#paint(shown);
  }

  /** Canvases that nobody sees are not painted: a thousand of them take memory. */
  #paint({ dtype, theme, dpr }: Shown): void {
    const entries = this.#item?.entries;
    if (!this.#isSeen || this.#isPainted || !entries || this.#bars.hidden) return;
    this.#isPainted = true;
    paintBars(this.#bars, entries, dtype, theme, dpr);
  }

  /** A long name may go on in another line, after a dot. */
  #setName(name: string): void {
    const parts = name.split(/(?<=\.)/);
    this.#name.replaceChildren(...parts.flatMap((part, i) => (i ? [element("wbr", ""), part] : [part])));
    this.element.dataset.parameter = name;
  }
}
