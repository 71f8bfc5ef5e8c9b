import assert from "node:assert/strict";
import { test } from "node:test";
import { colourIndex, domainOf, pixelTable } from "../src/colour";

test("the domain is whole powers of ten around the values", () => {
  assert.deepEqual(domainOf(2e-8, 50), { lo: -8, hi: 2 });
  assert.deepEqual(domainOf(1e-4, 1e2), { lo: -4, hi: 2 });
});

test("three powers at least, twelve at most", () => {
  assert.deepEqual(domainOf(0.2, 0.5), { lo: -3, hi: 0 });
  assert.deepEqual(domainOf(1e-30, 10), { lo: -11, hi: 1 });
});

test("without a positive value there is no domain", () => {
  assert.equal(domainOf(Infinity, 0), null);
  assert.equal(domainOf(NaN, NaN), null);
});

test("256 steps from end to end, clamped", () => {
  const domain = { lo: -8, hi: 0 };
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
