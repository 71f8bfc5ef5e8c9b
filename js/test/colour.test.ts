import assert from "node:assert/strict";
import { test } from "node:test";
import type { Scale } from "../src/data/colour";
import { colourIndex, domainBetween, domainOf, endOf, NORMS, pixelTable, RATIOS, SCALES } from "../src/data/colour";

test("the domain is whole powers of ten around the values", () => {
  assert.deepEqual(domainOf(2e-8, 50), { lo: -8, hi: 2, base: 10 });
  assert.deepEqual(domainOf(1e-4, 1e2), { lo: -4, hi: 2, base: 10 });
});

test("three powers at least, twelve at most", () => {
  assert.deepEqual(domainOf(0.2, 0.5), { lo: -3, hi: 0, base: 10 });
  assert.deepEqual(domainOf(1e-30, 10), { lo: -11, hi: 1, base: 10 });
});

test("without a positive value there is no domain", () => {
  assert.equal(domainOf(Infinity, 0), null);
  assert.equal(domainOf(NaN, NaN), null);
});

test("ratios have 1 in the middle, two powers of two on either side at least and ten at most", () => {
  assert.deepEqual(domainOf(0.9, 1.1, RATIOS), { lo: -2, hi: 2, base: 2 });
  assert.deepEqual(domainOf(0.9, 9, RATIOS), { lo: -4, hi: 4, base: 2 });
  assert.deepEqual(domainOf(1e-30, 1, RATIOS), { lo: -10, hi: 10, base: 2 });
  const domain = { lo: -3, hi: 3, base: 2 };
  assert.deepEqual([1 / 8, 1, 8, 1 / 64].map((ratio) => colourIndex(ratio, domain)), [0, 128, 255, 0]);
});

test("256 steps from end to end, clamped", () => {
  const domain = { lo: -8, hi: 0, base: 10 };
  assert.equal(colourIndex(1e-8, domain), 0);
  assert.equal(colourIndex(1e-4, domain), 128);
  assert.equal(colourIndex(1, domain), 255);
  assert.equal(colourIndex(1e-20, domain), 0);
  assert.equal(colourIndex(1e20, domain), 255);
});

test("the table is opaque ABGR; grey as long as Python sent none", () => {
  const rgb = new Uint8Array(768);
  rgb.set([1, 2, 3], 3 * 7);
  assert.equal(pixelTable(rgb)[7], 0xff030201);
  assert.equal(pixelTable(new Uint8Array(0))[16], 0xff101010);
});

test("a signed number has its colour on its side, and what is small the one in the middle", () => {
  const { signed, shares } = SCALES as { signed: Scale; shares: Scale };
  const domain = domainOf(1e-9, 0.5, signed)!;
  assert.deepEqual(domain, { lo: -6, hi: 0, base: 10, signed: true });
  assert.deepEqual([1, 1e-3, 1e-9, 0, -1e-9, -1e-3, -1].map((value) => colourIndex(value, domain)), [255, 192, 128, 128, 128, 64, 0]);
  assert.equal(signed.shown(2, -3), -3);
  assert.equal(signed.shown(3, -2), 3);
  assert.deepEqual(domainOf(0.2, 0.3, shares), { lo: 0, hi: 1, base: 1 });
  assert.deepEqual([0, 0.5, 1].map((value) => colourIndex(value, { lo: 0, hi: 1, base: 1 })), [0, 128, 255]);
});

test("a range by hand is from number to number, around the middle where there is one, or none", () => {
  assert.deepEqual(domainBetween(1e-4, 10, NORMS), { lo: -4, hi: 1, base: 10 });
  assert.equal(domainBetween(10, 1e-4, NORMS), null);
  assert.equal(domainBetween(NaN, 1, NORMS), null);
  assert.equal(domainBetween(0, 1, NORMS), null);
  assert.deepEqual(domainBetween(0.1, 8, RATIOS), { lo: -3, hi: 3, base: 2 });
  assert.deepEqual(domainBetween(-1, 100, SCALES.signed!), { lo: -4, hi: 2, base: 10, signed: true });
  assert.equal(endOf({ lo: -4, hi: 1, base: 10 }, true), 10);
  assert.equal(endOf({ lo: -4, hi: 2, base: 10, signed: true }, false), -100);
  assert.equal(endOf({ lo: 0, hi: 1, base: 1 }, true), 1);
});
