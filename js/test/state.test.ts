import assert from "node:assert/strict";
import { test } from "node:test";
import { Flag } from "../src/data/wire";
import { State, stateOf, words } from "../src/mask/state";

test("a parameter with a gradient trains, whatever the gradient is", () => {
  assert.equal(stateOf(0.5, 0), State.trained);
  assert.equal(stateOf(0, Flag.zero), State.trained);
  for (const flag of [Flag.nan, Flag.posinf, Flag.neginf]) assert.equal(stateOf(NaN, flag), State.trained);
});

test("what does not train says why", () => {
  assert.equal(stateOf(NaN, Flag.frozen), State.frozen);
  assert.equal(stateOf(NaN, Flag.unused), State.unused);
  assert.equal(stateOf(NaN, Flag.not_recorded), State.not_recorded);
  assert.equal(stateOf(0.5, Flag.not_optimized), State.not_optimized, "it has a gradient, and nobody takes it");
  assert.equal(stateOf(NaN, 0), State.not_recorded, "nothing is known of it");
});

test("a column of several iterations has all their states", () => {
  assert.equal(stateOf(0.5, Flag.frozen), State.trained | State.frozen);
  assert.equal(words(State.trained | State.frozen), "partly trained, frozen");
  assert.equal(words(State.frozen | State.unused), "frozen, unused");
  assert.equal(words(State.trained), "trained");
});
