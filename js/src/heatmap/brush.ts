// What is selected: parameters and iterations. It is brushed in one view, seen in all, and known to Python.
import { element } from "../kit/element";
import type { Lens } from "../time/lens";
import type { Layout } from "../rows/rows";
import { firstBelow, PITCH } from "../rows/rows";
import type { Columns } from "../data/wire";

export interface Selection {
  parameters: readonly string[];
  /** [start, stop). */
  iterations: readonly [number, number];
}

/** A corner of what is brushed: css pixels from the left edge and the top of the cells. */
export interface Corner {
  x: number;
  y: number;
}

/** The rows and the whole columns that lie between two corners; null where there are none. */
export function between(a: Corner, b: Corner, layout: Layout, names: readonly string[], lens: Lens, columns: Columns): Selection | null {
  const [top, bottom] = [Math.min(a.y, b.y), Math.max(a.y, b.y)];
  const rows = layout.rows.slice(firstBelow(layout.rows, top)).filter((row) => row.top <= bottom);
  const [from, to] = [Math.min(a.x, b.x), Math.max(a.x, b.x)].map((x) => lens.at(x)) as [number, number];
  let [start, stop] = [Infinity, -Infinity];
  for (let c = 0; c < columns.count; c++) {
    if (columns.start[c]! > to || columns.stop[c]! <= from) continue;
    start = Math.min(start, columns.start[c]!);
    stop = Math.max(stop, columns.stop[c]!);
  }
  const parameters = rows.flatMap((row) => row.members.map((place) => names[place]!));
  return parameters.length && start < stop ? { parameters, iterations: [start, stop] } : null;
}

/** The boxes around what is selected: one for each run of rows that stand together. */
export class SelectionBoxes {
  readonly element = element("div", "gv-selection", { "aria-hidden": "true" });

  update(selection: Selection | null, { rows }: Layout, names: readonly string[], { extent, width }: Lens): void {
    const edge = (iteration: number): number => Math.max(0, Math.min(width, ((iteration - extent.start) * width) / extent.span));
    const [left, right] = selection ? (selection.iterations.map(edge) as [number, number]) : [0, 0];
    const chosen = new Set(selection?.parameters);
    const boxes: HTMLElement[] = [];
    for (let i = 0; right > left && i < rows.length; i++) {
      const isIn = (row: number): boolean => rows[row]?.members.some((place) => chosen.has(names[place]!)) ?? false;
      if (!isIn(i)) continue;
      const { top } = rows[i]!;
      while (isIn(i + 1)) i += 1;
      const box = element("i", "");
      box.style.cssText = `top:${top - 1}px;height:${rows[i]!.top + PITCH - top + 1}px;left:${left}px;width:${right - left}px`;
      boxes.push(box);
    }
    this.element.replaceChildren(...boxes);
  }
}
