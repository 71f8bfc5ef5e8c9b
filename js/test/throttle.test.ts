import assert from "node:assert/strict";
import { test } from "node:test";
import { throttled } from "../src/kit/throttle";

test("the first is done at once and the last at the end, however many there are between", (t) => {
  t.mock.timers.enable({ apis: ["setTimeout"] });
  let now = 1000;
  t.mock.method(performance, "now", () => now);
  const pass = (ms: number): void => {
    now += ms;
    t.mock.timers.tick(ms);
  };
  let value = 0;
  const done: number[] = [];
  const save = throttled(300, () => done.push(value));
  for (value = 1; value <= 10; value++) {
    save();
    pass(50);
  }
  assert.deepEqual(done, [1, 6]);
  value = 10;
  pass(1000);
  assert.deepEqual(done, [1, 6, 10]);
  pass(1000);
  save();
  assert.deepEqual(done, [1, 6, 10, 10]);
});
