import assert from "node:assert/strict";
import { test } from "node:test";
import type { Chip } from "../src/heatmap/chips";
import { coveredBy, placeChips } from "../src/heatmap/chips";
import { Look } from "../src/data/looks";

const SIZE = 9;

/** A row of values with these runs: [look, from, to]. */
function row(width: number, ...runs: [number, number, number][]): Uint8Array {
  const looks = new Uint8Array(width).fill(Look.value);
  for (const [look, from, to] of runs) looks.fill(look, from, to);
  return looks;
}

function placed(looks: Uint8Array): Chip[] {
  const chips: Chip[] = [];
  placeChips(chips, looks, 0, looks.length, SIZE);
  return chips;
}

test("a narrow run gets a chip centred on it, a wide one its own width", () => {
  const [narrow, wide] = placed(row(100, [Look.nan, 20, 21], [Look.posinf, 50, 70]));
  assert.deepEqual([narrow!.left, narrow!.right], [16, 25]);
  assert.deepEqual([wide!.left, wide!.right], [50, 70]);
});

test("chips stay inside the canvas and move aside for each other", () => {
  assert.equal(placed(row(100, [Look.nan, 0, 1]))[0]!.left, 0);
  assert.equal(placed(row(100, [Look.nan, 99, 100]))[0]!.right, 100);
  const [inf, nan] = placed(row(100, [Look.posinf, 40, 42], [Look.nan, 42, 46]));
  assert.ok(nan!.left > inf!.right && nan!.glyph);
});

test("where there is no room the bare run is painted", () => {
  const looks = new Uint8Array(60).map((_, i) => (i % 2 ? Look.nan : Look.value));
  const chips = placed(looks);
  assert.equal(chips.length, 30);
  assert.ok(chips.some((c) => !c.glyph) && chips.some((c) => c.glyph));
});

test("appending pixel by pixel ends as placing at once", () => {
  const looks = row(200, [Look.nan, 3, 4], [Look.posinf, 30, 31], [Look.nan, 31, 90], [Look.neginf, 95, 96], [Look.nan, 120, 121]);
  for (const step of [1, 2, 7]) {
    const chips: Chip[] = [];
    for (let at = 0; at < 200; at += step) placeChips(chips, looks, at, Math.min(200, at + step), SIZE);
    assert.deepEqual(chips, placed(looks));
  }
});

test("what lies far left of an append is not repainted", () => {
  const looks = row(200, [Look.nan, 10, 150]);
  const chips: Chip[] = [];
  placeChips(chips, looks, 0, 140, SIZE);
  assert.ok(placeChips(chips, looks, 140, 150, SIZE) >= 140 - 3 * SIZE);
});

test("a chip covers its neighbours, not its own run", () => {
  const chips = placed(row(100, [Look.nan, 20, 21]));
  assert.equal(coveredBy(chips, 17), chips[0]);
  assert.equal(coveredBy(chips, 20), undefined);
  assert.equal(coveredBy(chips, 25), undefined);
});
