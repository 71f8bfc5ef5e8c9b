import assert from "node:assert/strict";
import { test } from "node:test";
import type { Runs } from "../src/mask/runs";
import { State } from "../src/mask/state";
import type { Change } from "../src/mask/store";
import { story } from "../src/mask/story";

const { trained, frozen, unused } = State;
const NAMES = ["body.0.weight", "body.0.bias", "body.1.weight", "body.1.bias", "head.weight"];
const change = (iteration: number, names: string[], more: Partial<Change> = {}): Change => ({ iteration, event: "frozen", by: "handler", names, more: 0, ...more });

function told(changes: Change[], runs: Record<string, Runs> = {}): string[] {
  const always = { start: [0], bits: [trained] };
  const parameters = NAMES.map((name) => ({ name, dtype: "float32", shape: [2] }));
  return story(changes, parameters, (place) => runs[NAMES[place]!] ?? always).map(({ iteration, text }) => `${iteration ?? "now"}: ${text}`);
}

test("who did what is told in its place", () => {
  assert.deepEqual(told([change(432, ["body"], { event: "unfrozen" }), change(500, [""], { by: "widget" }), change(501, ["a"], { by: "user" }), change(502, ["a"], { by: null })]), [
    "432: body unfrozen by a handler",
    "500: everything frozen by a click",
    "501: a frozen by hand",
    "502: a frozen",
  ]);
});

test("many names are counted", () => {
  assert.deepEqual(told([change(1, ["a", "b", "c", "d"], { more: 7 })]), ["1: a, b, c and 8 more frozen by a handler"]);
});

test("what the loss no longer reaches is told, and what it reaches again", () => {
  const leaves = { start: [0, 90], bits: [trained, unused] };
  assert.deepEqual(told([change(95, ["x"])], { "head.weight": leaves, "body.0.bias": leaves }), ["90: body.0.bias, head.weight left the loss", "95: x frozen by a handler"]);
  assert.deepEqual(told([], { "head.weight": { start: [0, 9], bits: [unused, trained] } }), ["9: head.weight came into the loss"]);
});

test("a parameter that comes and goes is told once", () => {
  const start = Array.from({ length: 50 }, (_, i) => i);
  assert.deepEqual(told([], { "head.weight": { start, bits: start.map((i) => (i % 2 ? unused : trained)) } }), ["1: head.weight left the loss and came back, time and again"]);
});

test("a freeze is not a way out of the loss", () => {
  assert.deepEqual(told([], { "head.weight": { start: [0, 5, 9], bits: [trained, frozen, trained] } }), []);
});

test("what is frozen among others that train is pointed out, but no frozen block", () => {
  const cold = { start: [0], bits: [frozen] };
  assert.deepEqual(told([], { "body.1.bias": cold }), ["now: body.1.bias: frozen inside a block that trains"]);
  assert.deepEqual(told([], { "body.1.bias": cold, "body.1.weight": cold, "body.0.bias": cold }), []);
});
