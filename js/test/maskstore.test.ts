import assert from "node:assert/strict";
import { test } from "node:test";
import type { Change, MaskMessage, Wish } from "../src/mask/store";
import { MaskStore } from "../src/mask/store";
import { encode, singles } from "./encode";

const WISH: Wish = { verb: "freeze", name: "body", parameters: [], modules: ["body"] };

function open() {
  const sent: { kind: string; id: string }[] = [];
  const model = { get: () => [], send: (content: never) => sent.push(content) };
  const store = new MaskStore(model as unknown as ConstructorParameters<typeof MaskStore>[0]);
  let seq = 0;
  const receive = (changes: Change[], fresh = false): void => {
    seq += 1;
    const run = { status: "training", epoch: 0, epochs: null, iteration: seq, iterations: null, nothing: null, left_s: null, metric_names: [], message: null };
    const message = { kind: "columns", seq, fresh, level: 0, stages: [], run, changes, barred: fresh ? "" : "no run" } as MaskMessage;
    store.receive(message, [encode(singles([[1, 1]], seq), 2), new Uint8Array(8), new Uint8Array(0)]);
  };
  const answer = (iteration: number | null, error = ""): void => store.receive({ kind: "answered", id: sent.at(-1)!.id, iteration, error }, []);
  return { store, sent, receive, answer };
}

const change = (iteration: number): Change => ({ iteration, event: "frozen", by: "user", names: ["w"], more: 0 });

test("changes add up, and begin anew with the whole picture", () => {
  const { store, receive } = open();
  receive([change(1)], true);
  assert.equal(store.barred, "");
  receive([change(2)]);
  assert.deepEqual(store.changes.map(({ iteration }) => iteration), [1, 2]);
  assert.equal(store.barred, "no run");
  receive([change(1)], true);
  assert.equal(store.changes.length, 1);
});

test("a wish waits until it is answered, and is not made twice", () => {
  const { store, sent, answer } = open();
  store.wish(WISH);
  store.wish(WISH);
  assert.equal(sent.length, 1);
  assert.ok(store.waiting.has("body"));
  answer(7);
  assert.equal(store.waiting.size, 0);
  assert.deepEqual(store.said, { text: "body is frozen from iteration 7 on", isError: false });
});

test("a wish that was not fulfilled says why", () => {
  const { store, answer } = open();
  store.wish({ ...WISH, verb: "unfreeze" });
  answer(null, "It cannot.");
  assert.deepEqual(store.said, { text: "body was not unfrozen. It cannot.", isError: true });
});

test("an answer to somebody else is not ours", () => {
  const { store } = open();
  store.wish(WISH);
  store.receive({ kind: "answered", id: "another page's", iteration: 1, error: "" }, []);
  assert.ok(store.waiting.has("body"));
});
