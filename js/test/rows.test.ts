import assert from "node:assert/strict";
import { test } from "node:test";
import { blockOf, fitEnd, layOut, PITCH, rowAt } from "../src/rows";

const parameters = (...names: string[]) => names.map((name) => ({ name, dtype: "float32", shape: [2] }));

test("a block is the first component, and the second if it is a number", () => {
  assert.equal(blockOf("encoder.0.attn.weight"), "encoder.0");
  assert.equal(blockOf("head.proj.weight"), "head");
  assert.equal(blockOf("embed.weight"), "embed");
  assert.equal(blockOf("temperature"), "");
  // The number is the name itself here, not a module.
  assert.equal(blockOf("weights.0"), "weights");
});

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
  for (const row of layout.rows) {
    assert.equal(rowAt(layout, row.top)?.index, row.index);
    assert.equal(rowAt(layout, row.top + PITCH - 0.1)?.index, row.index);
  }
  assert.equal(rowAt(layout, 1), null);
  assert.equal(rowAt(layout, layout.rows[2]!.top - 1), null);
  assert.equal(rowAt(layout, layout.height + 1), null);
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
