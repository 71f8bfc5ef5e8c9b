import assert from "node:assert/strict";
import { test } from "node:test";
import { Source } from "../src/data/source";
import type { Model } from "../src/data/store";
import { Store } from "../src/data/store";
import type { ColumnsMessage, Run } from "../src/data/wire";
import type { Column } from "./encode";
import { encode, singles } from "./encode";

const run: Run = { status: "training", epoch: 0, epochs: null, iteration: 0, iterations: null, nothing: null, left_s: null, metric_names: [], message: null };

function open(runs: [string, string] | null = null, kept: unknown = null) {
  const sent: { kind: string; have: number }[] = [];
  const model = { get: (name: string) => ({ _parameters: [], _quantity: { runs }, _kept: kept })[name] ?? null, send: (content: never) => sent.push(content) };
  const store = new Store(model as unknown as Model);
  store.hello();
  const receive = (seq: number, columns: Column[], rows: number, more: Partial<ColumnsMessage> = {}, epochs: number[] = [], loss = 0.5): void =>
    store.receive({ kind: "columns", seq, fresh: false, level: 0, stages: [], run, ...more }, [
      encode(columns, rows),
      new Uint8Array(Float64Array.of(loss).buffer),
      new Uint8Array(Uint32Array.from(epochs).buffer),
    ]);
  return { store, sent, receive };
}

test("it says hello, and nothing else while nothing is missing", () => {
  const { store, sent, receive } = open();
  receive(1, singles([[1, 0.5]]), 2);
  receive(2, singles([[2, 0.4]], 1), 2);
  assert.deepEqual(sent, [{ kind: "hello", have: 0 }]);
  assert.equal(store.overview.count, 2);
  assert.equal(store.catchingUp, false);
});

test("of a whole picture that came merged nothing is taken for fine, and what comes after it is", () => {
  const { store, receive } = open();
  receive(1, [{ start: 0, stop: 4, max: [2, 1], min: [1, 1] }, { start: 4, stop: 8, max: [2, 1], min: [1, 1] }], 2, { fresh: true, level: 2 });
  assert.equal(store.columnsFor({ start: 0, span: 8 }).level, 2, "so that finer ones are asked for");
  receive(2, singles([[1, 1]], 8), 2);
  assert.equal(store.columnsFor({ start: 8, span: 1 }).level, 0);
});

test("what the numbers are decides the scale", () => {
  const norms = open();
  norms.receive(1, singles([[0.9, 1]]), 2);
  assert.deepEqual(new Source(norms.store).domain, { lo: -3, hi: 0, base: 10 });
  const ratios = open(["b", "a"]);
  ratios.receive(1, singles([[0.9, 1]]), 2);
  assert.deepEqual(new Source(ratios.store).domain, { lo: -2, hi: 2, base: 2 });
});

test("the loss shown is the newest batch's own, also where the last column holds several", () => {
  const { store, receive } = open();
  receive(1, singles([[1, 1]]), 2);
  assert.equal(store.loss, null, "no iteration has run");
  const merged = [{ start: 1, stop: 3, max: [1, 9], min: [1, 0.1], flags: [0, 1] }];
  receive(2, merged, 2, { run: { ...run, iteration: 3 } }, [], 0.1);
  assert.equal(store.loss, 0.1);
});

test("a loss that was not taken is none, and a run without any has no lane for it", () => {
  const { store, receive } = open();
  const none = (first: number) => ({ start: first, stop: first + 1, max: [1, NaN], flags: [0, 128] });
  receive(1, [none(0), none(1)], 2, { run: { ...run, iteration: 2 } }, [], NaN);
  assert.equal(store.loss, null);
  assert.equal(store.survey.hasLoss, false);
  receive(2, [{ start: 2, stop: 3, max: [1, NaN], flags: [0, 1] }], 2, { run: { ...run, iteration: 3 } }, [], NaN);
  assert.ok(Number.isNaN(store.loss), "it is NaN");
  assert.equal(store.survey.hasLoss, true);
  receive(3, [none(3)], 2, { run: { ...run, iteration: 4 } }, [], NaN);
  assert.equal(store.loss, null);
  receive(4, [none(0)], 2, { fresh: true });
  assert.equal(store.survey.hasLoss, false);
  receive(5, [{ start: 1, stop: 3, max: [1, 0.5], min: [1, 0.5], flags: [0, 128] }], 2);
  assert.equal(store.survey.hasLoss, true, "one of two iterations had a loss");
});

test("a message that cannot be read changes nothing, and the gap is noticed", () => {
  const { store, receive } = open();
  receive(1, singles([[1, 1]]), 2);
  assert.throws(() => store.receive({ kind: "columns", seq: 2, fresh: false, level: 0, stages: [], run }, [encode(singles([[1, 1]], 1), 2), new Uint8Array(3), new Uint8Array(0)]));
  assert.equal(store.overview.count, 1);
  receive(3, singles([[1, 1]], 2), 2);
  assert.equal(store.catchingUp, true);
});

