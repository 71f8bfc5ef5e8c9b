// Selecting rows and columns with the pointer or the keys, and the boxes around what is selected.
import { boxOf, element, UNSPOKEN } from "../kit/element";
import { onDrag } from "../kit/drag";
import type { Drag } from "../kit/drag";
import type { Plot } from "./plot";
import type { Spot } from "./scene";
import type { Lens } from "../time/lens";
import type { Layout } from "../rows/rows";
import { firstBelow, PITCH } from "../rows/rows";
import type { Selection } from "../data/selection";
import type { Source } from "../data/source";
import type { Store } from "../data/store";
import type { Columns } from "../data/wire";

/** A pointer that goes less far than this, in css pixels, has clicked. */
const CLICK = 4;

/** A corner of what is brushed: css pixels from the left edge and the top of the cells. */
export interface Corner {
  x: number;
  y: number;
}

export class Brush {
  readonly #boxes = element("div", "gv-selection", UNSPOKEN);

  /** `onClick`: the pointer was pressed and went nowhere. */
  constructor(
    private readonly store: Store,
    private readonly source: Source,
    private readonly lens: Lens,
    private readonly plot: Plot,
    onClick: (event: PointerEvent) => void,
    signal: AbortSignal,
  ) {
    const { cells } = plot;
    cells.append(this.#boxes);
    const begin = (down: PointerEvent): Drag => {
      const box = boxOf(cells);
      const corner = (event: PointerEvent): Corner => ({ x: event.clientX - box.left, y: event.clientY - box.top });
      let isBrush = false;
      return {
        move: (event) => {
          isBrush ||= Math.hypot(event.clientX - down.clientX, event.clientY - down.clientY) >= CLICK;
          if (isBrush) this.#select(corner(down), corner(event));
        },
        end: (event) => !isBrush && onClick(event),
      };
    };
    onDrag(cells, begin, signal);
  }

  /** Select from one cell to another. */
  cells(from: Spot, to: Spot): void {
    this.#select(this.#middleOf(from), this.#middleOf(to));
  }

  update(): void {
    const { store, plot, lens } = this;
    this.#boxes.replaceChildren(...boxes(store.selection, plot.layout, store.names, lens));
  }

  #select(from: Corner, to: Corner): void {
    const { store, source, plot, lens } = this;
    store.select(between(from, to, plot.layout, store.names, lens, source.columnsFor(lens.extent).columns));
  }

  #middleOf({ row, iteration }: Spot): Corner {
    const { extent, width } = this.lens;
    return { x: ((iteration + 0.5 - extent.start) * width) / extent.span, y: this.plot.layout.rows[row]!.top + 1 };
  }
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

/** One box for each run of rows that stand together. */
function boxes(selection: Selection | null, { rows }: Layout, names: readonly string[], { extent, width }: Lens): HTMLElement[] {
  const edge = (iteration: number): number => Math.max(0, Math.min(width, ((iteration - extent.start) * width) / extent.span));
  const [left, right] = selection ? (selection.iterations.map(edge) as [number, number]) : [0, 0];
  const chosen = new Set(selection?.parameters);
  const made: HTMLElement[] = [];
  for (let i = 0; right > left && i < rows.length; i++) {
    const isIn = (row: number): boolean => rows[row]?.members.some((place) => chosen.has(names[place]!)) ?? false;
    if (!isIn(i)) continue;
    const { top } = rows[i]!;
    while (isIn(i + 1)) i += 1;
    const box = element("i", "");
    box.style.cssText = `top:${top - 1}px;height:${rows[i]!.top + PITCH - top + 1}px;left:${left}px;width:${right - left}px`;
    made.push(box);
  }
  return made;
}
