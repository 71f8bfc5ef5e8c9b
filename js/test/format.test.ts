import assert from "node:assert/strict";
import { test } from "node:test";
import { describeLoss, describeParameter, sentence } from "../src/heatmap/describe";
import { count, duration, glance, iterations, power, precise, shape, shortDtype } from "../src/kit/format";
import { epochText, fraction, iterationText } from "../src/run/status";
import { noteText } from "../src/heatmap/legend";
import type { Quantity } from "../src/data/store";
import { summary } from "../src/heatmap/summary";
import type { Run } from "../src/data/wire";

test("thousands are separated", () => {
  assert.deepEqual([0, 999, 1000, 1284, 1234567].map(count), ["0", "999", "1,000", "1,284", "1,234,567"]);
});

test("a glance is three digits", () => {
  assert.deepEqual([0.2143, 0.95, 12.34, 999.7, 1234.4, 0].map(glance), ["0.214", "0.950", "12.3", "1,000", "1,234", "0"]);
  assert.deepEqual([-2.5, 1.234e-5, 7e9].map(glance), ["-2.50", "1.23e-5", "7.00e9"]);
  assert.deepEqual([NaN, Infinity, -Infinity].map(glance), ["NaN", "+inf", "−inf"]);
});

test("a precise value is four digits, and clamped ends say so", () => {
  assert.deepEqual([2.134e-3, 3.41, 73.9, 12345.6, 2.5e7, 0].map(precise), ["2.134e-3", "3.410", "73.90", "12,346", "2.500e7", "0"]);
  assert.equal(precise(Math.fround(1.4e-45)), "≤ 1.4e-45");
  assert.equal(precise(Math.fround(3.4028235e38)), "≥ 3.4e38");
});

test("times, powers, shapes, dtypes", () => {
  assert.deepEqual([0, 42.4, 61, 3723].map(duration), ["0:00", "0:42", "1:01", "1:02:03"]);
  assert.deepEqual([-4, 0, 10].map((n) => power(2, n)), ["1/16", "1", "1,024"]);
  assert.deepEqual([-8, 0, 12].map((n) => power(10, n)), ["10⁻⁸", "10⁰", "10¹²"]);
  assert.deepEqual([shape([64, 128]), shape([1024]), shape([])], ["64 × 128", "1,024", "scalar"]);
  assert.equal(shape(null), "shape unknown");
  assert.deepEqual(
    ["float32", "bfloat16", "float16", "float64", "float8_e4m3fn", "complex64", "quint"].map(shortDtype),
    ["f32", "bf16", "f16", "f64", "f8", "c64", "quint"],
  );
  assert.equal(iterations(128, 129), "iteration 128");
  assert.equal(iterations(1128, 1132), "iterations 1,128–1,131");
});

const run: Run = { status: "training", epoch: 3, epochs: 6, iteration: 1284, iterations: 2106, nothing: null, left_s: 42, metric_names: [], message: null };

test("the head line says where the run stands", () => {
  assert.equal(epochText(run), "epoch 4 of 6");
  assert.equal(iterationText(run), "iteration 1,284 of 2,106 · 0:42 left");
  assert.equal(iterationText({ ...run, status: "failed", iterations: null }), "iteration 1,284");
  assert.equal(epochText({ ...run, status: "idle", iteration: 0 }), "");
});

test("progress is by iterations, else by epochs, else unknown", () => {
  assert.equal(fraction({ ...run, iteration: 1053 }), 0.5);
  assert.equal(fraction({ ...run, iterations: null }), 0.5);
  assert.equal(fraction({ ...run, iterations: null, epochs: null }), null);
  assert.equal(fraction({ ...run, iterations: null, epochs: null, status: "completed" }), 1);
});

test("the note says how many iterations are seen as one", () => {
  assert.equal(noteText(0, 1), "");
  assert.equal(noteText(2, 4), "1 column = 4 iterations (max)");
  assert.equal(noteText(0, 3), "1 column = up to 3 iterations (max)");
});

