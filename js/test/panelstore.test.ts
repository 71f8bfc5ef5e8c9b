import assert from "node:assert/strict";
import { test } from "node:test";
import { percent } from "../src/panel/steer";
import { BUSY, DEAF, PanelStore } from "../src/panel/store";
import { verdictText } from "../src/panel/verdict";
import type { Controls, PanelMessage } from "../src/panel/wire";
import { encode, singles } from "./encode";

function open(isDead = false) {
  const sent: { kind: string; id: string; verb?: string; run?: number }[] = [];
  const send = (content: never): void => {
    if (isDead) throw new Error("Cannot send");
    sent.push(content);
  };
  const model = { get: () => [], send };
  const store = new PanelStore(model as unknown as ConstructorParameters<typeof PanelStore>[0]);
  let seq = 0;
  const receive = (controls: Controls | null, status = "training"): void => {
    seq += 1;
    const run = { status, epoch: 0, epochs: null, iteration: seq, iterations: null, nothing: null, left_s: null, metric_names: ["loss"], message: null };
    const about = { metrics: ["accuracy"], epoch_metrics: [], more_metrics: 0, overhead: 0.018, verdict: null, controls };
    const message = { kind: "columns", seq, fresh: seq === 1, level: 0, stages: [], run, ...about } as unknown as PanelMessage;
    const floats = (...values: number[]): Uint8Array => new Uint8Array(Float64Array.from(values).buffer);
    store.receive(message, [encode(singles([[0.5, 2]], seq - 1), 2), floats(2, 2), new Uint8Array(0), floats(0.5, 2), encode(singles([[1]]), 1)]);
  };
  return { store, sent, receive };
}

const CONTROLS: Controls = { run: 3, blocks: false };

test("a wish names its run, waits for its answer, and is not made twice", () => {
  const { store, sent, receive } = open();
  store.wish("pause");
  assert.equal(sent.length, 0, "there is nobody to ask yet");
  receive(CONTROLS);
  store.wish("pause");
  store.wish("stop");
  assert.deepEqual(sent.map(({ kind, verb, run }) => [kind, verb, run]), [["control", "pause", 3]]);
  store.receive({ kind: "answered", id: "another's", said: "no", error: "" }, []);
  assert.ok(store.waiting);
  store.receive({ kind: "answered", id: sent[0]!.id, said: "pauses after this iteration", error: "" }, []);
  assert.equal(store.waiting, null);
  assert.deepEqual(store.said, { text: "pauses after this iteration", isError: false });
  receive(CONTROLS, "paused");
  assert.equal(store.said, null, "it has come");
});

test("what is not answered within a second says why, and is over with its run", (t) => {
  t.mock.timers.enable({ apis: ["setTimeout"] });
  for (const [blocks, words] of [[true, DEAF], [false, BUSY]] as const) {
    const { store, receive } = open();
    receive({ run: 3, blocks });
    store.wish("stop");
    const said = (): string | undefined => store.said?.text;
    assert.equal(said(), undefined);
    t.mock.timers.tick(1000);
    assert.equal(said(), words);
    receive(null, "completed");
    assert.deepEqual([store.waiting, store.said], [null, null]);
  }
});

test("without a kernel nothing is thrown and nothing waited for", () => {
  const { store, receive } = open(true);
  receive(CONTROLS);
  store.hello(true);
  store.wish("stop");
  store.bye();
  assert.deepEqual([store.isLost, store.waiting], [true, null]);
});

test("its numbers are those that came", () => {
  const { store, receive } = open();
  receive(CONTROLS);
  receive(CONTROLS);
  assert.deepEqual([store.metrics, [...store.own], store.overhead], [["accuracy"], [0.5, 2], 0.018]);
  assert.equal(store.means.get("loss"), 2);
  assert.equal(store.byEpoch.count, 1, "an epoch that is told again is one");
});

test("where it went wrong is told in words", () => {
  const found = { iteration: 1016, parameter: "a", kind: "nan", growth: 40.2, before: 12 } as const;
  assert.equal(verdictText(found), " went non-finite (NaN) at iteration 1,016, first in the model. Its gradient had grown 40-fold in the 12 iterations before.");
  assert.match(verdictText({ ...found, growth: 0.25 }), /had shrunk 4-fold/);
  assert.match(verdictText({ ...found, growth: 1.1 }), /had hardly changed/);
  assert.match(verdictText({ ...found, parameter: "loss", kind: "posinf", growth: null }), /\(\+inf\) at iteration 1,016, before any gradient\.$/);
});

test("what recording costs", () => {
  assert.deepEqual([0.018, 0.12, 0.0001, 1.5].map(percent), ["1.8 %", "12 %", "under 0.1 %", "150 %"]);
});
