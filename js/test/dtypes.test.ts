import assert from "node:assert/strict";
import { test } from "node:test";
import { describeBars, limitsOf } from "../src/dtypes/bars";
import type { Item } from "../src/dtypes/columns";
import { COLUMNS, nextOrder, sorted } from "../src/dtypes/columns";
import { factsOf } from "../src/dtypes/facts";
import { DtypeFeed } from "../src/dtypes/feed";
import { rangeOf } from "../src/dtypes/scale";
import { percent, sentence, share } from "../src/dtypes/shares";
import type { DtypesMessage, Entries } from "../src/dtypes/wire";
import type { Run } from "../src/data/wire";
import { encode, singles } from "./encode";

const run: Run = { status: "training", epoch: 0, epochs: null, iteration: 0, iterations: null, nothing: null, left_s: null, metric_names: [], message: null };
const TEXTS = ["parameter", "float32", "cpu", "gradient", "float16"];

const bytes = (values: Int32Array | Uint32Array | Float64Array | Uint8Array): Uint8Array => new Uint8Array(values.buffer);

function news({ changes = [] as number[][], states = [0], places = [] as number[], counts = [] as number[] }) {
  return [
    bytes(Int32Array.from(changes.flat())),
    Uint8Array.from(states),
    bytes(Uint32Array.from(places)),
    bytes(Uint32Array.from(places.map(() => 100))),
    new Uint8Array(66 * places.length).fill(9),
    bytes(Float64Array.from(counts)),
  ];
}

function open() {
  const feed = new DtypeFeed({ get: (name: string) => (name === "_parameters" ? [{ name: "w", dtype: "float32", shape: [2] }] : {}), send: () => {} } as unknown as ConstructorParameters<typeof DtypeFeed>[0]);
  const receive = (seq: number, scales: number[], more: ReturnType<typeof news>, told: Partial<DtypesMessage> = {}): void =>
    feed.receive({ kind: "columns", seq, fresh: false, level: 0, stages: [], run, texts: TEXTS, skipped: 0, missing: 0, ...told }, [
      encode(singles(scales.map((scale) => [scale]), feed.end), 1),
      new Uint8Array(8),
      new Uint8Array(0),
      ...more,
    ]);
  return { feed, receive };
}

const COUNTS = [10, 2, 1, 3, 1, 0, 0, 0, 0, 5, 0, 1, 4, 1, 0];

test("what comes is added to what is there, and a whole message begins anew", () => {
  const { feed, receive } = open();
  receive(1, [1024], news({ changes: [[0, 0, 0, 1, 2], [0, 0, 3, 4, -1]], places: [0], counts: COUNTS }));
  receive(2, [512], news({ changes: [[40, 0, 3, 1, 2]], states: [2] }), { skipped: 1 });
  assert.deepEqual([...feed.forms.get(0)!], [
    ["parameter", [{ iteration: 0, dtype: "float32", device: "cpu" }]],
    ["gradient", [{ iteration: 0, dtype: "float16", device: null }, { iteration: 40, dtype: "float32", device: "cpu" }]],
  ]);
  assert.deepEqual([...feed.states], [2]);
  assert.equal(feed.skipped, 1);
  assert.equal(feed.scale, 512);
  assert.deepEqual(rangeOf(feed.overview), { low: 512, high: 1024 });
  const { iteration, entries, zero, nonfinite, fates } = feed.entries.get(0)!;
  assert.deepEqual([iteration, entries, zero, nonfinite], [100, 10, 2, 1]);
  assert.deepEqual(fates.map(({ underflow, subnormal, overflow }) => [underflow, subnormal, overflow]), [[3, 1, 0], [0, 0, 0], [5, 0, 1], [4, 1, 0]]);
  receive(3, [1], news({}), { fresh: true });
  assert.equal(feed.forms.size + feed.entries.size, 0);
});

test("a message whose entries cannot be read changes nothing", () => {
  const { feed, receive } = open();
  receive(1, [1024], news({}));
  assert.throws(() => receive(2, [1], news({ places: [0], counts: [1] })), /entries of 1 parameters came with 66 bars and 1 counts/);
  assert.equal(feed.scale, 1024);
});

