// The names beside the lanes. Long names keep their end, which is what tells them apart.
import { element } from "./element";
import * as format from "./format";
import type { Layout } from "./rows";
import { fitEnd, PITCH } from "./rows";

/** Css pixels: the dtype's column with its gap, and what "loss 0.214" needs. */
const DTYPE = 33;
const NARROWEST = 84;

const FONTS = {
  name: "11.5px",
  header: "600 11.5px",
  axis: "11px",
} as const;

export class Labels {
  readonly element = element("div", "gv-labels");
  private readonly context = document.createElement("canvas").getContext("2d")!;
  private readonly sizes = new Map<string, number>();
  private family = "";
  private room = 0;

  /** Width of a text in the font of labels, headers or the axis. */
  measure = (text: string, font: keyof typeof FONTS = "name"): number => {
    const key = `${font} ${text}`;
    let size = this.sizes.get(key);
    if (size === undefined) {
      this.context.font = `${FONTS[font]} ${this.family}`;
      size = this.context.measureText(text).width;
      if (this.sizes.size > 20000) this.sizes.clear();
      this.sizes.set(key, size);
    }
    return size;
  };

  /** The width of the label column: what the names need, within a share of the widget. */
  width(layout: Layout, available: number): number {
    const family = getComputedStyle(this.element).fontFamily;
    if (family !== this.family) this.sizes.clear();
    this.family = family;
    const share = available < 560 ? 0.42 * available : Math.min(260, 0.3 * available);
    const needed = Math.max(0, ...layout.rows.map((row) => this.measure(row.label))) + DTYPE;
    this.room = Math.ceil(Math.max(NARROWEST, Math.min(needed + 1, share)));
    return this.room;
  }

  update(layout: Layout): void {
    const fit = (text: string, room: number, font: keyof typeof FONTS): string => fitEnd(text, room, (t) => this.measure(t, font));
    this.element.replaceChildren(
      ...layout.headers.map(({ label, top, height }) => {
        const header = element("div", "gv-block", { title: label }, fit(label, this.room, "header"));
        header.style.cssText = `top:${top}px;height:${height}px`;
        return header;
      }),
      ...layout.rows.map(({ name, label, dtype, top }) => {
        const row = element(
          "div",
          "gv-label",
          { "data-parameter": name, title: name },
          element("span", "gv-name", {}, fit(label, this.room - DTYPE, "name")),
          element("span", "gv-dtype", {}, format.shortDtype(dtype)),
        );
        // The gap below the row is not the row's: the label is centred on what is painted.
        row.style.cssText = `top:${top}px;height:${PITCH - 1}px`;
        return row;
      }),
    );
  }
}
