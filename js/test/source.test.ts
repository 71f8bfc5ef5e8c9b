import assert from "node:assert/strict";
import { test } from "node:test";
import { Source } from "../src/data/source";
import type { Model } from "../src/data/store";
import { Store } from "../src/data/store";
import type { AnswerMessage, Run } from "../src/data/wire";
import { encode, singles } from "./encode";

const run: Run = { status: "training", epoch: 0, epochs: null, iteration: 0, iterations: null, nothing: null, left_s: null, metric_names: [], message: null };
const quantity = { label: "gradient, mean", title: "means", noun: "mean", runs: null, where: "", of: "parameter" };

function open(iterations = 100) {
  const asked: any[] = [];
  const model = { get: (name: string) => ({ _parameters: [], _quantity: { runs: null } })[name] ?? null, send: (content: any) => asked.push(content) };
  const store = new Store(model as unknown as Model);
  let seq = 0;
  const receive = (n: number): void => {
    store.receive({ kind: "columns", seq: ++seq, fresh: false, level: 0, stages: ["backward"], run }, [
      encode(singles(Array.from({ length: n }, () => [1, 0.5]), store.end), 2),
      new Uint8Array(8),
      new Uint8Array(0),
    ]);
  };
  for (let left = iterations; left > 0; left -= 500) receive(Math.min(500, left));
  const source = new Source(store);
  const answer = (first: number, values: number[], more: Partial<AnswerMessage> = {}): boolean => {
    const message: AnswerMessage = { kind: "answer", id: asked.at(-1).id, end: store.end, level: 0, scale: "signed", quantity, ...more };
    return source.receive(message, [encode(singles(values.map((value) => [value, 0]), first), 2), new Uint8Array(768)]);
  };
  return { store, source, asked, answer, receive };
}

const whole = { start: 0, span: 100 };

test("norms that are fine enough take no question", () => {
  const { source, asked } = open();
  source.want(whole, 900, 0);
  assert.deepEqual(asked, []);
  assert.equal(source.isWaiting, false);
});

test("another statistic is asked for once, and shown when the answer is there", () => {
  const { store, source, asked, answer } = open();
  source.choice = { statistic: "mean", stage: "backward" };
  source.want(whole, 900, 0);
  source.want({ start: 10, span: 20 }, 900, 1);
  assert.equal(asked.length, 1);
  assert.deepEqual({ ...asked[0], id: "" }, { kind: "ask", id: "", statistic: "mean", stage: "backward", start: 0, stop: 100, span: 100 });
  assert.equal(source.isWaiting, true);
  assert.equal(source.columnsFor(whole).columns, store.overview, "Meanwhile what was there stays.");
  assert.equal(answer(0, [-4, 0.5, 0.02]), true);
  assert.equal(source.isWaiting, false);
  assert.equal(source.columnsFor(whole).columns.count, 3);
  assert.deepEqual(source.domain, { lo: -2, hi: 1, base: 10, signed: true });
  assert.equal(source.shown.quantity.noun, "mean");
  source.want(whole, 900, 2);
  assert.equal(asked.length, 1);
});

test("an answer to another view's question is not ours", () => {
  const { source, answer, asked } = open();
  source.choice = { statistic: "mean", stage: "backward" };
  source.want(whole, 900, 0);
  const { id } = asked[0];
  assert.equal(answer(0, [1], { id: `${id}0` }), false);
  assert.equal(source.isWaiting, true);
});

test("while a run goes on the answer is renewed, but not at every column", () => {
  const { source, asked, answer, receive } = open();
  source.choice = { statistic: "rms", stage: "backward" };
  source.want(whole, 900, 0);
  answer(0, Array.from({ length: 100 }, () => 1), { scale: "norms" });
  receive(10);
  source.want({ start: 0, span: 128 }, 900, 500);
  source.want(whole, 900, 900);
  const before = asked.length;
  source.want(whole, 900, 5000);
  assert.ok(before <= 2 && asked.length <= before + 1);
});

test("an error is kept to be shown, and what was chosen goes back to what there is", () => {
  const { source, answer } = open();
  source.choice = { statistic: "mean", stage: "backward" };
  source.want(whole, 900, 0);
  answer(0, [], { error: "HistoryError: no" });
  assert.equal(source.error, "HistoryError: no");
  assert.equal(source.isLive, true);
});

test("a deep zoom into merged iterations is asked for, and the live numbers come back outside it", () => {
  const { store, source, asked, answer } = open(10_000);
  const part = { start: 1000, span: 50 };
  assert.ok(source.columnsFor(part).level > 0);
  source.want(part, 900, 0);
  assert.deepEqual([asked.at(-1).start, asked.at(-1).stop, asked.at(-1).statistic], [1000, 1050, "norm"]);
  answer(1000, Array.from({ length: 50 }, () => 1), { scale: "norms" });
  assert.equal(source.columnsFor(part).level, 0);
  assert.equal(source.shown.quantity, store.quantity);
  const all = { start: 0, span: 16_384 };
  assert.equal(source.columnsFor(all).columns, store.overview);
  source.want(all, 900, 10);
  assert.equal(asked.length, 1);
});
