// A row at an iteration in words, for the tooltip and the screen reader.
import type { Parameter } from "../data/feed";
import * as format from "../kit/format";
import type { Description } from "../kit/tooltip";
import type { Runs } from "./runs";
import { bitsAt } from "./runs";
import { inBytes, inThousands, sizeOf, total } from "./sizes";
import { STATES, words } from "./state";
import type { TreeRow } from "./tree";

/** What a row is, whatever the iteration. */
export function kindOf({ members, open }: TreeRow, parameters: readonly Parameter[]): string {
  const those = members.map((place) => parameters[place]!);
  const { entries, bytes } = total(those.map(sizeOf));
  const size = bytes === null ? "" : ` · ${inBytes(bytes)}`;
  const [only] = those;
  if (open === null && only) return `${format.shape(only.shape)} · ${only.dtype}${size}`;
  const of = entries === null ? "" : ` with ${inThousands(entries)} entries`;
  return `${format.many(members.length, "parameter")}${of}${size}`;
}

export function describe(row: TreeRow, runs: Runs, runsOf: (place: number) => Runs, iteration: number, end: number, parameters: readonly Parameter[]): Description {
  let k = runs.start.length - 1;
  while (k > 0 && runs.start[k]! > iteration) k -= 1;
  const bits = runs.bits[k] ?? 0;
  return {
    title: row.name,
    kind: kindOf(row, parameters),
    when: format.iterations(runs.start[k] ?? 0, runs.start[k + 1] ?? end),
    value: words(bits),
    flags: row.open === null ? [] : shares(row, runsOf, iteration, parameters),
  };
}

/** Of a module, how much has which state. */
function shares({ members }: TreeRow, runsOf: (place: number) => Runs, iteration: number, parameters: readonly Parameter[]): string[] {
  const states = members.map((place) => bitsAt(runsOf(place), iteration));
  const kinds = [...new Set(states)].filter(Boolean);
  if (kinds.length < 2) return [];
  const first = (bits: number): number => STATES.findIndex(({ bit }) => bits & bit);
  return kinds
    .sort((a, b) => first(a) - first(b))
    .map((bits) => {
      const those = members.filter((_, i) => states[i] === bits);
      const named = those.length === 1 ? parameters[those[0]!]!.name : format.many(those.length, "parameter");
      const { entries } = total(those.map((place) => sizeOf(parameters[place]!)));
      return `${words(bits)}: ${named}${entries === null ? "" : ` (${inThousands(entries)})`}`;
    });
}

export function sentence({ title, when, value, flags }: Description): string {
  return [title, when, value, ...flags].filter(Boolean).join(", ");
}

/** The picture in a line: how much trains now. */
export function headline(parameters: readonly Parameter[], now: (place: number) => number, end: number, isOver: boolean): string {
  const trains = (place: number): boolean => (now(place) & 1) !== 0;
  const all = total(parameters.map(sizeOf)).entries;
  const trained = total(parameters.filter((_, place) => trains(place)).map(sizeOf)).entries;
  const at = `trained at ${isOver ? "the last " : ""}iteration${isOver ? "," : ""} ${format.count(end - 1)}`;
  if (all === null || trained === null) return `${format.count(parameters.filter((_, place) => trains(place)).length)} of ${format.many(parameters.length, "parameter")} ${at}`;
  return `${inThousands(trained)} of ${inThousands(all)} parameters ${at}`;
}
