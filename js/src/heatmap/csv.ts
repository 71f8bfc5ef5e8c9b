// The numbers that are shown, as CSV: a line for each column in view, a number for each row, as History.norms has them.
import { lookIn, Look } from "../data/looks";
import { mergeCell } from "../data/lanes";
import type { Cell } from "../data/lanes";
import type { Scale } from "../data/colour";
import { columnsIn } from "../data/pixels";
import type { Scene } from "./scene";

/** Nothing where there is no number; infinite entries of either sign make a norm infinite. */
function number(scale: Scale, rounded: boolean | undefined, { max, min, flags }: Cell): string {
  const value = scale.shown(max, min);
  switch (lookIn(scale, value, flags)) {
    case Look.nan:
      return "nan";
    case Look.posinf:
      return "inf";
    case Look.neginf:
      return scale.signed ? "-inf" : "inf";
    case Look.bothinf:
      return scale.signed ? "nan" : "inf";
    case Look.zero:
      return "0";
    case Look.value:
    case Look.value_not_optimized:
      // No more digits than are known.
      return String(rounded ? Number(value.toPrecision(3)) : value);
    default:
      return "";
  }
}

const quoted = (name: string): string => `"${name.replaceAll('"', '""')}"`;

export function csv({ quantity, columns, pixels, layout, exact, scale, laneOf }: Scene): string {
  const { start, stop } = columns;
  const lanes = layout.rows.map(laneOf);
  const lines = [["iteration", "last_iteration", ...layout.rows.map((row) => quoted(row.name))]];
  const [from, to] = columnsIn(columns, pixels.extent);
  for (let c = from; c < to; c++) {
    const last = exact ? start[c]! : stop[c]! - 1;
    lines.push([String(start[c]), String(last), ...lanes.map((lane) => number(scale, quantity.rounded, mergeCell(lane, c, c)))]);
  }
  return lines.map((line) => `${line.join()}\n`).join("");
}
