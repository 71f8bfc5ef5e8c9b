// Columns in few bytes: what gradviz/widgets/packed.py made of them. Rounded numbers are places on a grid of logarithms.
import type { Columns } from "../data/wire";

const HEADER_BYTES = 16;
const STEPS = 116;
const LOWEST = -149;
const LARGEST = 3.4028234663852886e38;

/** The number that a place stands for: 0 is none, 1 is zero. */
function numberAt(place: number): number {
  if (place < 2) return place ? 0 : NaN;
  return Math.min(2 ** ((place - 2) / STEPS + LOWEST), LARGEST);
}

export function unflat(bytes: Uint8Array): Columns {
  const view = new DataView(bytes.buffer, bytes.byteOffset);
  const [count, rows, hasMin, rounded] = [0, 4, 8, 12].map((at) => view.getUint32(at, true)) as [number, number, number, number];
  let at = HEADER_BYTES;
  /** The next plane of rows of numbers, which are differences in zigzag. */
  const take = (n: number, width: number): Int32Array => {
    const size = n * count;
    const numbers = new Int32Array(size);
    for (let b = 0; b < width; b++) {
      for (let i = 0, shift = 8 * b; i < size; i++) numbers[i]! |= bytes[at + i]! << shift;
      at += size;
    }
    const wrap = 32 - 8 * width;
    for (let r = 0, i = 0; r < n; r++) {
      for (let c = 0, number = 0; c < count; c++, i++) {
        const zigzag = numbers[i]!;
        number = ((number + ((zigzag >>> 1) ^ -(zigzag & 1))) << wrap) >> wrap;
        numbers[i] = number;
      }
    }
    return numbers;
  };
  const start = new Uint32Array(take(1, 4).buffer);
  const stop = new Uint32Array(take(1, 4).buffer);
  const width = rounded ? 2 : 4;
  const own = rows - 1;
  const highs = take(own, width);
  const gaps = hasMin ? take(own, width) : null;
  const lossHighs = take(1, 4);
  const lossLows = hasMin ? take(1, 4) : lossHighs;

  const cells = count * rows;
  const max = new Float32Array(cells);
  const min = hasMin ? new Float32Array(cells) : max;
  const flags = new Uint8Array(cells);
  const bits = [max, min].map((numbers) => new Int32Array(numbers.buffer)) as [Int32Array, Int32Array];
  const sizes = rounded ? Float32Array.from({ length: 1 << 15 }, (_, place) => numberAt(place)) : null;
  const put = (which: 0 | 1, i: number, code: number): void => {
    if (!sizes) bits[which][i] = code;
    else if (which) min[i] = code < 0 ? -sizes[-code]! : sizes[code]!;
    else max[i] = code < 0 ? -sizes[-code]! : sizes[code]!;
  };
  const wrap = 32 - 8 * width;
  for (let r = 0, from = 0; r < own; r++) {
    for (let c = 0, i = r; c < count; c++, i += rows, from++) {
      put(0, i, highs[from]!);
      if (gaps) put(1, i, ((highs[from]! + gaps[from]!) << wrap) >> wrap);
    }
  }
  for (let c = 0, i = own; c < count; c++, i += rows) {
    bits[0][i] = lossHighs[c]!;
    if (hasMin) bits[1][i] = lossLows[c]!;
  }
  for (let r = 0; r < rows; r++) for (let c = 0, i = r; c < count; c++, i += rows) flags[i] = bytes[at++]!;
  return { count, rows, start, stop, max, min, flags };
}
