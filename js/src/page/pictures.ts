// The pictures that a page carries, as answers to what a widget asks.
import { CAPACITY, Overview } from "../data/overview";
import type { AnswerMessage, Columns } from "../data/wire";
import { encodeColumns } from "../data/wire";
import type { Quantity } from "../data/store";
import type { Blob64 } from "./blobs";
import { bytesAt } from "./blobs";
import { unflat } from "./packed";

export interface Picture {
  columns: Blob64;
  colours: Blob64;
  level: number;
  /** The iteration after the newest. */
  end: number;
  scale: string;
  quantity: Quantity;
}

export type Pictures = Record<string, Picture>;

/** What a widget may ask of Python. */
export interface Question {
  statistic: string;
  stage: string;
  start: number;
  stop: number;
}

/** So many are held: what is shown, and what it is compared with. */
const HELD = 3;
const held = new Map<number, Promise<Columns>>();

function columnsOf({ columns }: Picture): Promise<Columns> {
  const found = held.get(columns.blob) ?? bytesAt(columns).then(unflat);
  held.delete(columns.blob);
  held.set(columns.blob, found);
  if (held.size > HELD) held.delete(held.keys().next().value!);
  return found;
}

/** The iterations [start, stop) in a bounded number of columns, as bytes, and how far they are merged. */
export async function partOf(picture: Picture, start = 0, stop = Infinity): Promise<{ bytes: Uint8Array; level: number }> {
  const whole = await columnsOf(picture);
  let first = 0;
  while (first < whole.count && whole.stop[first]! <= start) first++;
  let end = first;
  while (end < whole.count && whole.start[end]! < stop) end++;
  const { rows } = whole;
  const [from, to] = [first * rows, end * rows];
  const max = whole.max.subarray(from, to);
  const part = {
    count: end - first,
    rows,
    start: whole.start.subarray(first, end),
    stop: whole.stop.subarray(first, end),
    max,
    // Where these are the same, nobody merged them.
    min: whole.min === whole.max ? max : whole.min.subarray(from, to),
    flags: whole.flags.subarray(from, to),
  };
  if (part.count <= CAPACITY) return { bytes: encodeColumns(part), level: picture.level };
  const merged = new Overview(rows);
  merged.level = picture.level;
  merged.append(part);
  return { bytes: encodeColumns(merged), level: merged.level };
}

/** The answer to a question, and its buffers. */
export async function answer(pictures: Pictures, { statistic, stage, start, stop }: Question): Promise<[Omit<AnswerMessage, "kind" | "id">, Uint8Array[]]> {
  const picture = pictures[`${statistic} ${stage}`] ?? pictures[statistic];
  if (!picture) throw new Error(`${statistic} of ${stage} is not in this page. Where the run is: gv.save_html(run, "run.html", statistics=("norm", "${statistic}"))`);
  const { bytes, level } = await partOf(picture, start, stop);
  const { end, scale, quantity } = picture;
  return [{ end, level, scale, quantity }, [bytes, await bytesAt(picture.colours)]];
}
