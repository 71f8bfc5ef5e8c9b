// Where each parameter's row lies: blocks of a module, with a bold header where names are nested.
import type { Parameter } from "./store";

/** Css pixels. A row is PITCH high with one pixel of gap at its bottom. */
export const PITCH = 15;
const HEADER = 19;
/** Between modules that have no header. */
const GAP = 5;

export interface Row {
  index: number;
  name: string;
  /** The name as shown: without the block's prefix under a header. */
  label: string;
  dtype: string;
  top: number;
}

export interface Header {
  label: string;
  top: number;
  height: number;
}

export interface Layout {
  rows: Row[];
  headers: Header[];
  height: number;
}

/** "encoder.0.attn.weight" -> "encoder.0", "head.proj.weight" -> "head", "weight" -> "". */
export function blockOf(name: string): string {
  const path = name.split(".");
  if (path.length < 2) return "";
  return path.length > 2 && /^\d+$/.test(path[1]!) ? `${path[0]}.${path[1]}` : path[0]!;
}

export function layOut(parameters: readonly Parameter[]): Layout {
  const layout: Layout = { rows: [], headers: [], height: 0 };
  let top = 0;
  let index = 0;
  while (index < parameters.length) {
    const block = blockOf(parameters[index]!.name);
    let end = index;
    while (end < parameters.length && blockOf(parameters[end]!.name) === block) end += 1;
    const members = parameters.slice(index, end);
    const inner = (name: string): string => (block ? name.slice(block.length + 1) : name);
    const nested = block !== "" && members.some((p) => inner(p.name).includes("."));
    if (nested) {
      // The first header needs no air above it.
      const height = index ? HEADER : HEADER - 3;
      layout.headers.push({ label: block, top, height });
      top += height;
    } else if (index) {
      top += GAP;
    }
    for (const p of members) {
      layout.rows.push({ index, name: p.name, label: nested ? inner(p.name) : p.name, dtype: p.dtype, top });
      index += 1;
      top += PITCH;
    }
  }
  layout.height = top;
  return layout;
}

/** The row at a height; null over a header or a gap between modules. */
export function rowAt(layout: Layout, y: number): Row | null {
  let lo = 0;
  let hi = layout.rows.length - 1;
  while (lo <= hi) {
    const middle = (lo + hi) >> 1;
    const row = layout.rows[middle]!;
    if (y < row.top) hi = middle - 1;
    else if (y >= row.top + PITCH) lo = middle + 1;
    else return row;
  }
  return null;
}

/** A label that fits: whole, or its end after an ellipsis, cut at a dot where that costs little. */
export function fitEnd(label: string, width: number, measure: (text: string) => number): string {
  if (measure(label) <= width) return label;
  let cut = 1;
  while (cut < label.length - 1 && measure(`…${label.slice(cut)}`) > width) cut += 1;
  const dot = label.indexOf(".", cut - 1);
  // Up to four characters more are worth a whole component: "…out.weight", not "….out.weight".
  if (dot >= 0 && dot - cut < 4 && dot < label.length - 1) cut = dot + 1;
  return `…${label.slice(cut)}`;
}
