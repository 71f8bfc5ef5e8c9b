import assert from "node:assert/strict";
import { existsSync, readFileSync } from "node:fs";
import { resolve } from "node:path";
import { test } from "node:test";
import { Overview, withRows } from "../src/data/overview";
import { decodeColumns } from "../src/data/wire";
import { encode, singles } from "./encode";

interface Golden {
  capacity: number;
  rows: number;
  appends: string[];
  result: string;
  level: number;
}

const bytes = (base64: string): Uint8Array => new Uint8Array(Buffer.from(base64, "base64"));

test("the same picture as in Python, byte for byte", () => {
  const path = resolve("../tests/data/overview.json");
  assert.ok(existsSync(path), `${path} is missing: the Python side writes it (tests/data/)`);
  const cases = JSON.parse(readFileSync(path, "utf8")) as Golden[];
  assert.ok(cases.length > 0, `${path} holds no cases`);
  cases.forEach((golden, i) => {
    const overview = new Overview(golden.rows, golden.capacity);
    for (const append of golden.appends) overview.append(decodeColumns(bytes(append)));
    const expected = decodeColumns(bytes(golden.result));
    assert.equal(overview.level, golden.level, `case ${i}: level`);
    assert.equal(overview.count, expected.count, `case ${i}: count`);
    const cells = expected.count * expected.rows;
    assert.equal(overview.rows, expected.rows, `case ${i}: rows`);
    for (const name of ["start", "stop"] as const) {
      assert.deepEqual([...overview[name].subarray(0, expected.count)], [...expected[name]], `case ${i}: ${name}`);
    }
    for (const name of ["max", "min", "flags"] as const) {
      assert.deepEqual([...overview[name].subarray(0, cells)], [...expected[name]], `case ${i}: ${name}`);
    }
  });
});

test("append says from which column on the picture is new", () => {
  const overview = new Overview(1, 4);
  assert.equal(overview.append(decodeColumns(encode(singles([[1], [2]]), 1))), 0);
  assert.equal(overview.append(decodeColumns(encode(singles([[3], [4]], 2), 1))), 2);
  assert.equal(overview.append(decodeColumns(encode(singles([[5]], 4), 1))), 0);
  assert.equal(overview.level, 1);
  assert.deepEqual([...overview.max.subarray(0, overview.count)], [2, 4, 5]);
  assert.deepEqual([...overview.min.subarray(0, overview.count)], [1, 3, 5]);
  // The newest column is not full yet: it grows.
  assert.equal(overview.append(decodeColumns(encode(singles([[6]], 5), 1))), 2);
  assert.deepEqual([...overview.stop.subarray(0, overview.count)], [2, 4, 6]);
});

test("one NaN in 100,000 iterations stays visible at every level", () => {
  const overview = new Overview(2, 64);
  for (let t = 0; t < 100_000; t += 50) {
    const batch = singles(Array.from({ length: 50 }, () => [1, 2]), t);
    if (t === 31_400) {
      batch[15]!.max = [NaN, 2];
      batch[15]!.flags = [1, 0];
    }
    overview.append(decodeColumns(encode(batch, 2)));
    assert.ok(overview.count <= 64);
  }
  const flagged = [...overview.flags.subarray(0, 2 * overview.count)].map((f, i) => [f, i] as const).filter(([f]) => f);
  assert.equal(flagged.length, 1);
  const column = flagged[0]![1] / 2;
  assert.ok(overview.start[column]! <= 31_415 && 31_415 < overview.stop[column]!);
});

test("a parameter added later was not recorded before, and the loss stays last", () => {
  const wide = withRows(decodeColumns(encode([{ start: 0, stop: 1, max: [1, 9], flags: [16, 0] }], 2)), 4);
  assert.deepEqual([...wide.max], [1, NaN, NaN, 9]);
  assert.deepEqual([...wide.flags], [16, 128, 128, 0]);
  const overview = new Overview();
  overview.append(decodeColumns(encode(singles([[1, 9]]), 2)));
  assert.equal(overview.append(decodeColumns(encode(singles([[1, 2, 9]], 1), 3))), 0, "all is to be painted anew");
  assert.deepEqual([...overview.max.subarray(0, 6)], [1, NaN, 9, 1, 2, 9]);
});

test("an iteration at which only the loss was recorded joins the column before it", () => {
  const overview = new Overview(2, 8);
  const alone = (start: number, loss: number) => ({ start, stop: start + 1, max: [NaN, loss], flags: [0, 0] });
  overview.append(decodeColumns(encode([...singles([[1, 5]]), alone(1, 4), alone(2, 6)], 2)));
  assert.equal(overview.append(decodeColumns(encode([alone(3, NaN), { start: 4, stop: 5, max: [2, 3] }], 2))), 0);
  assert.deepEqual([...overview.start.subarray(0, 2), ...overview.stop.subarray(0, 2)], [0, 4, 4, 5]);
  assert.deepEqual([...overview.max.subarray(0, 4), ...overview.min.subarray(0, 4)], [1, 6, 2, 3, 1, 4, 2, 3]);
  assert.equal(overview.count, 2);
  const losses = new Overview(1, 8); // of a model without parameters
  losses.append(decodeColumns(encode([{ start: 0, stop: 1, max: [NaN] }, { start: 1, stop: 2, max: [NaN] }], 1)));
  assert.equal(losses.count, 2);
});
