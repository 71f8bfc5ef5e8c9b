// The numbers in view as a table, for those who do not see the picture. It is made when it is opened, and stays as it is:
// what changes while it is read cannot be read.
import { element } from "../kit/element";
import * as format from "../kit/format";
import { mergeCell } from "../data/lanes";
import type { Cell } from "../data/lanes";
import { words } from "../data/looks";
import { columnsIn } from "../data/pixels";
import type { Scene } from "./scene";
import { listen } from "../kit/listen";

export class Numbers {
  readonly #table = element("table", "");
  readonly element = element("details", "gv-numbers", {}, element("summary", "", {}, "Numbers as a table"), this.#table);

  constructor(scene: () => Scene | null) {
    listen(this.element, "toggle", () => {
      const shown = this.element.open && scene();
      this.#table.replaceChildren(...(shown ? rows(shown) : []));
    });
  }
}

function rows({ quantity, columns, pixels, layout, laneOf }: Scene): HTMLElement[] {
  const [from, to] = columnsIn(columns, pixels.extent);
  const when = from < to ? format.iterations(columns.start[from]!, columns.stop[to - 1]!) : "nothing recorded";
  const line = (name: string, ...cells: string[]): HTMLElement =>
    element("tr", "", {}, element("th", "", { scope: "row" }, name), ...cells.map((cell) => element("td", "", {}, cell)));
  return [
    element("caption", "", {}, `${quantity.title}, ${when}`),
    element("tr", "", {}, ...[quantity.of, "newest", "largest", "smallest", "seen"].map((head) => element("th", "", { scope: "col" }, head))),
    ...layout.rows.map((row) => {
      const lane = laneOf(row);
      const all = mergeCell(lane, from, to - 1);
      return line(row.name, newest(mergeCell(lane, Math.max(from, to - 1), to - 1)), value(all.max), value(all.min), words(all.flags, all.max > 0, quantity.where).join(", "));
    }),
  ];
}

const value = (number: number): string => (Number.isNaN(number) ? "–" : format.precise(number));

const newest = ({ max, flags }: Cell): string => [value(max), ...words(flags, false)].join(", ");
