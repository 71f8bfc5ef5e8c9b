// Where each row lies: blocks of a module, with a bold header where names are nested.
import { firstPlace } from "../kit/bisect";
import type { Unit } from "./folds";
import { isInside } from "./folds";

/** Css pixels. A row is PITCH high with one pixel of gap at its bottom. */
export const PITCH = 15;
const HEADER = 19;
/** Between modules that have no header. */
const GAP = 5;

export interface Row extends Unit {
  /** The name as shown: without the block's prefix under a header. */
  label: string;
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

export function layOut(units: readonly Unit[]): Layout {
  const layout: Layout = { rows: [], headers: [], height: 0 };
  let top = 0;
  let wasFolded = false;
  for (let index = 0; index < units.length; ) {
    const { block, folded } = units[index]!;
    let end = index + 1;
    if (!folded) while (end < units.length && !units[end]!.folded && units[end]!.block === block) end += 1;
    const members = units.slice(index, end);
    const inner = (name: string): string => (block ? name.slice(block.length + 1) : name);
    const nested = block !== "" && members.some((unit) => inner(unit.name).includes("."));
    if (nested) {
      // The first header needs no air above it.
      const height = index ? HEADER : HEADER - 3;
      layout.headers.push({ label: block, top, height });
      top += height;
    } else if (index && !(folded && wasFolded)) {
      top += GAP;
    }
    for (const unit of members) {
      layout.rows.push({ ...unit, label: nested ? inner(unit.name) : unit.name, top });
      top += PITCH;
    }
    wasFolded = folded;
    index = end;
  }
  layout.height = top;
  return layout;
}

/** The place of the first row that ends below a height. */
export const firstBelow = (rows: readonly Row[], y: number): number => firstPlace(rows.length, (place) => rows[place]!.top + PITCH > y);

/** The place of the row at a height; null over a header or a gap between modules. */
export function rowAt({ rows }: Layout, y: number): number | null {
  const place = firstBelow(rows, y);
  return place < rows.length && rows[place]!.top <= y ? place : null;
}

/** The place of the row of this name, or of the module that it was folded into; -1 where there is none. */
export const placeOf = (rows: readonly Unit[], name: string): number => rows.findIndex((row) => row.name === name || (row.folded && isInside(name, row.name)));

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
