import assert from "node:assert/strict";
import { test } from "node:test";
import { Look, lookOf, words } from "../src/data/looks";
import { Flag } from "../src/data/wire";

test("trouble wins over a value, a value over its absence", () => {
  assert.equal(lookOf(0.5, Flag.nan | Flag.frozen), Look.nan);
  assert.equal(lookOf(0.5, Flag.posinf), Look.posinf);
  assert.equal(lookOf(NaN, Flag.neginf), Look.neginf);
  assert.equal(lookOf(0.5, Flag.posinf | Flag.neginf), Look.bothinf);
  assert.equal(lookOf(0.5, Flag.frozen | Flag.zero), Look.value);
  assert.equal(lookOf(0.5, Flag.not_optimized), Look.value_not_optimized);
  assert.equal(lookOf(0, Flag.zero | Flag.frozen), Look.zero);
});

test("without a value the flags say why", () => {
  assert.equal(lookOf(NaN, Flag.unused | Flag.frozen), Look.unused);
  assert.equal(lookOf(NaN, Flag.frozen), Look.frozen);
  assert.equal(lookOf(NaN, Flag.not_recorded), Look.not_recorded);
  assert.equal(lookOf(NaN, 0), Look.not_recorded);
});

test("flags in words", () => {
  assert.deepEqual(words(Flag.nan | Flag.unused, false), ["NaN in the gradient", "unused: no path from the loss"]);
  assert.deepEqual(words(Flag.frozen, true), ["frozen (in part)"]);
  assert.deepEqual(words(0, true), []);
});
