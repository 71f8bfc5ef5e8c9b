import assert from "node:assert/strict";
import { test } from "node:test";
import { Link } from "../src/data/link";

const places = (): Map<string, unknown> => (globalThis as any)[Symbol.for("gradviz.links")];

function join(run: string) {
  const heard: string[] = [];
  const life = new AbortController();
  const link = new Link(run, (what, isOwn) => heard.push(`${what}${isOwn ? " (own)" : ""}`), life.signal);
  return { link, heard, life };
}

test("all of a run hear what one tells, and each whether it was itself", () => {
  const [a, b, other] = [join("run"), join("run"), join("another")];
  a.link.tell("cursor", { iteration: 3 });
  b.link.tell("focus", { of: "parameters", name: "w", iteration: null });
  assert.deepEqual(a.heard, ["cursor (own)", "focus"]);
  assert.deepEqual(b.heard, ["cursor", "focus (own)"]);
  assert.deepEqual(other.heard, []);
  assert.deepEqual(b.link.shared.cursor, { iteration: 3 });
  assert.equal(other.link.shared.focus, null);
  for (const { life } of [a, b, other]) life.abort();
});

test("what is known is not said again", () => {
  const [a, b] = [join("run"), join("run")];
  for (let i = 0; i < 3; i++) a.link.tell("cursor", { iteration: 3 });
  b.link.tell("cursor", { iteration: 3 });
  assert.deepEqual(b.heard, ["cursor"]);
  a.link.tell("cursor", null);
  assert.deepEqual(b.heard, ["cursor", "cursor"]);
  for (const { life } of [a, b]) life.abort();
});

test("who comes later knows what was told, and the last one to go takes it along", () => {
  const first = join("run");
  first.link.tell("focus", { of: "activations", name: "encoder.0#1", iteration: 7 });
  const second = join("run");
  assert.equal(second.link.shared.focus?.name, "encoder.0#1");
  first.life.abort();
  assert.equal(second.link.shared.focus?.name, "encoder.0#1");
  second.life.abort();
  assert.equal(places().has("run"), false);
  const third = join("run");
  assert.equal(third.link.shared.focus, null);
  third.life.abort();
});

test("who goes points at nothing any more, and hears nothing", () => {
  const [a, b] = [join("run"), join("run")];
  a.link.tell("cursor", { iteration: 3 });
  a.life.abort();
  assert.equal(b.link.shared.cursor, null);
  b.link.tell("cursor", { iteration: 4 });
  assert.deepEqual(a.heard, ["cursor (own)"]);
  b.life.abort();
});

test("who does not know its run is alone", () => {
  const [a, b] = [join(""), join("")];
  a.link.tell("cursor", { iteration: 3 });
  assert.equal(b.link.shared.cursor, null);
  assert.equal(places().has(""), false);
  for (const { life } of [a, b]) life.abort();
});

test("scripts that were loaded twice meet, as what they share is plain", () => {
  const a = join("run");
  const meeting = places().get("run") as { cursor: unknown; listeners: Set<(what: string, by: object) => void> };
  const by = {};
  meeting.cursor = { iteration: 9 };
  for (const listener of meeting.listeners) listener("cursor", by);
  assert.deepEqual(a.heard, ["cursor"]);
  assert.deepEqual(a.link.shared.cursor, { iteration: 9 });
  a.life.abort();
});
