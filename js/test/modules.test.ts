import assert from "node:assert/strict";
import { test } from "node:test";
import { Modules } from "../src/rows/modules";

const described = (names: readonly string[]) => names.map((name) => ({ name, dtype: "float32", shape: [2] }));
const LARGE = Array.from({ length: 40 }, (_, i) => ["attn.weight", "attn.bias"].map((leaf) => `layers.${i}.${leaf}`)).flat();
const shown = (modules: Modules): string[] => modules.units.map((unit) => unit.name);

test("few names that are looked for are shown outside their modules, and folded again afterwards", () => {
  const modules = new Modules();
  modules.read(described(LARGE));
  assert.equal(shown(modules).length, 40);
  modules.filter("layers.3. bias");
  assert.deepEqual(shown(modules), ["layers.3.attn.bias"]);
  modules.filter("layers");
  assert.equal(shown(modules).length, 40);
  modules.filter("");
  assert.equal(shown(modules).length, 40);
  assert.ok(modules.units.every((unit) => unit.folded));
});

test("what the user has folded stays when parameters are added", () => {
  const modules = new Modules();
  modules.read(described(["a.b.weight", "a.b.bias"]));
  modules.fold("a");
  modules.read(described(["a.b.weight", "a.b.bias", "c.weight"]));
  assert.deepEqual(shown(modules), ["a", "c.weight"]);
});

test("levels end where everything is open, and where everything is folded", () => {
  const modules = new Modules();
  modules.read(described(["a.0.b.weight", "a.0.b.bias", "a.1.b.weight", "a.1.b.bias"]));
  assert.deepEqual([modules.isDeepest, modules.isShallowest], [true, false]);
  modules.deeper(-1);
  assert.deepEqual(shown(modules), ["a.0", "a.1"]);
  modules.deeper(-1);
  assert.deepEqual(shown(modules), ["a"]);
  assert.deepEqual([modules.isDeepest, modules.isShallowest], [false, true]);
  modules.deeper(1);
  assert.deepEqual(shown(modules), ["a.0", "a.1"]);
});

test("flat parameters have nothing to fold", () => {
  const modules = new Modules();
  modules.read(described(["w", "b"]));
  assert.deepEqual([modules.isDeepest, modules.isShallowest], [true, true]);
});
