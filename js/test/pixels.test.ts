import assert from "node:assert/strict";
import { test } from "node:test";
import { firstDirtyPixel, mergeCell, mostIterations, placeColumns, spanOf } from "../src/pixels";
import { decodeColumns } from "../src/wire";
import { encode, singles } from "./encode";

const columns = (edges: readonly number[]) => ({
  count: edges.length - 1,
  start: Uint32Array.from(edges.slice(0, -1)),
  stop: Uint32Array.from(edges.slice(1)),
});
const upTo = (n: number): number[] => Array.from({ length: n + 1 }, (_, i) => i);
const shown = (pixels: ReturnType<typeof placeColumns>): [number, number][] =>
  Array.from({ length: pixels.end }, (_, x) => [pixels.first[x]!, pixels.last[x]!]);

test("the span is the plan, or the next power of two from 64 on", () => {
  assert.equal(spanOf(10, 2106), 2106);
  assert.equal(spanOf(3000, 2106), 3000);
  assert.equal(spanOf(0, null), 64);
  assert.equal(spanOf(64, null), 64);
  assert.equal(spanOf(65, null), 128);
});

test("wide columns own the pixels between their rounded edges", () => {
  // 3 columns on 10 pixels: edges at 0, 3.33, 6.67, 10.
  const pixels = placeColumns(columns(upTo(3)), 3, 10);
  assert.deepEqual(shown(pixels).map(([first]) => first), [0, 0, 0, 1, 1, 1, 1, 2, 2, 2]);
  assert.ok(shown(pixels).every(([first, last]) => first === last));
});

test("a shared pixel shows every column that touches it", () => {
  // 4 columns on 3 pixels: column 1 covers [0.75, 1.5) and touches two pixels.
  assert.deepEqual(shown(placeColumns(columns(upTo(4)), 4, 3)), [
    [0, 1],
    [1, 2],
    [2, 3],
  ]);
  assert.equal(mostIterations(placeColumns(columns(upTo(4)), 4, 3), columns(upTo(4))), 2);
});

test("an edge on a pixel's edge touches one pixel only", () => {
  assert.deepEqual(shown(placeColumns(columns(upTo(21)), 21, 7)), Array.from({ length: 7 }, (_, x) => [3 * x, 3 * x + 2]));
});

test("no column is lost, whatever the width", () => {
  for (const [count, span, width] of [[700, 1050, 333], [4096, 5000, 997], [100, 128, 1600], [999, 1000, 1000]] as const) {
    const pixels = placeColumns(columns(upTo(count)), span, width);
    const seen = new Set<number>();
    for (const [first, last] of shown(pixels)) for (let c = first; c <= last; c++) seen.add(c);
    assert.equal(seen.size, count, `${count} columns, span ${span}, width ${width}`);
  }
});

test("a wide column beside narrow ones is seen in the pixel they share", () => {
  // [0, 4) is 2.4 pixels wide, then singles of 0.6: pixel 2 holds the end of one and the start of the others.
  const pixels = placeColumns(columns([0, 4, 5, 6]), 10, 6);
  assert.deepEqual(shown(pixels), [
    [0, 0],
    [0, 0],
    [0, 1],
    [2, 2],
  ]);
});

test("missing iterations leave a hole", () => {
  const pixels = placeColumns({ count: 2, start: Uint32Array.of(0, 5), stop: Uint32Array.of(1, 6) }, 8, 8);
  assert.ok(pixels.first[3]! > pixels.last[3]!);
  assert.equal(pixels.end, 6);
});

test("an append dirties the pixels from its first column on", () => {
  assert.equal(firstDirtyPixel(columns(upTo(100)), 50, 200, 100), 25);
  assert.equal(firstDirtyPixel(columns(upTo(100)), 51, 200, 100), 25);
  assert.equal(firstDirtyPixel(columns(upTo(100)), 100, 200, 100), 100);
});

test("a merged cell keeps the extremes and every flag", () => {
  const all = decodeColumns(encode([...singles([[1, 5], [NaN, 5], [3, 5]]).map((c, i) => ({ ...c, flags: [i, 0] }))], 2));
  assert.deepEqual(mergeCell(all, 0, 0, 2), { max: 3, min: 1, flags: 3 });
  assert.deepEqual(mergeCell(all, 0, 1, 1), { max: NaN, min: NaN, flags: 1 });
});
