// The still picture is drawn in Python; what both lay out is held to the same golden file.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { resolve } from "node:path";
import { test } from "node:test";
import { placeChips } from "../src/heatmap/chips";
import type { Chip } from "../src/heatmap/chips";
import { colourIndex, domainOf, NORMS, RATIOS } from "../src/data/colour";
import * as format from "../src/kit/format";
import { unitsOf } from "../src/rows/folds";
import { noteText } from "../src/heatmap/legend";
import { lookOf } from "../src/data/looks";
import { mostIterations, placeColumns } from "../src/data/pixels";
import { fitEnd, layOut } from "../src/rows/rows";
import { epochTicks, iterationTicks } from "../src/kit/ticks";
import type { Tick } from "../src/kit/ticks";

// Tuples as tests/data/make_picture.py writes them.
const golden = JSON.parse(readFileSync(resolve("../tests/data/picture.json"), "utf8")) as Record<string, any[]>;
const measure = (text: string): number => 7 * text.length;

function check(name: string, same: (...golden: any[]) => void): void {
  test(`${name}: as in Python`, () => {
    assert.ok(golden[name]!.length > 0);
    for (const tuple of golden[name]!) same(...tuple);
  });
}

check("numbers", (value, text) => assert.equal(format.glance(value), text));
check("notes", (level, most, which, text) => assert.equal(noteText(level, most, which), text));
check("dtypes", (dtype, text) => assert.equal(format.shortDtype(dtype), text));

check("colours", (values: number[], [lo, hi, base]: number[], indices) => {
  const domain = domainOf(Math.min(...values), Math.max(...values), base === 2 ? RATIOS : NORMS);
  assert.deepEqual(domain, { lo, hi, base });
  assert.deepEqual(values.map((value) => colourIndex(value, domain!)), indices);
});

check("shown", ([max, min]: [number, number], seen) => assert.equal(Math.fround(RATIOS.shown(max, min)), seen));

test("looks: as in Python", () => {
  [1, 0, NaN].forEach((value, i) => {
    assert.deepEqual(Array.from({ length: 256 }, (_, flags) => lookOf(value, flags)), golden.looks![i]);
  });
});

check("pixels", (edges: number[], span, width, first, last, end, most) => {
  const columns = { count: edges.length - 1, start: Uint32Array.from(edges.slice(0, -1)), stop: Uint32Array.from(edges.slice(1)) };
  const pixels = placeColumns(columns, { start: 0, span }, width);
  assert.deepEqual([[...pixels.first], [...pixels.last], pixels.end], [first, last, end]);
  assert.equal(mostIterations(pixels, columns), most);
});

check("chips", (size, looks: number[], placed) => {
  const chips: Chip[] = [];
  placeChips(chips, Uint8Array.from(looks), 0, looks.length, size);
  assert.deepEqual(chips.map((chip) => [chip.look, chip.from, chip.to, chip.left, chip.right, chip.glyph]), placed);
});

check("layouts", (names: string[], rows, headers, height) => {
  const layout = layOut(unitsOf(names.map((name) => ({ name, dtype: "float32", shape: [] })), new Set()));
  assert.deepEqual(layout.rows.map((row) => [row.label, row.top]), rows);
  assert.deepEqual(layout.headers.map((header) => [header.label, header.top, header.height]), headers);
  assert.equal(layout.height, height);
});

check("fits", (label: string, width, text) => assert.equal(fitEnd(label, width, (t) => t.length), text));

check("ticks", (span, width, epochs, below, above) => {
  const tuples = (ticks: Tick[]): unknown[] => ticks.map(({ x, label, left }) => [x, label, left]);
  const starts = Array.from({ length: epochs }, (_, i) => Math.floor((i * span) / epochs));
  assert.deepEqual(tuples(iterationTicks({ start: 0, span }, width, measure)), below);
  assert.deepEqual(tuples(epochTicks(starts, 0, { start: 0, span }, width, measure)), above);
});
