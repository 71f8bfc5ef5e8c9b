import assert from "node:assert/strict";
import { test } from "node:test";
import { blocksOf, depthFor, depthOf, foldedAt, opened, unitsOf } from "../src/rows/folds";

const described = (names: readonly string[]) => names.map((name) => ({ name, dtype: "float32", shape: [2] }));
const shown = (names: readonly string[], folded: Iterable<string>) => unitsOf(described(names), new Set(folded)).map((unit) => unit.name);

const GPT = [
  "transformer.wte.weight",
  ...[0, 1, 2].flatMap((i) => ["ln.weight", "attn.c.weight", "attn.c.bias"].map((leaf) => `transformer.h.${i}.${leaf}`)),
  "transformer.ln_f.weight",
  "head.weight",
];

test("a block is the first component, and the second if it is a number", () => {
  assert.deepEqual(blocksOf(["encoder.0.attn.weight", "head.proj.weight", "embed.weight", "temperature"]), ["encoder.0", "head", "embed", ""]);
  // The number is the name itself here, not a module.
  assert.deepEqual(blocksOf(["weights.0"]), ["weights"]);
});

test("a number further on makes a block where modules lie below it", () => {
  assert.deepEqual(new Set(blocksOf(GPT)), new Set(["transformer", "transformer.h.0", "transformer.h.1", "transformer.h.2", "head"]));
  assert.deepEqual(blocksOf(["encoder.attn.weight", "encoder.mlp.0.weight", "encoder.mlp.2.weight"]), ["encoder", "encoder", "encoder"]);
});

test("a folded module is one row of all its parameters, wherever blocks lie inside", () => {
  assert.deepEqual(shown(GPT, ["transformer"]), ["transformer", "head.weight"]);
  const [row] = unitsOf(described(GPT), new Set(["transformer"]));
  assert.equal(row!.members.length, 11);
  assert.equal(row!.note, "11");
  assert.deepEqual(shown(GPT, ["transformer.h.1"]).length, GPT.length - 2);
});

test("a module of one parameter stays that parameter", () => {
  assert.deepEqual(unitsOf(described(["a.weight", "b.weight"]), new Set(["a"]))[0], {
    members: [0],
    name: "a.weight",
    note: "f32",
    block: "a",
    folded: false,
  });
});

test("levels fold from the blocks up to the outermost modules", () => {
  assert.equal(depthOf(GPT), 3);
  assert.deepEqual(shown(GPT, foldedAt(GPT, 4)), GPT);
  assert.deepEqual(shown(GPT, foldedAt(GPT, 3)), ["transformer.wte.weight", "transformer.h.0", "transformer.h.1", "transformer.h.2", "transformer.ln_f.weight", "head.weight"]);
  assert.deepEqual(shown(GPT, foldedAt(GPT, 1)), ["transformer", "head.weight"]);
});

test("a module that is opened shows the blocks in it, folded", () => {
  const folded = opened(GPT, new Set(["transformer"]), "transformer");
  assert.deepEqual(shown(GPT, folded), shown(GPT, foldedAt(GPT, 3)));
  assert.deepEqual(shown(GPT, opened(GPT, folded, "transformer.h.0")).slice(0, 5), [...GPT.slice(0, 4), "transformer.h.1"]);
});

test("a small model is open, and a large one as deep as it has room, but for what tells nothing", () => {
  assert.equal(depthFor(described(GPT), 60), 4);
  const large = Array.from({ length: 24 }, (_, i) => ["a.weight", "a.bias", "b.weight"].map((leaf) => `layers.${i}.${leaf}`)).flat();
  assert.equal(depthFor(described(large), 60), 2);
  assert.equal(shown(large, foldedAt(large, 2)).length, 24);
  assert.equal(depthFor(described(large), 20), 2);
});

test("what is filtered away is no member of a folded module", () => {
  const [row] = unitsOf(described(GPT), new Set(["transformer"]), (place) => GPT[place]!.endsWith("bias"));
  assert.deepEqual(row!.members, [3, 6, 9]);
});
