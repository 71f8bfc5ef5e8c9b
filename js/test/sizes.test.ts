import assert from "node:assert/strict";
import { test } from "node:test";
import { inBytes, inThousands, sizeOf, total } from "../src/mask/sizes";

test("entries and bytes follow from shape and dtype", () => {
  const size = (shape: number[] | null, dtype: string) => sizeOf({ name: "w", shape, dtype });
  assert.deepEqual(size([64, 3, 7, 7], "float32"), { entries: 9408, bytes: 37632 });
  assert.deepEqual(size([], "bfloat16"), { entries: 1, bytes: 2 });
  assert.deepEqual(size([8], "complex64"), { entries: 8, bytes: 64 });
  assert.deepEqual(size([8], "float8_e4m3fn"), { entries: 8, bytes: 8 });
  assert.deepEqual(size([8], "bool"), { entries: 8, bytes: 8 });
  assert.deepEqual(size([8], "unknown"), { entries: 8, bytes: null });
  assert.deepEqual(size(null, "float32"), { entries: null, bytes: null });
});

test("what is not known of one is not known of all", () => {
  assert.deepEqual(total([{ entries: 2, bytes: 8 }, { entries: 3, bytes: null }]), { entries: 5, bytes: null });
  assert.deepEqual(total([]), { entries: 0, bytes: 0 });
});

test("sizes are read at a glance", () => {
  assert.deepEqual([1, 512, 999, 1000, 9536, 99_949, 99_950, 999_499, 999_500, 8_393_728].map(inThousands), ["1", "512", "999", "1.0 k", "9.5 k", "99.9 k", "100 k", "999 k", "1.0 M", "8.4 M"]);
  assert.deepEqual([512, 33_574_912, 5e13].map(inBytes), ["512 B", "33.6 MB", "50.0 TB"]);
  assert.equal(inThousands(null), "–");
});
