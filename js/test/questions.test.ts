import assert from "node:assert/strict";
import { test } from "node:test";
import type { InspectedMessage } from "../src/inspector/answer";
import { Questions } from "../src/inspector/questions";

function open() {
  const sent: any[] = [];
  const questions = new Questions((question) => sent.push(question));
  const answer = (more: Partial<InspectedMessage> = {}): void => {
    const { id, name, iteration } = sent.at(-1);
    const states = { backward: "ok", clipped: "ok", update: "ok", weight: "ok" };
    const message: InspectedMessage = { kind: "answer", id, of: "parameters", name, asked: iteration, iteration, skipped: false, unclipped: false, states, gradient_dtype: null, bins_iteration: null, examples_iteration: null, examples: [], ...more };
    questions.receive(message, more.error ? [] : [Float64Array.of(1, 2, 3, 4, NaN), new Float64Array(0), new Float64Array(0)]);
  };
  return { questions, sent, answer };
}

test("one question is under way at a time, and the newest wish is the next", () => {
  const { questions, sent, answer } = open();
  for (let iteration = 0; iteration < 10; iteration++) questions.want({ name: "w", iteration }, 100, iteration);
  assert.equal(sent.length, 1);
  assert.equal(questions.isWaitingFor({ name: "w", iteration: 9 }), true);
  answer();
  assert.equal(questions.want({ name: "w", iteration: 9 }, 100, 150), 50, "not so soon");
  questions.want({ name: "w", iteration: 9 }, 100, 201);
  assert.equal(sent.length, 2);
  assert.equal(sent[1].iteration, 9);
  answer();
  assert.equal(questions.isWaitingFor({ name: "w", iteration: 9 }), false);
  assert.equal(questions.answer?.norms.update, 3);
  assert.ok(Number.isNaN(questions.answer?.ratio));
});

test("what is known is not asked again; the newest is, a second later, once there is a newer one", () => {
  const { questions, sent, answer } = open();
  questions.want({ name: "w", iteration: 3 }, 100, 0);
  answer();
  assert.equal(questions.want({ name: "w", iteration: 3 }, 200, 5000), null);
  questions.want({ name: "w", iteration: null }, 200, 6000);
  answer();
  assert.equal(questions.want({ name: "w", iteration: null }, 200, 6100), null);
  assert.equal(questions.want({ name: "w", iteration: null }, 201, 6100), 900);
  assert.equal(questions.want({ name: "w", iteration: null }, 201, 7000), null);
  assert.equal(sent.length, 3);
});

test("an error is told, what was known stays, and the same is not asked again", () => {
  const { questions, sent, answer } = open();
  questions.want({ name: "w", iteration: 3 }, 100, 0);
  answer();
  questions.want({ name: "v", iteration: 3 }, 100, 1000);
  answer({ error: "HistoryError: no" });
  assert.equal(questions.error, "HistoryError: no");
  assert.equal(questions.answer?.name, "w");
  assert.equal(questions.want({ name: "v", iteration: 3 }, 100, 9000), null);
  assert.equal(sent.length, 2);
});

test("an answer to somebody else's question is none of ours, and before the first iteration nothing is asked", () => {
  const { questions, sent } = open();
  questions.want({ name: "w", iteration: null }, 0, 0);
  assert.equal(sent.length, 0);
  questions.want({ name: "w", iteration: null }, 5, 0);
  questions.receive({ id: "another" } as InspectedMessage, []);
  assert.equal(questions.answer, null);
});
