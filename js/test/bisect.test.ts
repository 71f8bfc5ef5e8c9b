import assert from "node:assert/strict";
import { test } from "node:test";
import { firstPlace } from "../src/kit/bisect";

test("the first place is found, however many there are", () => {
  for (let end = 0; end < 20; end++) {
    for (let first = 0; first <= end; first++) assert.equal(firstPlace(end, (place) => place >= first), first);
  }
});
