import assert from "node:assert/strict";
import { test } from "node:test";
import { barsOf } from "../src/inspector/bins";

const bins = (...lines: [number, number, number][]): Float64Array => Float64Array.from(lines.flat());
const QUARTER = 2 ** 0.25;

test("a bin is a bar of its size, and its sign says on which side", () => {
  const { bars, total, tallest } = barsOf(bins([1, QUARTER, 5], [-QUARTER, -1, 2], [0.5, 0.5 * QUARTER, 7]), 100);
  assert.equal(total, 14);
  assert.equal(tallest, 7);
  assert.deepEqual(bars[0], { low: -1, high: -0.75, positive: 7, negative: 0 });
  assert.deepEqual(bars.at(-1), { low: 0, high: 0.25, positive: 5, negative: 2 });
  assert.equal(bars.length, 5);
});

test("what has no size on the grid is counted apart", () => {
  const { bars, special, total } = barsOf(
    bins([0, 0, 1], [0, 2 ** -48, 2], [-(2 ** -48), 0, 3], [2 ** 16, Infinity, 4], [-Infinity, -(2 ** 16), 5], [Infinity, Infinity, 6], [-Infinity, -Infinity, 7], [NaN, NaN, 8]),
    100,
  );
  assert.deepEqual(special, { zero: 1, below: 5, above: 9, posinf: 6, neginf: 7, nan: 8 });
  assert.equal(bars.length, 0);
  assert.equal(total, 36);
});

test("bars are merged until they fit, and none is lost", () => {
  const lines = Array.from({ length: 256 }, (_, i) => [2 ** (i / 4 - 48), 2 ** ((i + 1) / 4 - 48), 1] as [number, number, number]);
  const { bars } = barsOf(bins(...lines), 40);
  assert.equal(bars.length, 32);
  assert.deepEqual(bars[0], { low: -48, high: -46, positive: 8, negative: 0 });
  assert.equal(bars.reduce((sum, bar) => sum + bar.positive, 0), 256);
});

test("there may be none at all", () => {
  assert.deepEqual(barsOf(bins(), 40).bars, []);
});
