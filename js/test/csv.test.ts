import assert from "node:assert/strict";
import { test } from "node:test";
import { csv } from "../src/heatmap/csv";
import type { Scene } from "../src/heatmap/scene";
import { SCALES } from "../src/data/colour";
import { laneOf } from "../src/data/lanes";
import { placeColumns } from "../src/data/pixels";
import { decodeColumns, Flag } from "../src/data/wire";
import type { Column } from "./encode";
import { encode } from "./encode";

function textOf(columns: Column[], names: string[], scale = "norms", exact = true, rounded = false): string {
  const decoded = decodeColumns(encode(columns, names.length + 1));
  const rows = names.map((name, place) => ({ name, members: [place] }));
  const laneOfRow = ({ members }: { members: readonly number[] }) => laneOf(decoded, members[0]!);
  const pixels = placeColumns(decoded, { start: 0, span: 100 }, 100);
  return csv({ quantity: { rounded }, columns: decoded, layout: { rows }, pixels, exact, scale: SCALES[scale], laneOf: laneOfRow } as unknown as Scene);
}

test("a number is as exact as it is kept, and nothing stands where there is none", () => {
  const flags = [0, Flag.nan, Flag.neginf, Flag.zero, Flag.frozen];
  const text = textOf([{ start: 3, stop: 4, max: [0.1, NaN, NaN, 0, NaN, 1], flags: [...flags, 0] }], ["a", "b", "c", "d", "e"]);
  assert.equal(text, `iteration,last_iteration,"a","b","c","d","e"\n3,3,${Math.fround(0.1)},nan,inf,0,\n`);
});

test("of a rounded number there are no more digits than are known", () => {
  assert.match(textOf([{ start: 0, stop: 1, max: [0.123456, 1] }], ["a"], "norms", true, true), /\n0,0,0.123\n/);
});

test("signs are kept where they mean something", () => {
  const flags = [0, Flag.neginf, Flag.posinf | Flag.neginf, 0];
  assert.match(textOf([{ start: 0, stop: 1, max: [-0.5, NaN, NaN, 1], flags }], ["a", "b", "c"], "signed"), /\n0,0,-0.5,-inf,nan\n/);
});

test("merged columns say which iterations they are of, and names are quoted", () => {
  const columns = [{ start: 0, stop: 4, max: [2, 1], min: [1, 1], flags: [0, 0] }];
  assert.equal(textOf(columns, ['a "b", c'], "norms", false), 'iteration,last_iteration,"a ""b"", c"\n0,3,2\n');
  assert.match(textOf(columns, ["a"]), /\n0,0,2\n/, "Of a column that is one iteration's the others were not recorded.");
});
