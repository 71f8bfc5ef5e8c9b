// How large parameters are, and sizes in words.
import type { Parameter } from "../data/feed";

export interface Size {
  /** Entries; null: not known. */
  entries: number | null;
  bytes: number | null;
}

export function sizeOf({ shape, dtype }: Parameter): Size {
  const entries = shape ? shape.reduce((product, n) => product * n, 1) : null;
  const width = widthOf(dtype);
  return { entries, bytes: entries === null || width === null ? null : entries * width };
}

/** Bytes of an entry. */
function widthOf(dtype: string): number | null {
  if (dtype === "bool") return 1;
  const bits = /^(?:bfloat|float|complex|uint|int)(\d+)/.exec(dtype);
  return bits ? Number(bits[1]) / 8 : null;
}

/** Together; not known where one is not. */
export function total(sizes: readonly Size[]): Size {
  const sum = (of: (size: Size) => number | null): number | null => sizes.reduce<number | null>((all, size) => (all === null || of(size) === null ? null : all + of(size)!), 0);
  return { entries: sum((size) => size.entries), bytes: sum((size) => size.bytes) };
}

/** 8388608 -> "8.4 M"; what is below a thousand is said to the last one. */
export const inThousands = (n: number | null): string => scaled(n, ["", "k", "M", "G", "T"]);

/** 33554432 -> "33.6 MB". */
export const inBytes = (n: number | null): string => scaled(n, ["B", "kB", "MB", "GB", "TB"]);

function scaled(n: number | null, units: readonly string[]): string {
  if (n === null) return "–";
  let step = 0;
  // What would be rounded up to a thousand is one of the next.
  while (n >= 999.5 && step < units.length - 1) {
    n /= 1000;
    step += 1;
  }
  const digits = step && n < 99.95 ? n.toFixed(1) : String(Math.round(n));
  return `${digits} ${units[step]}`.trim();
}
