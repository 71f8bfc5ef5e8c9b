// The byte layout of a message, shared with gradviz/widgets/wire.py.
//
// Numbers travel as binary because JSON has no NaN. All of it is little-endian, as every browser is.

import type { Quantity } from "./store";

/** Columns of a picture: column c covers the iterations [start[c], stop[c]). */
export interface Columns {
  count: number;
  /** Parameters, in order, and the batch's loss as the last row. */
  rows: number;
  start: Uint32Array;
  stop: Uint32Array;
  /** Column-major: the rows of column 0, then of column 1 ... NaN where a cell has no finite value. */
  max: Float32Array;
  min: Float32Array;
  flags: Uint8Array;
}

/** Bits of a cell's flags. */
export const enum Flag {
  nan = 1,
  posinf = 2,
  neginf = 4,
  nonfinite = nan | posinf | neginf,
  zero = 8,
  unused = 16,
  frozen = 32,
  not_optimized = 64,
  not_recorded = 128,
}

export type Status = "idle" | "training" | "paused" | "completed" | "interrupted" | "halted" | "failed";

/** Where the run stands. Iterations are counted over the whole run; null: not known. */
export interface Run {
  status: Status;
  epoch: number;
  epochs: number | null;
  iteration: number;
  iterations: number | null;
  /** Why there is no gradient to be seen; null where there is one. */
  nothing: string | null;
  left_s: number | null;
  metric_names: string[];
  message: string | null;
}

export interface ColumnsMessage {
  kind: "columns";
  seq: number;
  fresh: boolean;
  /** Columns in the same block of 2**level iterations are one. */
  level: number;
  /** The stages of which there are rows. */
  stages: string[];
  run: Run;
}

/** What Python says to a question: columns and 256 colours come with it, or it could not answer. */
export interface AnswerMessage {
  kind: "answer";
  id: string;
  error?: string;
  /** The iteration after the newest. */
  end: number;
  level: number;
  scale: string;
  quantity: Quantity;
}

const VERSION = 1;
const HEADER_BYTES = 16;

export type Buffer = ArrayBuffer | ArrayBufferView;

/** The bytes of a buffer, at an address that typed arrays of any width accept. */
function aligned(buffer: Buffer): ArrayBuffer {
  if (!ArrayBuffer.isView(buffer)) return buffer;
  const { byteOffset, byteLength } = buffer;
  if (byteOffset === 0 && byteLength === buffer.buffer.byteLength && buffer.buffer instanceof ArrayBuffer) {
    return buffer.buffer;
  }
  const copy = new Uint8Array(byteLength);
  copy.set(new Uint8Array(buffer.buffer, byteOffset, byteLength));
  return copy.buffer;
}

export function decodeColumns(buffer: Buffer): Columns {
  const bytes = aligned(buffer);
  if (bytes.byteLength < HEADER_BYTES) {
    throw new Error(`columns: ${bytes.byteLength} bytes, a header alone has ${HEADER_BYTES}`);
  }
  const [count, rows, hasMin, version] = new Uint32Array(bytes, 0, 4) as unknown as [number, number, number, number];
  if (version !== VERSION) {
    throw new Error(`columns: layout ${version} from Python, ${VERSION} in this page. Reload the page.`);
  }
  const cells = count * rows;
  const expected = HEADER_BYTES + 8 * count + (hasMin ? 9 : 5) * cells;
  if (bytes.byteLength !== expected) {
    throw new Error(`columns: ${count} columns of ${rows} rows need ${expected} bytes, got ${bytes.byteLength}`);
  }
  let at = HEADER_BYTES;
  const take = (n: number): number => {
    const from = at;
    at += n;
    return from;
  };
  const start = new Uint32Array(bytes, take(4 * count), count);
  const stop = new Uint32Array(bytes, take(4 * count), count);
  const max = new Float32Array(bytes, take(4 * cells), cells);
  const min = hasMin ? new Float32Array(bytes, take(4 * cells), cells) : max;
  const flags = new Uint8Array(bytes, take(cells), cells);
  return { count, rows, start, stop, max, min, flags };
}

/** The same the other way round. */
export function encodeColumns({ count, rows, start, stop, max, min, flags }: Columns): Uint8Array<ArrayBuffer> {
  const cells = count * rows;
  const hasMin = min !== max;
  const parts = [Uint32Array.of(count, rows, Number(hasMin), VERSION), start.subarray(0, count), stop.subarray(0, count), max.subarray(0, cells), ...(hasMin ? [min.subarray(0, cells)] : []), flags.subarray(0, cells)];
  const bytes = new Uint8Array(parts.reduce((size, part) => size + part.byteLength, 0));
  let at = 0;
  for (const part of parts) {
    bytes.set(new Uint8Array(part.buffer, part.byteOffset, part.byteLength), at);
    at += part.byteLength;
  }
  return bytes;
}

export const bytesOf = (buffer: Buffer): Uint8Array => new Uint8Array(aligned(buffer));

export function decodeMetrics(buffer: Buffer): Float64Array {
  return new Float64Array(aligned(buffer));
}

export function decodeEpochs(buffer: Buffer): Uint32Array {
  return new Uint32Array(aligned(buffer));
}
