import assert from "node:assert/strict";
import { test } from "node:test";
import type { Form } from "../src/dtypes/facts";
import { factsOf } from "../src/dtypes/facts";



/** Each by what it is of: a dtype, or several with the iterations they hold from; "float32@cuda:0" is on another device. */
function forms(of: Record<string, string | Record<number, string>>): Map<string, Form[]> {
  return new Map(
    Object.entries(of).map(([name, said]) => [
      name,
      Object.entries(typeof said === "string" ? { 0: said } : said).map(([iteration, text]) => {
        const [dtype, device = "cpu"] = text.split("@") as [string, string?];
        return { iteration: Number(iteration), dtype, device: device === "?" ? null : device };
      }),
    ]),
  );
}

const notes = (of: Parameters<typeof forms>[0]): string[] => factsOf(forms(of)).notes.map((note) => note.text);
const flagged = (of: Parameters<typeof forms>[0]): string[] => [...new Set(factsOf(forms(of)).notes.flatMap((note) => note.of))];

test("what goes together has no note", () => {
  assert.deepEqual(notes({ parameter: "float32", gradient: "float32", exp_avg: "float32", exp_avg_sq: "float32" }), []);
  assert.deepEqual(notes({ parameter: "bfloat16", gradient: "float32", master: "float32", exp_avg: "float32" }), []);
  assert.deepEqual(notes({ parameter: "float64", gradient: "float64" }), []);
  assert.deepEqual(factsOf(undefined).notes, []);
});

test("a 16-bit parameter that is trained as it is has no copy", () => {
  const of = { parameter: "float16", gradient: "float16", exp_avg: "float16" };
  assert.deepEqual(notes(of), ["no float32 copy: small updates are lost"]);
  assert.deepEqual(flagged(of), ["parameter", "master"]);
  assert.deepEqual(notes({ parameter: "float16" }), [], "a frozen one needs none");
});

test("gradient and state are held against what the optimizer moves", () => {
  assert.deepEqual(notes({ parameter: "float32", gradient: "float16" }), ["gradient is float16, the parameter float32"]);
  const half = { parameter: "bfloat16", master: "float32", gradient: "float32", exp_avg: "bfloat16", exp_avg_sq: "bfloat16" };
  assert.deepEqual(notes(half), ["exp_avg, exp_avg_sq are bfloat16, its master copy float32"]);
  assert.deepEqual(flagged(half), ["state"]);
});

test("what lies on another device is told", () => {
  const of = { parameter: "float32@cuda:0", gradient: "float32@cuda:0", exp_avg: "float32@cpu" };
  assert.deepEqual(notes(of), ["exp_avg is on cpu, the parameter on cuda:0"]);
  assert.deepEqual(flagged(of), ["state", "device"]);
  assert.deepEqual(notes({ parameter: "float32@cuda:0", gradient: "float32@?" }), [], "nobody wrote it down");
});

test("what changed is told with the iteration it changed at", () => {
  const of = { parameter: "float32", gradient: { 0: "float16", 40: "float32" } };
  assert.deepEqual(notes(of), ["gradient was float16 before iteration 40"]);
  assert.deepEqual(flagged(of), ["gradient"]);
  assert.deepEqual(notes({ parameter: { 0: "float32@cpu", 7: "float32@cuda:0" } }), ["parameter was on cpu before iteration 7"]);
  assert.deepEqual(notes({ parameter: { 0: "float32@?", 7: "float32@cpu" } }), [], "a device that was not written down before");
});

test("moments that changed together are told together", () => {
  const change = { 0: "bfloat16", 3: "float32" };
  const of = { parameter: "float32", gradient: "float32", exp_avg: change, exp_avg_sq: change };
  assert.deepEqual(notes(of), ["exp_avg, exp_avg_sq were bfloat16 before iteration 3"]);
});

test("moments are told by the optimizer's own names", () => {
  assert.deepEqual(
    factsOf(forms({ parameter: "float32", gradient: "float32", momentum_buffer: "float32" })).state.map(([name]) => name),
    ["momentum_buffer"],
  );
});
