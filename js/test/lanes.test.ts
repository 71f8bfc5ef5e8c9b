import assert from "node:assert/strict";
import { test } from "node:test";
import { laneOf, Lanes, lossLane, mergeCell, mergeColumns } from "../src/data/lanes";
import { Overview } from "../src/data/overview";
import { decodeColumns, Flag } from "../src/data/wire";
import type { Column } from "./encode";
import { encode, singles } from "./encode";

const decoded = (columns: Column[], rows: number) => decodeColumns(encode(columns, rows));

test("a merged cell keeps the extremes and every flag", () => {
  const all = decoded(singles([[1, 5], [NaN, 5], [3, 5]]).map((c, i) => ({ ...c, flags: [i, 0] })), 2);
  assert.deepEqual(mergeCell(laneOf(all, 0), 0, 2), { max: 3, min: 1, flags: 3 });
  assert.deepEqual(mergeCell(laneOf(all, 0), 1, 1), { max: NaN, min: NaN, flags: 1 });
  assert.deepEqual(mergeCell(lossLane(all), 0, 2), { max: 5, min: 5, flags: 0 });
});

test("several parameters as one row have the largest, the smallest and every flag of each column", () => {
  const all = decoded(singles([[1, 9, 4, 0], [NaN, NaN, 2, 0]]).map((c, i) => ({ ...c, flags: i ? [Flag.nan, Flag.frozen, 0, 0] : [0, 0, 0, 0] })), 4);
  const lane = new Lanes().lane(all, [0, 1, 2]);
  assert.deepEqual(mergeCell(lane, 0, 0), { max: 9, min: 1, flags: 0 });
  assert.deepEqual(mergeCell(lane, 1, 1), { max: 2, min: 2, flags: Flag.nan | Flag.frozen });
});

test("a folded row grows with the run, and forgets what changed", () => {
  const lanes = new Lanes();
  const overview = new Overview(0, 4);
  for (let i = 0; i < 11; i++) {
    lanes.forget(overview, overview.append(decoded(singles([[i, 2 * i, 0]], i), 3)));
    const lane = lanes.lane(overview, [0, 1]);
    for (let c = 0; c < overview.count; c++) {
      const stop = overview.stop[c]!;
      assert.deepEqual(mergeCell(lane, c, c), { max: 2 * (stop - 1), min: overview.start[c]!, flags: 0 }, `column ${c} after ${i}`);
    }
  }
});

test("parameters that the columns do not know yet were not recorded", () => {
  const all = decoded(singles([[1, 5]]), 2);
  assert.deepEqual(mergeCell(laneOf(all, 7), 0, 0), { max: NaN, min: NaN, flags: Flag.not_recorded });
  assert.deepEqual(mergeCell(new Lanes().lane(all, [0, 7]), 0, 0), { max: 1, min: 1, flags: Flag.not_recorded });
});

test("columns as one are what each row's cells are as one", () => {
  const all = decoded(singles([[1, 9, 4], [NaN, 2, 5], [3, NaN, 6], [7, 7, 7]]).map((c, i) => ({ ...c, flags: [i, 2 * i, 0] })), 3);
  const one = mergeColumns(all, 1, 4);
  for (const place of [0, 1]) assert.deepEqual(mergeCell(laneOf(one, place), 0, 0), mergeCell(laneOf(all, place), 1, 3));
  assert.deepEqual([one.count, one.start[0], one.stop[0]], [1, 1, 4]);
  assert.equal(mergeColumns(all, 2, 2).count, 0);
});
