import assert from "node:assert/strict";
import { test } from "node:test";
import { unitsOf } from "../src/rows/folds";
import type { Parameter } from "../src/data/feed";
import { treeOf } from "../src/mask/tree";

const parameters = (...names: string[]): Parameter[] => names.map((name) => ({ name, dtype: "float32", shape: [2] }));
const rows = (names: string[], folded: string[] = [], flat = false): string[] =>
  treeOf(unitsOf(parameters(...names), new Set(folded)), flat).map(({ label, depth, open, members }) => `${"  ".repeat(depth)}${open === null ? "" : open ? "v " : "> "}${label} ${members.join()}`);

const MODEL = ["stem.weight", "body.0.conv.weight", "body.0.conv.bias", "body.1.conv.weight", "body.1.conv.bias", "head.weight", "head.bias", "scale"];

test("modules stand above what is in them, each with a row of its own", () => {
  assert.deepEqual(rows(MODEL), [
    "stem.weight 0",
    "v body 1,2,3,4",
    "  v body.0 1,2",
    "    conv.weight 1",
    "    conv.bias 2",
    "  v body.1 3,4",
    "    conv.weight 3",
    "    conv.bias 4",
    "v head 5,6",
    "  weight 5",
    "  bias 6",
    "scale 7",
  ]);
});

test("a folded module is one row, below the modules that are open", () => {
  assert.deepEqual(rows(MODEL, ["body.0", "head"]), ["stem.weight 0", "v body 1,2,3,4", "  > body.0 1,2", "  v body.1 3,4", "    conv.weight 3", "    conv.bias 4", "> head 5,6", "scale 7"]);
  assert.deepEqual(rows(MODEL, ["body"])[1], "> body 1,2,3,4");
});

test("a module that holds a single thing has no row beside that", () => {
  const names = [0, 1].flatMap((i) => [`model.layers.${i}.attn.weight`, `model.layers.${i}.attn.bias`]);
  assert.deepEqual(rows(names, ["model.layers.1"]), ["v model.layers 0,1,2,3", "  v layers.0 0,1", "    attn.weight 0", "    attn.bias 1", "  > layers.1 2,3"]);
  assert.deepEqual(rows(["head.weight"]), ["head.weight 0"]);
});

test("rows in another order are flat, under their whole names", () => {
  assert.deepEqual(rows(["b.0.weight", "b.0.bias"], [], true), ["b.0.weight 0", "b.0.bias 1"]);
});
