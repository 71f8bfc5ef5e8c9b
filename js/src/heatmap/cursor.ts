// What shows where the crosshair is: a line through all lanes, a box around the row and one around the cell, and the
// tooltip. These are elements above the canvases: looking never repaints data.
import type { Description } from "../kit/tooltip";
import { boxOf, element } from "../kit/element";
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
  /** The line alone, through all lanes. */
  follow(left: number, right: number): void;
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

  /** `hole`: where the line stops short of a cell, which is to be seen. */
  const draw = (middle: number, hole: number): void => {
    line.style.left = `${boxOf(plot).left - boxOf(lanes).left + middle}px`;
    line.style.setProperty("--gv-hole", `${hole}px`);
    line.hidden = false;
  };
  const hide = (): void => {
    line.hidden = rowBox.hidden = cellBox.hidden = true;
    words.hide();
  };
  hide();

  return {
    hide,

    follow(left, right) {
      hide();
      draw((left + right) / 2, -99);
    },

    show(description, left, right, top) {
      const middle = (left + right) / 2;
      const [plotBox, rootBox, lanesBox] = [plot, root, lanes].map(boxOf) as [DOMRect, DOMRect, DOMRect];
      draw(middle, top === null ? -99 : plotBox.top - lanesBox.top + top);
      rowBox.hidden = cellBox.hidden = top === null;
      rowBox.style.top = `${top}px`;
      const width = Math.max(3, right - left);
      cellBox.style.cssText = `top:${top}px;left:${middle - width / 2}px;width:${width}px`;
      const y = top === null ? boxOf(lossLane).bottom - rootBox.top - 8 : plotBox.top - rootBox.top + top + PITCH / 2;
      words.show(description, plotBox.left - rootBox.left + middle, y, root);
    },
  };
}
