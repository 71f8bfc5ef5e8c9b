// What shows where the crosshair is: a line through all lanes, a box around the row and one around the cell, and the
// tooltip. These are elements above the canvases: looking never repaints data.
import type { Description } from "../kit/tooltip";
import { element } from "../kit/element";
import { PITCH } from "../rows/rows";
import { tooltip } from "../kit/tooltip";

/** The places it works in, all inside the widget's root. */
export interface Places {
  root: HTMLElement;
  lanes: HTMLElement;
  scroll: HTMLElement;
  region: HTMLElement;
  plot: HTMLElement;
  lossLane: HTMLElement;
}

export interface Cursor {
  /** Around a cell, in css pixels from the left edge and the top of all cells; `top` is null for the loss. */
  show(description: Description, left: number, right: number, top: number | null): void;
  hide(): void;
}

export function cursorIn({ root, lanes, plot, lossLane }: Places): Cursor {
  const line = element("div", "gv-line");
  const rowBox = element("div", "gv-row-box");
  const cellBox = element("div", "gv-cell-box");
  const words = tooltip();
  lanes.append(line);
  plot.append(rowBox, cellBox);
  root.append(words.element);

  const hide = (): void => {
    line.hidden = rowBox.hidden = cellBox.hidden = true;
    words.hide();
  };
  hide();

  return {
    hide,

    show(description, left, right, top) {
      const middle = (left + right) / 2;
      const [plotBox, rootBox, lanesBox] = [plot, root, lanes].map((each) => each.getBoundingClientRect()) as [DOMRect, DOMRect, DOMRect];
      line.style.left = `${plotBox.left - lanesBox.left + middle}px`;
      // The line stops short of the cell, which is to be seen.
      line.style.setProperty("--gv-hole", `${top === null ? -1 : plotBox.top - lanesBox.top + top}px`);
      line.hidden = false;
      rowBox.hidden = cellBox.hidden = top === null;
      rowBox.style.top = `${top}px`;
      const width = Math.max(3, right - left);
      cellBox.style.cssText = `top:${top}px;left:${middle - width / 2}px;width:${width}px`;
      const y = top === null ? lossLane.getBoundingClientRect().bottom - rootBox.top - 8 : plotBox.top - rootBox.top + top + PITCH / 2;
      words.show(description, plotBox.left - rootBox.left + middle, y, root);
    },
  };
}
