// What the mask and the other widgets of its run in the page tell each other: the iteration that is pointed at, the
// parameter that is looked into, and which ones are selected.
import { element, UNSPOKEN } from "../kit/element";
import type { Link } from "../data/link";
import { isInside } from "../rows/folds";
import type { Lens } from "../time/lens";
import type { Plot } from "./plot";
import type { MaskStore } from "./store";

export class Told {
  readonly #line = element("div", "gv-line gv-told", UNSPOKEN);
  readonly #link: Link;
  /** Whether the iteration is pointed at here: then there is a line already. */
  #isHere = false;

  constructor(
    store: MaskStore,
    private readonly plot: Plot,
    private readonly lens: Lens,
    signal: AbortSignal,
  ) {
    plot.cells.append(this.#line);
    this.#link = store.link(() => this.update(), signal);
  }

  point(iteration: number | null): void {
    this.#isHere = iteration !== null;
    this.#link.tell("cursor", iteration === null ? null : { iteration });
  }

  look(name: string): void {
    this.#link.look("parameters", name);
  }

  update(): void {
    const { cursor, selection } = this.#link.shared;
    const { extent, width } = this.lens;
    const x = cursor && !this.#isHere ? ((cursor.iteration + 0.5 - extent.start) * width) / extent.span : -1;
    this.#line.hidden = x < 0 || x > width;
    this.#line.style.left = `${x}px`;
    const focused = this.#link.focused("parameters");
    const selected = new Set(selection?.of === "parameters" ? selection.parameters : []);
    this.plot.eachShown(({ name, open }, names, box) => {
      box.classList.toggle("gv-focused", name === focused || (open === false && isInside(focused, name)));
      box.classList.toggle("gv-selected", names.some((each) => selected.has(each)));
    });
  }
}