const norm: Quantity = { label: "gradient norm", title: "gradient norms", noun: "norm", runs: null, where: "", of: "parameter" };
const ratio: Quantity = { label: "b ÷ a", title: "ratios", noun: "ratio", runs: ["b", "a"], where: " in a or b", of: "parameter" };

test("a ratio says which run is larger, and a mark which runs it may be of", () => {
  const parameter = { name: "w", dtype: "float32", shape: [2] };
  const when = { start: 3, stop: 4, isOne: false, firstEpoch: 0, lastEpoch: 0 };
  const value = (max: number, min = max): string => describeParameter(parameter, { max, min, flags: 0 }, when, ratio).value;
  assert.equal(value(4.2), "ratio 4.200 (b is 4.20 times a)");
  assert.equal(value(0.25), "ratio 0.2500 (a is 4.00 times b)");
  assert.equal(value(1.001), "ratio 1.001 (b is about as large as a)");
  assert.equal(value(1), "ratio 1.000 (b is as large as a)");
  assert.equal(value(4, 0.25), "ratio max 4.000, min 0.2500");
  assert.equal(value(0), "ratio 0");
  const { value: none, flags } = describeParameter(parameter, { max: NaN, min: NaN, flags: 1 | 8 | 16 | 32 }, when, ratio);
  assert.equal(none, "");
  assert.deepEqual(flags, ["NaN in a or b", "zero in a or b", "unused in a or b", "frozen in a or b"]);
});

test("the picture in a sentence says what its numbers are", () => {
  const overview = { count: 1, stop: Uint32Array.of(180) } as never;
  const parameters = [{ name: "w", dtype: "float32", shape: [2] }];
  const said = (quantity: Quantity, base: number): string =>
    summary({ quantity, parameters, overview, run, domain: { lo: -4, hi: 4, base }, seen: Uint8Array.of(32) });
  assert.equal(said(norm, 10), "Heatmap of the gradient norms of 1 parameter over 180 iterations, from 1e-4 to 1e4. Seen at some time: frozen in 1.");
  assert.equal(said(ratio, 2), "Heatmap of the ratios of 1 parameter over 180 iterations, from 1/16 to 16. Seen at some time in a or b: frozen in 1.");
});

test("a cell in words", () => {
  const parameter = { name: "encoder.0.weight", dtype: "bfloat16", shape: [64, 64] };
  const one = describeParameter(parameter, { max: 2.134e-3, min: 2.134e-3, flags: 0 }, { start: 128, stop: 129, isOne: false, firstEpoch: 0, lastEpoch: 0 }, norm);
  assert.deepEqual(one, { title: "encoder.0.weight", kind: "64 × 64 · bfloat16", when: "iteration 128 · epoch 0", value: "norm 2.134e-3", flags: [] });
  const merged = describeParameter(parameter, { max: 2, min: 1, flags: 33 }, { start: 128, stop: 132, isOne: false, firstEpoch: 0, lastEpoch: 1 }, norm);
  assert.equal(merged.when, "iterations 128–131 · epochs 0–1");
  assert.equal(merged.value, "norm max 2.000, min 1.000");
  assert.deepEqual(merged.flags, ["NaN in the gradient", "frozen (in part)"]);
  assert.equal(sentence(one), "encoder.0.weight, iteration 128, epoch 0, norm 2.134e-3");
  const thinned = describeParameter(parameter, { max: 2, min: 2, flags: 32 }, { start: 128, stop: 132, isOne: true, firstEpoch: 0, lastEpoch: 0 }, norm);
  assert.equal(thinned.when, "iteration 128, the only one recorded of iterations 128–131 · epoch 0");
  assert.deepEqual(thinned.flags, ["frozen"], "It is not so in part of them.");
  const loss = describeLoss({ max: NaN, min: NaN, flags: 1 }, { start: 7, stop: 8, isOne: false, firstEpoch: 0, lastEpoch: 0 });
  assert.deepEqual([loss.value, loss.flags], ["", ["the loss is NaN"]]);
});
