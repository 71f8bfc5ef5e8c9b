import assert from "node:assert/strict";
import { test } from "node:test";
import { Survey } from "../src/data/survey";
import type { Columns } from "../src/data/wire";
import { Flag } from "../src/data/wire";

/** Columns of two parameters and the loss, one an iteration. */
function columns(max: number[], flags: number[], min?: number[]): Columns {
  const count = max.length / 3;
  const highs = Float32Array.from(max);
  return {
    count,
    rows: 3,
    start: Uint32Array.from({ length: count }, (_, c) => c),
    stop: Uint32Array.from({ length: count }, (_, c) => c + 1),
    max: highs,
    min: min ? Float32Array.from(min) : highs,
    flags: Uint8Array.from(flags),
  };
}

test("the range is that of sizes above 0, whichever sign they have, without the loss", () => {
  const { smallest, largest } = new Survey().add(columns([0.5, 0, 1e9, NaN, 4, 1e-9], [0, Flag.zero, 0, Flag.nan, 0, 0]));
  assert.deepEqual([smallest, largest], [0.5, 4]);
});

test("merged columns have two numbers each, and both count", () => {
  const { smallest, largest } = new Survey().add(columns([2, 3, 1], [0, 0, 0], [-8, 0.25, 1]));
  assert.deepEqual([smallest, largest], [0.25, 8]);
});

test("each parameter's flags are gathered, and the loss's are not", () => {
  const survey = new Survey().add(columns([1, 1, NaN, NaN, 1, 1], [0, Flag.frozen, Flag.nan, Flag.nan, 0, 0]));
  assert.deepEqual([...survey.seen], [Flag.nan, Flag.frozen]);
});

test("arrays may have room for more columns than there are", () => {
  const { smallest, largest, seen } = new Survey().add({ ...columns([2, 3, 1, 9, 9, 9], [0, 0, 0, 255, 255, 255]), count: 1 });
  assert.deepEqual([smallest, largest, ...seen], [2, 3, 0, 0]);
});
