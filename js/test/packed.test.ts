import assert from "node:assert/strict";
import { existsSync, readFileSync } from "node:fs";
import { resolve } from "node:path";
import { test } from "node:test";
import { decodeColumns, encodeColumns } from "../src/data/wire";
import { unflat } from "../src/page/packed";
import { encode, singles } from "./encode";

interface Golden {
  rounded: boolean;
  flat: string;
  columns: string;
}

const bytes = (base64: string): Uint8Array => new Uint8Array(Buffer.from(base64, "base64"));

test("what Python wrote is read: exactly where it is exact, and else to the seventh digit", () => {
  const path = resolve("../tests/data/packed.json");
  assert.ok(existsSync(path), `${path} is missing: the Python side writes it (tests/data/)`);
  const cases = JSON.parse(readFileSync(path, "utf8")) as Golden[];
  assert.ok(cases.length > 0, `${path} holds no cases`);
  cases.forEach((golden, i) => {
    const read = unflat(bytes(golden.flat));
    const expected = decodeColumns(bytes(golden.columns));
    assert.equal(read.count, expected.count, `case ${i}: count`);
    assert.equal(read.rows, expected.rows, `case ${i}: rows`);
    for (const name of ["start", "stop", "flags"] as const) assert.deepEqual([...read[name]], [...expected[name]], `case ${i}: ${name}`);
    for (const name of ["max", "min"] as const) {
      read[name].forEach((value, cell) => {
        const wanted = expected[name][cell]!;
        // Powers may differ in their last bit from one machine to the next.
        const isClose = Math.abs(value - wanted) <= (golden.rounded ? 2e-7 * Math.abs(wanted) : 0);
        assert.ok(Object.is(value, wanted) || isClose || (value === 0 && wanted === 0), `case ${i}: ${name} of cell ${cell} is ${value}, not ${wanted}`);
      });
    }
    assert.equal(read.min === read.max, expected.min === expected.max, `case ${i}: whether anything was merged`);
  });
});

test("columns are written as they are read", () => {
  for (const columns of [singles([[1, NaN], [2, 0]], 5), [{ start: 0, stop: 4, max: [3, 1], min: [2, 1], flags: [8, 1] }]]) {
    const bytes = encode(columns, 2);
    assert.deepEqual(encodeColumns(decodeColumns(bytes)), bytes);
  }
});
