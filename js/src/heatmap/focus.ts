// What is looked into, here or in another widget of the run: its row is marked. Where it was chosen elsewhere, row and
// iteration come into view.
import type { Crosshair } from "./crosshair";
import type { Link, Of } from "../data/link";
import { element, UNSPOKEN } from "../kit/element";
import { part } from "../kit/extent";
import type { Plot } from "./plot";
import type { Modules } from "../rows/modules";
import { placeOf } from "../rows/rows";
import type { Lens } from "../time/lens";

export class FocusedRow {
  readonly #box = element("div", "gv-row-box gv-focus-box", UNSPOKEN);
  /** Whether it is still to be brought into view. */
  #isNews = false;

  constructor(
    private readonly link: Link,
    private readonly of: Of,
    private readonly plot: Plot,
  ) {
    plot.cells.append(this.#box);
  }

  /** Of the parameter; "" where none is looked into. */
  get name(): string {
    return this.link.focused(this.of);
  }

  /** It was chosen elsewhere: open the modules that it is folded into. */
  unfold(modules: Modules): void {
    this.#isNews = true;
    for (;;) {
      const unit = modules.units[placeOf(modules.units, this.name)];
      if (!unit?.folded) return;
      modules.open(unit.name);
    }
  }

  /** Rows are laid out: mark the one that is meant. */
  update(lens: Lens, { reveal }: Crosshair): void {
    const row = this.plot.layout.rows[placeOf(this.plot.layout.rows, this.name)];
    this.#box.hidden = !row;
    if (!row) return;
    this.#box.style.top = `${row.top}px`;
    if (!this.#isNews) return;
    this.#isNews = false;
    reveal(row.top);
    const iteration = this.link.shared.focus!.iteration;
    const { start, span } = lens.extent;
    if (iteration !== null && (iteration < start || iteration >= start + span)) lens.to(part(iteration - span / 2, iteration + span / 2, lens.whole));
  }
}
