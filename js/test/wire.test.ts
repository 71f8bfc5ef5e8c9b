import assert from "node:assert/strict";
import { test } from "node:test";
import { decodeColumns, decodeEpochs, decodeMetrics } from "../src/data/wire";
import { encode } from "./encode";

const two = encode(
  [
    { start: 0, stop: 1, max: [1, NaN], flags: [0, 1] },
    { start: 1, stop: 3, max: [2, 3], min: [0.5, 3], flags: [8, 0] },
  ],
  2,
);

test("columns come back as they were written", () => {
  const columns = decodeColumns(two);
  assert.deepEqual([columns.count, columns.rows], [2, 2]);
  assert.deepEqual([...columns.start], [0, 1]);
  assert.deepEqual([...columns.stop], [1, 3]);
  assert.deepEqual([...columns.max], [1, NaN, 2, 3]);
  assert.deepEqual([...columns.min], [1, NaN, 0.5, 3]);
  assert.deepEqual([...columns.flags], [0, 1, 8, 0]);
});

test("without minima the maxima are the minima", () => {
  const columns = decodeColumns(encode([{ start: 4, stop: 5, max: [7] }], 1));
  assert.deepEqual([...columns.min], [7]);
});

test("a view into a larger buffer is read from its own offset, aligned or not", () => {
  for (const offset of [3, 4, 8]) {
    const larger = new Uint8Array(two.length + offset + 5).fill(255);
    larger.set(two, offset);
    const columns = decodeColumns(new DataView(larger.buffer, offset, two.length));
    assert.deepEqual([...columns.max], [1, NaN, 2, 3]);
  }
});

test("metrics keep NaN and infinity, epochs are whole", () => {
  const metrics = new Float64Array([0.25, NaN, -Infinity]);
  const shifted = new Uint8Array(metrics.byteLength + 1);
  shifted.set(new Uint8Array(metrics.buffer), 1);
  assert.deepEqual([...decodeMetrics(new DataView(shifted.buffer, 1))], [0.25, NaN, -Infinity]);
  assert.deepEqual([...decodeEpochs(new Uint32Array([0, 4294967295]).buffer)], [0, 4294967295]);
});

test("no columns at all are columns", () => {
  assert.equal(decodeColumns(encode([], 3)).count, 0);
});

test("a wrong length or another layout is an error that says so", () => {
  assert.throws(() => decodeColumns(two.slice(0, -1)), /2 columns of 2 rows need \d+ bytes, got \d+/);
  assert.throws(() => decodeColumns(new Uint8Array(3)), /3 bytes/);
  assert.throws(() => decodeColumns(encode([], 1, 2)), /layout 2 .* Reload the page/);
});
