// What shows where the crosshair is: a line through all lanes, a box around the row and one around the cell, and the
// tooltip. These are elements above the canvases: looking never repaints data.
import type { Description } from "../kit/tooltip";
import { element } from "../kit/element";
import { PITCH } from "../rows/rows";
import { Tooltip } from "../kit/tooltip";

/** The places it works in, all inside the widget's root. */
export interface Places {
  root: HTMLElement;
  lanes: HTMLElement;
  scroll: HTMLElement;
  region: HTMLElement;
  plot: HTMLElement;
  lossLane: HTMLElement;
}

export class Cursor {
  readonly #line = element("div", "gv-line");
  readonly #rowBox = element("div", "gv-row-box");
  readonly #cellBox = element("div", "gv-cell-box");
  readonly #tooltip = new Tooltip();

  constructor(private readonly places: Places) {
    const { root, lanes, plot } = places;
    lanes.append(this.#line);
    plot.append(this.#rowBox, this.#cellBox);
    root.append(this.#tooltip.element);
    this.hide();
  }

  hide(): void {
    this.#line.hidden = this.#rowBox.hidden = this.#cellBox.hidden = true;
    this.#tooltip.hide();
  }

  /** Around a cell, in css pixels from the left edge and the top of all cells; `top` is null for the loss. */
  show(description: Description, left: number, right: number, top: number | null): void {
    const { root, lanes, plot, lossLane } = this.places;
    const middle = (left + right) / 2;
    const [plotBox, rootBox, lanesBox] = [plot, root, lanes].map((each) => each.getBoundingClientRect()) as [DOMRect, DOMRect, DOMRect];
    this.#line.style.left = `${plotBox.left - lanesBox.left + middle}px`;
    // The line stops short of the cell, which is to be seen.
    this.#line.style.setProperty("--gv-hole", `${top === null ? -1 : plotBox.top - lanesBox.top + top}px`);
    this.#line.hidden = false;
    this.#rowBox.hidden = this.#cellBox.hidden = top === null;
    this.#rowBox.style.top = `${top}px`;
    const width = Math.max(3, right - left);
    this.#cellBox.style.cssText = `top:${top}px;left:${middle - width / 2}px;width:${width}px`;
    const y = top === null ? lossLane.getBoundingClientRect().bottom - rootBox.top - 8 : plotBox.top - rootBox.top + top + PITCH / 2;
    this.#tooltip.show(description, plotBox.left - rootBox.left + middle, y, root);
  }
}
