import assert from "node:assert/strict";
import { test } from "node:test";
import { Overview } from "../src/data/overview";
import { decodeColumns, Flag } from "../src/data/wire";
import { AllRuns, bitsAt, merged } from "../src/mask/runs";
import { State } from "../src/mask/state";
import type { Column } from "./encode";
import { encode } from "./encode";

const { trained, frozen, unused } = State;

/** Of one parameter by its states; the loss is the last row. */
const columns = (states: readonly number[], first = 0): Column[] =>
  states.map((state, i) => ({ start: first + i, stop: first + i + 1, max: [state === trained ? 1 : NaN, 1], flags: [state === frozen ? Flag.frozen : state === unused ? Flag.unused : 0, 0] }));

function feed(capacity?: number) {
  const overview = new Overview(0, capacity);
  const runs = new AllRuns();
  const add = (...states: number[]): void => {
    const from = overview.append(decodeColumns(encode(columns(states, runs.end), 2)));
    runs.forget(from);
    runs.update(overview, 1);
  };
  return { overview, runs, add };
}

test("iterations of one state are one run, and what comes goes on with it", () => {
  const { runs, add } = feed();
  add(trained, trained, frozen);
  const version = runs.version;
  add(frozen, frozen);
  assert.equal(runs.version, version, "nothing has begun");
  add(trained);
  assert.deepEqual(runs.of([0]), { start: [0, 2, 5], bits: [trained, frozen, trained] });
  assert.equal(runs.end, 6);
  assert.ok(runs.version > version);
});

test("iterations that the page has missed are a run of nothing", () => {
  const runs = new AllRuns();
  const overview = new Overview();
  for (const first of [0, 5]) overview.append(decodeColumns(encode(columns([trained, trained], first), 2)));
  runs.update(overview, 1);
  assert.deepEqual(runs.of([0]), { start: [0, 2, 5], bits: [trained, 0, trained] });
});

test("columns that merge are read anew, the newest as it grows", () => {
  const { overview, runs, add } = feed(4);
  const all: number[] = [];
  for (let i = 0; i < 23; i++) {
    all.push(i === 13 ? frozen : trained);
    add(all.at(-1)!);
    const fresh = new AllRuns();
    fresh.update(overview, 1);
    assert.deepEqual(runs.of([0]), fresh.of([0]), `after ${i + 1} iterations at level ${overview.level}`);
  }
  assert.ok(runs.of([0]).bits.includes(trained | frozen), "the one that was frozen is still there");
  assert.equal(runs.end, 23);
});

test("parameters that join are not recorded before", () => {
  const runs = new AllRuns();
  const overview = new Overview();
  overview.append(decodeColumns(encode(columns([trained]), 2)));
  runs.update(overview, 1);
  overview.append(decodeColumns(encode([{ start: 1, stop: 2, max: [1, 1, 1], flags: [0, 0, 0] }], 3)));
  runs.forget(0);
  runs.update(overview, 2);
  assert.deepEqual(runs.of([1]), { start: [0, 1], bits: [State.not_recorded, trained] });
});

test("several parameters have the states of all", () => {
  const one = { start: [0, 4], bits: [trained, frozen] };
  const two = { start: [0, 2, 6], bits: [trained, unused, frozen] };
  assert.deepEqual(merged([one, two]), { start: [0, 2, 4, 6], bits: [trained, trained | unused, frozen | unused, frozen] });
  assert.deepEqual(merged([one, { start: [], bits: [] }]), one);
  assert.deepEqual([0, 3, 4, 99].map((i) => bitsAt(one, i)), [trained, trained, frozen, frozen]);
});
