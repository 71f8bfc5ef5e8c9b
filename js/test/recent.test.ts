import assert from "node:assert/strict";
import { test } from "node:test";
import { Recent } from "../src/data/recent";
import { decodeColumns, Flag } from "../src/data/wire";
import { encode, singles } from "./encode";

const decoded = (values: number[][], first: number) => decodeColumns(encode(singles(values, first), values[0]!.length));

test("the newest columns stay as they came, and old ones go", () => {
  const recent = new Recent();
  assert.equal(recent.start, Infinity);
  for (let first = 0; first < 5000; first += 100) recent.add(decoded(Array.from({ length: 100 }, (_, i) => [first + i, 0]), first));
  const { columns } = recent;
  assert.equal(columns.stop[columns.count - 1], 5000);
  assert.ok(columns.count >= 1024 && columns.count < 2048);
  assert.equal(recent.start, columns.start[0]);
  assert.ok(columns.start.slice(0, columns.count).every((start, c) => columns.max[c * 2] === start));
});

test("parameters that came later were not recorded before", () => {
  const recent = new Recent();
  recent.add(decoded([[1, 9]], 0));
  recent.add(decoded([[1, 2, 9]], 1));
  assert.deepEqual([...recent.columns.flags.slice(0, 6)], [0, Flag.not_recorded, 0, 0, 0, 0]);
  assert.deepEqual([...recent.columns.max.slice(0, 6)], [1, NaN, 9, 1, 2, 9]);
});

test("a loss that belongs to a column that has gone is not where it begins", () => {
  const recent = new Recent();
  recent.add(decoded([[NaN, 9], [1, 8], [NaN, 7]], 0));
  assert.equal(recent.start, 1);
  assert.deepEqual([...recent.columns.stop.slice(0, recent.columns.count)], [1, 3]);
});

test("there are always so many of the newest, however many come at once", () => {
  const recent = new Recent();
  const sizes = [4096, 1, 1, 700, 1500, ...Array.from({ length: 300 }, () => 7)];
  let end = 0;
  for (const size of sizes) {
    recent.add(decoded(Array.from({ length: size }, (_, i) => [end + i, 0]), end));
    end += size;
    const { columns } = recent;
    assert.equal(columns.stop[columns.count - 1], end);
    assert.ok(columns.count >= 1024 && columns.count <= 4096 + 1500, `${columns.count} after ${end}`);
    assert.ok(columns.start.slice(0, columns.count).every((start, c) => columns.max[c * 2] === start));
  }
});
