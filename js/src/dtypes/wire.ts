// What a message brings beside the loss scale's columns (gradviz/widgets/dtype_table.py).
import type { Buffer, ColumnsMessage } from "../data/wire";
import { bytesOf } from "../data/wire";

export interface DtypesMessage extends ColumnsMessage {
  texts: string[];
  /** Steps so far. */
  skipped: number;
  /** Parameters whose entries are counted and have not come: they come with the next message, or were not kept. */
  missing: number;
}

/** From this iteration on, what `of` says has this dtype on this device; null where nobody wrote the device down. */
export interface Change {
  iteration: number;
  place: number;
  of: string;
  dtype: string;
  device: string | null;
}

/** What a narrow dtype would make of entries that are finite and not zero. */
export interface Fates {
  underflow: number;
  subnormal: number;
  overflow: number;
}

/** How a gradient is distributed. */
export interface Entries {
  iteration: number;
  /** By magnitude: below 2^-48, an octave each from there to 2^16, and above; 255 is the highest. */
  heights: Uint8Array;
  /** NaN where they were not counted. */
  entries: number;
  zero: number;
  nonfinite: number;
  fates: readonly Fates[];
}

export interface News {
  changes: Change[];
  states: Uint8Array;
  entries: Map<number, Entries>;
}

/** The narrow dtypes, in the order of `fates`, with the word on their button. */
export const NARROW = [
  ["float16", "float16"],
  ["bfloat16", "bfloat16"],
  ["float8_e4m3fn", "float8 e4m3"],
  ["float8_e5m2", "float8 e5m2"],
] as const;

/** The octave of the second bar. */
export const FIRST = -48;
export const BARS = 66;

const FIELDS = 5;
const COUNTS = 3 + 3 * NARROW.length;

export function decodeNews(texts: readonly string[], buffers: readonly Buffer[]): News {
  if (buffers.length !== 6) throw new Error(`a message brought ${buffers.length} further buffers instead of 6`);
  const [changed, states, placed, iterated, heights, counted] = buffers.map(bytesOf) as [Uint8Array, Uint8Array, Uint8Array, Uint8Array, Uint8Array, Uint8Array];
  const rows = new Int32Array(changed.buffer);
  const changes: Change[] = [];
  for (let at = 0; at < rows.length; at += FIELDS) {
    const [iteration, place, of, dtype, device] = rows.subarray(at, at + FIELDS) as unknown as [number, number, number, number, number];
    changes.push({ iteration, place, of: texts[of]!, dtype: texts[dtype]!, device: texts[device] ?? null });
  }
  const places = new Uint32Array(placed.buffer);
  const iterations = new Uint32Array(iterated.buffer);
  const counts = new Float64Array(counted.buffer);
  if (iterations.length !== places.length || heights.length !== BARS * places.length || counts.length !== COUNTS * places.length) {
    throw new Error(`the entries of ${places.length} parameters came with ${heights.length} bars and ${counts.length} counts`);
  }
  const entries = new Map<number, Entries>();
  places.forEach((place, i) => {
    const own = counts.subarray(COUNTS * i, COUNTS * (i + 1));
    const fates = NARROW.map((_, dtype) => {
      const [underflow, subnormal, overflow] = own.subarray(3 + 3 * dtype) as unknown as [number, number, number];
      return { underflow, subnormal, overflow };
    });
    entries.set(place, { iteration: iterations[i]!, heights: heights.slice(BARS * i, BARS * (i + 1)), entries: own[0]!, zero: own[1]!, nonfinite: own[2]!, fates });
  });
  return { changes, states: states.slice(), entries };
}
