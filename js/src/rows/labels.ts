// The names beside the lanes. Long names keep their end, which is what tells them apart.
import { element } from "../kit/element";
import type { Font } from "../kit/measure";
import { Ruler } from "../kit/measure";
import { unitsOf } from "./folds";
import type { Header, Row } from "./rows";
import { fitEnd, layOut, PITCH } from "./rows";
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
  /** What the names of these parameters need, under headers and whole. */
  #needed: number[] = [];
  #measured: readonly Parameter[] = [];
  #room = 0;

  /** `onFold`: a module is to be folded, or opened again. */
  constructor(onFold: (module: string, folded: boolean) => void) {
    listen(this.element, "click", (event) => {
      const target = (event.target as Element).closest<HTMLElement>("[data-module]");
      if (target) onFold(target.dataset.module!, target.getAttribute("aria-expanded") === "true");
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

  /** Show these rows and headers. */
  update(rows: readonly Row[], headers: readonly Header[]): void {
    this.element.replaceChildren(...headers.map((header) => this.#header(header)), ...rows.map((row) => this.#row(row)));
  }

  #header({ label, top, height }: Header): HTMLElement {
    const made = module(label, true, this.#fit(label, this.#room - TRIANGLE, "header"));
    made.style.cssText = `top:${top}px;height:${height}px`;
    return made;
  }

  #row({ name, label, note, folded, top }: Row): HTMLElement {
    const text = folded
      ? module(name, false, this.#fit(label, this.#room - NOTE - TRIANGLE, "header"))
      : element("span", "gv-name", {}, this.#fit(label, this.#room - NOTE, "name"));
    const made = element("div", "gv-label", { "data-parameter": name, title: name }, text, element("span", "gv-note-column", {}, note));
    // The gap below the row is not the row's: the label is centred on what is painted.
    made.style.cssText = `top:${top}px;height:${PITCH - 1}px`;
    return made;
  }

  #fit(text: string, room: number, font: Font): string {
    return fitEnd(text, room, (t) => this.measure(t, font));
  }
}

/** The name of a module, which opens and closes it. Keys do it too, so there is no stop for each in the order of tabs. */
function module(path: string, isOpen: boolean, text: string): HTMLButtonElement {
  return element(
    "button",
    "gv-block",
    { type: "button", tabindex: "-1", "aria-expanded": String(isOpen), "data-module": path, title: path },
    element("i", "gv-triangle"),
    text,
  );
}
