import assert from "node:assert/strict";
import { test } from "node:test";
import { columnsIn, firstDirtyPixel, mostIterations, placeColumns } from "../src/data/pixels";

const columns = (edges: readonly number[]) => ({
  count: edges.length - 1,
  start: Uint32Array.from(edges.slice(0, -1)),
  stop: Uint32Array.from(edges.slice(1)),
});
const all = (span: number) => ({ start: 0, span });
const upTo = (n: number): number[] => Array.from({ length: n + 1 }, (_, i) => i);
const shown = (pixels: ReturnType<typeof placeColumns>): [number, number][] =>
  Array.from({ length: pixels.end }, (_, x) => [pixels.first[x]!, pixels.last[x]!]);

test("wide columns own the pixels between their rounded edges", () => {
  // 3 columns on 10 pixels: edges at 0, 3.33, 6.67, 10.
  const pixels = placeColumns(columns(upTo(3)), all(3), 10);
  assert.deepEqual(shown(pixels).map(([first]) => first), [0, 0, 0, 1, 1, 1, 1, 2, 2, 2]);
  assert.ok(shown(pixels).every(([first, last]) => first === last));
});

test("a shared pixel shows every column that touches it", () => {
  // 4 columns on 3 pixels: column 1 covers [0.75, 1.5) and touches two pixels.
  assert.deepEqual(shown(placeColumns(columns(upTo(4)), all(4), 3)), [
    [0, 1],
    [1, 2],
    [2, 3],
  ]);
  assert.equal(mostIterations(placeColumns(columns(upTo(4)), all(4), 3), columns(upTo(4))), 2);
});

test("an edge on a pixel's edge touches one pixel only", () => {
  assert.deepEqual(shown(placeColumns(columns(upTo(21)), all(21), 7)), Array.from({ length: 7 }, (_, x) => [3 * x, 3 * x + 2]));
});

test("no column is lost, whatever the width", () => {
  for (const [count, span, width] of [[700, 1050, 333], [4096, 5000, 997], [100, 128, 1600], [999, 1000, 1000]] as const) {
    const pixels = placeColumns(columns(upTo(count)), all(span), width);
    const seen = new Set<number>();
    for (const [first, last] of shown(pixels)) for (let c = first; c <= last; c++) seen.add(c);
    assert.equal(seen.size, count, `${count} columns, span ${span}, width ${width}`);
  }
});

test("a wide column beside narrow ones is seen in the pixel they share", () => {
  // [0, 4) is 2.4 pixels wide, then singles of 0.6: pixel 2 holds the end of one and the start of the others.
  const pixels = placeColumns(columns([0, 4, 5, 6]), all(10), 6);
  assert.deepEqual(shown(pixels), [
    [0, 0],
    [0, 0],
    [0, 1],
    [2, 2],
  ]);
});

test("missing iterations leave a hole", () => {
  const pixels = placeColumns({ count: 2, start: Uint32Array.of(0, 5), stop: Uint32Array.of(1, 6) }, all(8), 8);
  assert.ok(pixels.first[3]! > pixels.last[3]!);
  assert.equal(pixels.end, 6);
});

test("an append dirties the pixels from its first column on", () => {
  assert.equal(firstDirtyPixel(columns(upTo(100)), 50, all(200), 100), 25);
  assert.equal(firstDirtyPixel(columns(upTo(100)), 51, all(200), 100), 25);
  assert.equal(firstDirtyPixel(columns(upTo(100)), 100, all(200), 100), 100);
});

test("a part of the run shows its own columns, and those that reach into it", () => {
  const run = columns([0, 4, 8, 12, 16]);
  assert.deepEqual(columnsIn(run, { start: 6, span: 6 }), [1, 3]);
  assert.deepEqual(shown(placeColumns(run, { start: 6, span: 6 }, 6)).map(([first]) => first), [1, 1, 2, 2, 2, 2]);
  assert.deepEqual(shown(placeColumns(run, { start: 6, span: 6 }, 2)), [[1, 1], [2, 2]]);
});