test("after a gap it goes on, asks without flooding, and a fresh message heals it", () => {
  const { store, sent, receive } = open();
  receive(1, singles([[1, 1]]), 2);
  receive(5, singles([[1, 1]], 4), 2);
  receive(6, singles([[1, 1]], 5), 2);
  assert.equal(store.catchingUp, true);
  assert.equal(store.seq, 1, "what we have is what came before the gap");
  assert.equal(store.overview.count, 3);
  assert.equal(sent.length, 1, "hello went out moments ago");
  receive(6, singles([[1, 1], [1, 1], [1, 1], [1, 1], [1, 1], [1, 1]]), 2, { fresh: true });
  assert.equal(store.catchingUp, false);
  assert.equal(store.overview.count, 6);
  receive(7, singles([[1, 1]], 6), 2);
  assert.equal(store.seq, 7);
});

test("what the whole picture holds is not appended twice", () => {
  const { store, receive } = open();
  receive(3, singles([[1, 1], [1, 1], [1, 1]]), 2, { fresh: true });
  receive(3, singles([[1, 1]], 2), 2);
  assert.equal(store.overview.count, 3);
});

test("the colour domain knows finite positive parameters only, and starts anew with a fresh message", () => {
  const { store, receive } = open();
  receive(1, [{ start: 0, stop: 1, max: [5e-3, 0, NaN, 1e9], min: [2e-6, 0, NaN, 1e9], flags: [0, 8, 1, 0] }], 4);
  assert.deepEqual(new Source(store).domain, { lo: -6, hi: -2, base: 10 });
  receive(2, singles([[1, 1, 1, 1]], 1), 4);
  assert.deepEqual(new Source(store).domain, { lo: -6, hi: 0, base: 10 });
  receive(3, singles([[50, 1, 1, 1]]), 4, { fresh: true });
  assert.deepEqual(new Source(store).domain, { lo: -1, hi: 2, base: 10 });
});

test("parameters may be added during a run", () => {
  const { store, receive } = open();
  receive(1, singles([[1, 0.5]]), 2);
  receive(2, singles([[1, 2, 0.4]], 1), 3);
  assert.deepEqual([...store.overview.flags.subarray(0, 6)], [0, 128, 0, 0, 0, 0]);
  assert.equal(store.overview.max[2], 0.5);
});

test("epochs are found by their starts, also by a page that came late", () => {
  const { store, receive } = open();
  receive(1, [], 1, {}, [0, 10]);
  receive(2, [], 1, {}, [20]);
  assert.deepEqual([0, 9, 10, 25].map((i) => store.epochOf(i)), [0, 0, 1, 2]);
  const late = open();
  late.receive(9, singles([[1]], 30), 1, { run: { ...run, epoch: 3 } }, [30]);
  assert.equal(late.store.epochOf(31), 3);
});

test("messages of another kind are not ours", () => {
  const { store } = open();
  store.receive({ kind: "other" } as unknown as ColumnsMessage, []);
  assert.equal(store.newest, 0);
  assert.throws(() => store.receive({ kind: "columns", seq: 1, fresh: false, level: 0, stages: [], run }, []), /0 buffers instead of 3/);
});

test("a tail of a long run is seen as it came", () => {
  const { store, receive } = open();
  for (let seq = 0; seq < 50; seq++) {
    receive(seq + 1, singles(Array.from({ length: 100 }, (_, i) => [100 * seq + i, 1]), 100 * seq), 2);
  }
  assert.equal(store.end, 5000);
  assert.equal(store.columnsFor({ start: 0, span: 5000 }).level, 1);
  const { columns, level } = store.columnsFor({ start: 4800, span: 200 });
  assert.equal(level, 0);
  assert.equal(columns.stop[columns.count - 1], 5000);
});

test("a picture that was kept is there at once, and all of it is asked for", () => {
  const empty = new Uint8Array(0);
  const message = { kind: "columns", seq: 7, fresh: true, level: 1, stages: [], run };
  const columns = encode([{ start: 0, stop: 2, max: [3, 1], min: [2, 1], flags: [0, 0] }], 2);
  const { store, sent, receive } = open(null, { message, buffers: [columns, empty, empty] });
  assert.equal(store.end, 2);
  assert.deepEqual(sent, [{ kind: "hello", have: 0 }]);
  receive(7, singles([[9, 9]], 1), 2);
  assert.equal(store.end, 2, "It holds that message already.");
  receive(8, singles([[4, 1]], 2), 2);
  assert.equal(store.end, 3);
  assert.equal(store.catchingUp, false);
  const broken = open(null, { message, buffers: [] }).store;
  assert.match(broken.error!, /0 buffers/);
  assert.equal(broken.end, 0);
});

test("a column is of one iteration until Python has merged some", () => {
  const { store, receive } = open();
  const whole = { start: 0, span: 10 };
  receive(1, singles([[1, 1]]), 2);
  assert.equal(store.columnsFor(whole).exact, true);
  receive(2, [{ start: 1, stop: 5, max: [2, 1], min: [2, 1], flags: [0, 0] }], 2, { level: 2 });
  assert.equal(store.columnsFor(whole).exact, false);
  receive(3, singles([[1, 1], [2, 1]]), 2, { fresh: true });
  assert.equal(store.columnsFor(whole).exact, true);
});
