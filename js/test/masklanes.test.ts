import assert from "node:assert/strict";
import { test } from "node:test";
import { stretches } from "../src/mask/lanes";

const runs = { start: [0, 50, 51], bits: [1, 2, 1] };

test("runs lie where their iterations are", () => {
  assert.deepEqual(stretches(runs, 80, { start: 0, span: 100 }, 200), [
    { from: 0, to: 100, bits: 1 },
    { from: 100, to: 102, bits: 2 },
    { from: 102, to: 160, bits: 1 },
  ]);
});

test("one that is shorter than a pixel has one all the same", () => {
  const found = stretches(runs, 100_000, { start: 0, span: 100_000 }, 200);
  assert.deepEqual(found[1], { from: 0, to: 1, bits: 2 });
});

test("what is out of sight, or was never seen, is not there", () => {
  assert.deepEqual(stretches(runs, 80, { start: 60, span: 40 }, 40), [{ from: 0, to: 20, bits: 1 }]);
  assert.deepEqual(stretches({ start: [0, 5], bits: [0, 1] }, 10, { start: 0, span: 10 }, 10), [{ from: 5, to: 10, bits: 1 }]);
});
