import assert from "node:assert/strict";
import { test } from "node:test";
import type { Tick } from "../src/kit/ticks";
import { epochTicks, iterationTicks } from "../src/kit/ticks";

const all = (span: number) => ({ start: 0, span });
const measure = (text: string): number => 7 * text.length;

function assertApart(ticks: readonly Tick[], width: number): void {
  const labels = ticks.filter((t) => t.label);
  for (const [i, t] of labels.entries()) {
    assert.ok(t.left >= 0 && t.left + measure(t.label) <= width, `${t.label} is inside`);
    const next = labels[i + 1];
    if (next) assert.ok(t.left + measure(t.label) < next.left, `${t.label} and ${next.label} are apart`);
    for (const bare of ticks.filter((other) => !other.label && other.x > t.left)) {
      assert.ok(t.left + measure(t.label) + 4 < bare.x, `no tick touches ${t.label}`);
    }
  }
}

test("iterations have whole ticks with thousands separators", () => {
  const labels = iterationTicks(all(2106), 600, measure).map((t) => t.label);
  assert.ok(labels.includes("0") && labels.includes("1,000"));
  assert.ok(iterationTicks(all(3), 600, measure).every((t) => /^\d$/.test(t.label)));
});

test("labels never collide, at any span and width", () => {
  for (const span of [64, 1050, 2106, 99_999, 5_000_000]) {
    for (const width of [120, 190, 333, 700, 1600]) {
      assertApart(iterationTicks(all(span), width, measure), width);
      for (const epochs of [1, 2, 6, 40, 1000]) {
        const starts = Array.from({ length: epochs }, (_, i) => Math.floor((i * span) / epochs));
        const ticks = epochTicks(starts, 0, all(span), width, measure);
        assertApart(ticks, width);
        assert.equal(ticks[0]?.label, "epoch 0");
      }
    }
  }
});

test("epochs are numbered from 0 and thinned in even steps", () => {
  const starts = Array.from({ length: 20 }, (_, i) => i * 45);
  const labels = (width: number): string[] =>
    epochTicks(starts, 0, all(900), width, measure).map((t) => t.label).filter(Boolean);
  assert.deepEqual(labels(3000).slice(0, 3), ["epoch 0", "1", "2"]);
  assert.deepEqual(labels(800).slice(0, 3), ["epoch 0", "2", "4"]);
  assert.deepEqual(labels(200), ["epoch 0", "10", "15"]);
});

test("no epochs, no ticks; a page that came late starts at its own epoch", () => {
  assert.deepEqual(epochTicks([], 0, all(64), 300, measure), []);
  assert.equal(epochTicks([100], 3, all(200), 300, measure)[0]!.label, "epoch 3");
});

test("a part of the run has its own ticks, and says at its left edge which epoch it is in", () => {
  const starts = [0, 100, 200, 300];
  const labels = epochTicks(starts, 0, { start: 150, span: 100 }, 500, measure);
  assert.deepEqual(labels.map((t) => [t.x, t.label]), [[-1, "epoch 1"], [250, "2"]]);
  assert.deepEqual(iterationTicks({ start: 150, span: 100 }, 500, measure).map((t) => [t.x, t.label]), [[50, "160"], [150, "180"], [250, "200"], [350, "220"], [450, "240"]]);
});
