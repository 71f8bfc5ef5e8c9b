import assert from "node:assert/strict";
import { test } from "node:test";
import { Lanes } from "../src/data/lanes";
import { Overview } from "../src/data/overview";
import type { Unit } from "../src/rows/folds";
import { matcher, rank, sorted, sortedIn } from "../src/rows/order";
import { decodeColumns, Flag } from "../src/data/wire";
import { encode, singles } from "./encode";

const cell = (max: number, min = max, flags = 0) => ({ max, min, flags });
const unit = (name: string): Unit => ({ members: [0], name, note: "", block: "b", folded: false });

test("the largest comes first, trouble before it, and what has no value last", () => {
  const cells: Record<string, ReturnType<typeof cell>> = { small: cell(1), none: cell(NaN), nan: cell(0.1, 0.1, Flag.nan), large: cell(5, 1) };
  const names = Object.keys(cells);
  const order = sorted(names.map(unit), "norm", ({ name }) => cells[name]!).map((each) => each.name);
  assert.deepEqual(order, ["nan", "large", "small", "none"]);
  assert.deepEqual(sortedIn(new Overview(), { start: 0, span: 1 }, names.map(unit), "declaration", new Lanes()).map((each) => each.name), names);
});

test("change is how many times the smallest the largest is, both ways alike", () => {
  assert.equal(rank(cell(8, 2), "change"), 4);
  assert.equal(rank(cell(-2, -8), "change"), 4);
  assert.equal(rank(cell(1), "change"), 1);
  assert.equal(rank(cell(0), "change"), 0);
  assert.equal(rank(cell(1, 0), "change"), Number.MAX_VALUE);
  assert.equal(rank(cell(1, 0, Flag.posinf), "change"), Infinity);
});

test("what stands equally high stays as declared, and leaves its block", () => {
  const order = sorted(["a", "b", "c"].map(unit), "norm", () => cell(1));
  assert.deepEqual(order.map(({ name, block }) => [name, block]), [["a", ""], ["b", ""], ["c", ""]]);
});

test("a name fits that holds every word, whichever case it is in", () => {
  const fits = matcher("  ATTN bias ");
  assert.deepEqual(["encoder.attn.bias", "encoder.attn.weight", "bias.attn"].map(fits), [true, false, true]);
  assert.ok(matcher("")("anything"));
  assert.ok(matcher("<img")("<img src=x>"));
});

test("rows stand by what is in view, whether they are read one by one or all at once", () => {
  const norms = Array.from({ length: 32 }, (_, place) => (place * 7) % 32);
  const columns = decodeColumns(encode(singles([[...norms.map((norm) => 100 - norm), 0], [...norms, 0], [...norms.map((norm) => 2 * norm), 0]]), 33));
  const open = norms.map((_, place): Unit => ({ ...unit(`p${place}`), members: [place] }));
  const folds = [0, 8, 16, 24].map((from): Unit => ({ ...unit(`m${from}`), members: [from, from + 1], folded: true }));
  const inView = { start: 1, span: 2 };
  const largest = ({ members }: Unit): number => Math.max(...members.map((place) => norms[place]!));
  for (const units of [open, folds]) {
    const order = sortedIn(columns, inView, units, "norm", new Lanes());
    assert.deepEqual(order.map(largest), units.map(largest).sort((a, b) => b - a));
  }
});
