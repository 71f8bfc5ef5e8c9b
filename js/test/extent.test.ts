import assert from "node:assert/strict";
import { test } from "node:test";
import { extentOf, NARROWEST, panned, part, wholeOf, zoomed } from "../src/kit/extent";

const whole = { start: 0, span: 1000 };

test("the whole is the plan, or the next power of two from 64 on", () => {
  assert.deepEqual(wholeOf(10, 2106), { start: 0, span: 2106 });
  assert.deepEqual(wholeOf(3000, 2106), { start: 0, span: 3000 });
  assert.equal(wholeOf(0, null).span, 64);
  assert.equal(wholeOf(64, null).span, 64);
  assert.equal(wholeOf(65, null).span, 128);
});

test("zooming keeps the iteration under the pointer where it is", () => {
  const near = zoomed(whole, 0.5, 200, whole);
  assert.deepEqual(near, { kind: "part", start: 100, span: 500 });
  assert.deepEqual(zoomed({ start: 100, span: 500 }, 2, 200, whole), { kind: "whole" });
});

test("zooming ends at a few iterations, and inside the run", () => {
  assert.deepEqual(zoomed(whole, 1e-6, 0, whole), { kind: "part", start: 0, span: NARROWEST });
  assert.deepEqual(zoomed({ start: 900, span: 100 }, 2, 1000, whole), { kind: "part", start: 800, span: 200 });
});

test("panning stops at the ends, and what is seen whole does not move", () => {
  assert.deepEqual(panned({ start: 100, span: 100 }, -300, whole), { kind: "part", start: 0, span: 100 });
  assert.deepEqual(panned({ start: 100, span: 100 }, 5000, whole), { kind: "part", start: 900, span: 100 });
  assert.deepEqual(panned(whole, 5, whole), { kind: "whole" });
});

test("a part is what was asked for, or as few iterations around it as can be seen", () => {
  assert.deepEqual(part(100, 300, whole), { kind: "part", start: 100, span: 200 });
  assert.deepEqual(part(500, 502, whole), { kind: "part", start: 497, span: NARROWEST });
  assert.deepEqual(part(-5, 2000, whole), { kind: "whole" });
});

test("the tail follows the newest iteration", () => {
  const tail = { kind: "tail", span: 200 } as const;
  assert.deepEqual(extentOf(tail, 700, whole), { start: 500, span: 200 });
  assert.deepEqual(extentOf(tail, 50, whole), { start: 0, span: 200 });
  assert.deepEqual(extentOf(tail, 50, { start: 0, span: 64 }), { start: 0, span: 64 });
});
