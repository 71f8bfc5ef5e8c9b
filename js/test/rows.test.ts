import assert from "node:assert/strict";
import { test } from "node:test";
import { unitsOf } from "../src/rows/folds";
import { fitEnd, layOut, PITCH, rowAt } from "../src/rows/rows";

const units = (names: string[], ...folded: string[]) =>
  unitsOf(names.map((name) => ({ name, dtype: "float32", shape: [2] })), new Set(folded));
const parameters = (...names: string[]) => units(names);

test("nested names come under a bold header without its prefix", () => {
  const { headers, rows } = layOut(parameters("head.proj.weight", "head.proj.bias"));
  assert.deepEqual(headers.map((h) => h.label), ["head"]);
  assert.deepEqual(rows.map((r) => r.label), ["proj.weight", "proj.bias"]);
  assert.deepEqual(rows.map((r) => r.name), ["head.proj.weight", "head.proj.bias"]);
});

test("flat modules keep full names, parted by a gap", () => {
  const { headers, rows } = layOut(parameters("0.weight", "0.bias", "2.weight"));
  assert.deepEqual(headers, []);
  assert.deepEqual(rows.map((r) => r.label), ["0.weight", "0.bias", "2.weight"]);
  assert.equal(rows[1]!.top - rows[0]!.top, PITCH);
  assert.ok(rows[2]!.top - rows[1]!.top > PITCH);
});

test("declaration order stays, even where a block comes back", () => {
  const { rows, headers } = layOut(parameters("a.b.weight", "c.weight", "a.d.weight"));
  assert.deepEqual(rows.map((r) => r.name), ["a.b.weight", "c.weight", "a.d.weight"]);
  assert.deepEqual(headers.map((h) => h.label), ["a", "a"]);
});

test("a row is found by its height; headers and gaps are no rows", () => {
  const layout = layOut(parameters("a.b.weight", "a.b.bias", "c.weight"));
  for (const [place, row] of layout.rows.entries()) {
    assert.equal(rowAt(layout, row.top), place);
    assert.equal(rowAt(layout, row.top + PITCH - 0.1), place);
  }
  assert.equal(rowAt(layout, 1), null);
  assert.equal(rowAt(layout, layout.rows[2]!.top - 1), null);
  assert.equal(rowAt(layout, layout.height + 1), null);
});

test("a folded module is one row under its path, and folded ones stand close together", () => {
  const { headers, rows } = layOut(units(["a.0.b.weight", "a.0.b.bias", "a.1.b.weight", "a.1.b.bias", "c.weight"], "a.0", "a.1"));
  assert.deepEqual(headers, []);
  assert.deepEqual(rows.map((r) => [r.label, r.note]), [["a.0", "2"], ["a.1", "2"], ["c.weight", "f32"]]);
  assert.equal(rows[1]!.top - rows[0]!.top, PITCH);
});

test("no parameters, no rows", () => {
  assert.deepEqual(layOut([]), { rows: [], headers: [], height: 0 });
});

test("long names keep their end, cut at a dot where that is near", () => {
  const measure = (text: string): number => text.length;
  assert.equal(fitEnd("attn.out.weight", 20, measure), "attn.out.weight");
  assert.equal(fitEnd("attn.out.weight", 12, measure), "…out.weight");
  assert.equal(fitEnd("self_attention.weight", 14, measure), "…ention.weight");
});