const entries = (heights: Record<number, number>, counts: Partial<Entries> = {}): Entries => ({
  iteration: 100,
  heights: Uint8Array.from({ length: 66 }, (_, bar) => heights[bar] ?? 0),
  entries: 10,
  zero: 2,
  nonfinite: 0,
  fates: Array.from({ length: 4 }, () => ({ underflow: 4, subnormal: 1, overflow: 0 })),
  ...counts,
});

test("shares are of what could be lost: zeros are told apart", () => {
  assert.equal(share(entries({}), 0, "underflow"), 0.5);
  assert.equal(share(entries({}, { zero: 10 }), 0, "underflow"), null, "nothing could be lost");
  assert.equal(share(entries({}, { entries: NaN }), 0, "underflow"), null, "nothing was counted");
  assert.equal(share(undefined, 0, "underflow"), null);
  assert.equal(sentence(entries({}, { nonfinite: 1 }), 0, "underflow"), "4 of 7 entries would be zero; 2 more are zero already; 1 more is not finite (iteration 100)");
});

test("a share is never told as none or all unless it is", () => {
  const said = [0, 1e-9, 0.0009, 0.0011, 0.05, 0.38, 0.9899, 0.995, 0.9999, 1].map(percent);
  assert.deepEqual(said, ["0 %", "< 0.1 %", "< 0.1 %", "0.1 %", "5.0 %", "38 %", "99 %", "99.5 %", "> 99.9 %", "100 %"]);
});

test("bars are described from end to end", () => {
  assert.equal(describeBars(entries({})), "no entry but zeros, or what is not finite");
  assert.equal(describeBars(entries({ 0: 10, 1: 255 })), "magnitudes from zero to 2 to the -47, half of them below about 2 to the -47");
  assert.equal(describeBars(entries({ 65: 1 })), "magnitudes from 2 to the 16 to infinity, half of them below about infinity");
});

test("float16 loses what is below 2^-25, and has fewer digits below 2^-14", () => {
  assert.deepEqual(limitsOf(0), { kept: -25, normal: -14, tooLarge: 16 });
});

const item = (place: number, name: string, shape: number[] | null, heights: Record<number, number> | null, without: string | null = null): Item => ({
  place,
  name,
  dtype: "float32",
  shape,
  facts: factsOf(undefined),
  entries: heights ? entries(heights, { fates: [{ underflow: place, subnormal: 0, overflow: 0 }] }) : undefined,
  without,
});

const ITEMS = [item(0, "b", [2, 3], { 3: 9 }), item(1, "a", null, { 20: 9 }), item(2, "c", [], null, "frozen"), item(3, "d", [9], { 1: 9 })];
const names = (key: string, way: 1 | -1): string => sorted(ITEMS, { key, way }, 0).map(({ name }) => name).join("");

test("rows stand by any column, and what has nothing there stands last", () => {
  assert.equal(sorted(ITEMS, null, 0).map(({ name }) => name).join(""), "bacd");
  assert.equal(names("name", 1), "abcd");
  assert.equal(names("size", -1), "dbca");
  assert.equal(names("size", 1), "cbda");
  assert.equal(names("underflow", -1), "dabc");
  assert.equal(names("underflow", 1), "badc");
  assert.equal(names("bars", 1), "dbac");
});

test("a head that is pressed again turns round, and then lets rows stand as they are declared", () => {
  const column = (key: string) => COLUMNS.find((each) => each.key === key)!;
  const once = nextOrder(null, column("underflow"));
  assert.deepEqual(once, { key: "underflow", way: -1 });
  assert.deepEqual(nextOrder(once, column("underflow")), { key: "underflow", way: 1 });
  assert.equal(nextOrder({ key: "underflow", way: 1 }, column("underflow")), null);
  assert.deepEqual(nextOrder(once, column("name")), { key: "name", way: 1 });
});

test("why there is no gradient stands in its place, and its numbers are not shown", () => {
  const cell = (key: string, of: Item) => COLUMNS.find((each) => each.key === key)!.cell(of, 0).text;
  const frozen = { ...ITEMS[0]!, without: "frozen" };
  assert.equal(cell("gradient", frozen), "frozen");
  assert.equal(cell("underflow", frozen), "–");
  assert.equal(cell("gradient", ITEMS[0]!), "–");
  assert.equal(cell("size", ITEMS[1]!), "–", "a shape that nobody knows");
  assert.equal(cell("size", ITEMS[2]!), "1");
});
