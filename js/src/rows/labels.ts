// The names beside the lanes. Long names keep their end, which is what tells them apart.
import { element, setText } from "../kit/element";
import { Ruler } from "../kit/measure";
import { unitsOf } from "./folds";
import type { Header, Row } from "./rows";
import { fitEnd, layOut, PITCH, placeOf } from "./rows";
import type { Parameter } from "../data/store";
import { listen } from "../kit/listen";

/** Css pixels: the dtype's column with its gap, a fold's triangle, and what "loss 0.214" needs. */
const NOTE = 33;
const TRIANGLE = 14;
const NARROWEST = 84;

export class Labels {
  readonly element = element("div", "gv-labels");
  readonly #ruler = new Ruler();
  readonly measure = this.#ruler.measure;
  /** The name of the parameter that is looked into. */
  focused = "";
  /** What the names of these parameters need, under headers and whole. */
  #needed: number[] = [];
  #measured: readonly Parameter[] = [];
  #room = 0;
  #places: Place[] = [];

  /** `onFold`: a module is to be folded, or opened again; `onName`: a parameter is to be looked into. */
  constructor(onFold: (module: string, folded: boolean) => void, onName: (name: string) => void) {
    listen(this.element, "click", ({ target }) => {
      const { dataset, ariaExpanded } = (target as Element).closest<HTMLElement>("[data-module], [data-parameter]") ?? this.element;
      if (dataset.module) onFold(dataset.module, ariaExpanded === "true");
      else if (dataset.parameter) onName(dataset.parameter);
    });
  }

  /**
   * The width of the label column: what the names need, within a share of the widget. Of all of them, open: folding and
   * filtering move nothing sideways. `whole`: names stand without headers, which would tell alike ones apart.
   */
  width(parameters: readonly Parameter[], available: number, whole: boolean): number {
    if (this.#ruler.follow(this.element) || parameters !== this.#measured) this.#needed = [];
    this.#measured = parameters;
    const share = available < 560 ? 0.42 * available : Math.min(260, 0.3 * available);
    const needed = (this.#needed[Number(whole)] ??= this.#widest(parameters, whole));
    this.#room = Math.ceil(Math.max(NARROWEST, Math.min(needed + 1, share)));
    return this.#room;
  }

  #widest(parameters: readonly Parameter[], whole: boolean): number {
    const units = unitsOf(parameters, new Set());
    const { rows, headers } = layOut(whole ? units.map((unit) => ({ ...unit, block: "" })) : units);
    return Math.max(
      0,
      ...rows.map((row) => NOTE + this.measure(row.label)),
      ...headers.map((header) => NOTE + TRIANGLE + this.measure(header.label, "header")),
    );
  }

  /** Show these rows and headers. Places stay and are written anew: other elements would cost the page far more. */
  update(rows: readonly Row[], headers: readonly Header[]): void {
    const wanted = [...rows, ...headers];
    wanted.forEach((each, i) => {
      const kind = !("name" in each) ? "header" : each.folded ? "fold" : "parameter";
      let place = this.#places[i];
      if (place?.kind !== kind) {
        const made = placeFor(kind);
        if (place) place.element.replaceWith(made.element);
        else this.element.append(made.element);
        this.#places[i] = place = made;
      }
      this.#write(place, each);
    });
    for (const { element } of this.#places.splice(wanted.length)) element.remove();
  }

  #write(place: Place, shown: Row | Header): void {
    const { kind, element, name, text, note } = place;
    const { label, top } = shown;
    const isRow = "name" in shown;
    const path = isRow ? shown.name : label;
    const room = this.#room - (isRow ? NOTE : 0) - (kind === "parameter" ? 0 : TRIANGLE);
    const font = kind === "parameter" ? "name" : "header";
    setText(text, fitEnd(label, room, (t) => this.measure(t, font)));
    setText(note, isRow ? shown.note : "");
    element.title = path;
    if (isRow) element.dataset.parameter = path;
    element.classList.toggle("gv-focused", isRow && !placeOf([shown], this.focused));
    if (kind !== "parameter") name.dataset.module = path;
    // The gap below a row is not the row's: the label is centred on what is painted.
    const box = `top:${top}px;height:${isRow ? PITCH - 1 : shown.height}px`;
    if (box !== place.box) element.style.cssText = place.box = box;
  }
}

/** Where something is named: the header of a module that is open, one that is folded into a row, or a parameter. */
interface Place {
  kind: "header" | "fold" | "parameter";
  element: HTMLElement;
  name: HTMLElement;
  text: Text;
  note: Text;
  /** As it was last placed. */
  box: string;
}

function placeFor(kind: Place["kind"]): Place {
  const [text, note] = [new Text(), new Text()];
  // The name of a module opens and closes it. Keys do it too, so there is no stop for each in the order of tabs.
  const name =
    kind === "parameter"
      ? element("span", "gv-name", {}, text)
      : element("button", "gv-block", { type: "button", tabindex: "-1", "aria-expanded": String(kind === "header") }, element("i", "gv-triangle"), text);
  const made = kind === "header" ? name : element("div", "gv-label", {}, name, element("span", "gv-note-column", {}, note));
  return { kind, element: made, name, text, note, box: "" };
}
