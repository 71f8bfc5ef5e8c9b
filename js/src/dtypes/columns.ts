// The columns of the table: what they are called, what their cells say, and how rows stand by them.
import * as format from "../kit/format";
import type { Parameter } from "../data/feed";
import type { Facts, Form } from "./facts";
import type { Fate } from "./shares";
import { percent, sentence, share } from "./shares";
import type { Entries } from "./wire";
import { NARROW } from "./wire";

/** A parameter as the table has it. */
export interface Item extends Parameter {
  place: number;
  facts: Facts;
  entries: Entries | undefined;
  /** "frozen" or "unused": why there is no gradient now. */
  without: string | null;
}

export interface Cell {
  text: string;
  title?: string;
  /** In a quieter voice; in warning; in alarm. */
  look?: "muted" | "warn" | "bad";
}

export interface Column {
  key: string;
  title: string;
  tooltip: string;
  isNumber?: boolean;
  cell(item: Item, dtype: number): Cell;
  /** By which rows stand; null comes last, whichever way round. */
  rank(item: Item, dtype: number): number | string | null;
}

/** A larger share is told in alarm. */
const ALARM = 0.1;

export const NOTHING: Cell = { text: "–", look: "muted" };

const said = (form: Form | null): Cell => (form ? { text: form.dtype, title: form.device ? `on ${form.device}` : "" } : NOTHING);

const sizeOf = ({ shape }: Item): number | null => (shape ? shape.reduce((size, n) => size * n, 1) : null);

function stateCell({ facts: { state } }: Item): Cell {
  if (!state.length) return NOTHING;
  const dtypes = [...new Set(state.map(([, form]) => form.dtype))];
  return { text: dtypes.join(", "), title: state.map(([name, form]) => `${name}: ${form.dtype}${form.device ? ` on ${form.device}` : ""}`).join("\n") };
}

function stored(key: "parameter" | "gradient" | "activation" | "master", title: string, tooltip: string): Column {
  return { key, title, tooltip, cell: ({ facts }) => said(facts[key]), rank: ({ facts }) => facts[key]?.dtype ?? null };
}

const dtypeColumn: Column = {
  ...stored("parameter", "dtype", "what the parameter is stored as"),
  // Before the first iteration it is known from its description.
  cell: ({ facts, dtype }) => (facts.parameter ? said(facts.parameter) : { text: dtype }),
  rank: ({ facts, dtype }) => facts.parameter?.dtype ?? dtype,
};

const gradientColumn: Column = {
  ...stored("gradient", "gradient", "the gradient as the backward pass leaves it for the optimizer"),
  cell: ({ facts, without }) => (without ? { text: without, look: "muted" } : said(facts.gradient)),
  rank: ({ facts, without }) => without ?? facts.gradient?.dtype ?? null,
};

function fateColumn(key: Fate, title: string, tooltip: string): Column {
  return {
    key,
    title,
    tooltip,
    isNumber: true,
    cell: ({ entries, without }, dtype) => {
      const lost = without ? null : share(entries, dtype, key);
      if (lost === null) return NOTHING;
      const alarms = key === "overflow" ? lost > 0 : key === "underflow" && lost >= ALARM;
      return { text: percent(lost), title: `${NARROW[dtype]![0]}: ${sentence(entries!, dtype, key)}`, ...(alarms ? { look: "bad" as const } : {}) };
    },
    rank: ({ entries, without }, dtype) => (without ? null : share(entries, dtype, key)),
  };
}

export const COLUMNS: readonly Column[] = [
  { key: "name", title: "parameter", tooltip: "its name", cell: ({ name }) => ({ text: name }), rank: ({ name }) => name },
  { key: "shape", title: "shape", tooltip: "its dimensions; rows stand by its size", cell: ({ shape }) => ({ text: format.shape(shape), look: "muted" }), rank: sizeOf },
  {
    key: "size",
    title: "size",
    tooltip: "number of entries",
    isNumber: true,
    cell: (item) => {
      const size = sizeOf(item);
      return size === null ? NOTHING : { text: format.count(size), look: "muted" };
    },
    rank: sizeOf,
  },
  {
    key: "device",
    title: "device",
    tooltip: "where the parameter lies",
    cell: ({ facts: { parameter } }) => (parameter?.device ? { text: parameter.device, look: "muted" } : NOTHING),
    rank: ({ facts }) => facts.parameter?.device ?? null,
  },
  dtypeColumn,
  {
    ...stored("master", "master copy", "the float32 copy that the optimizer moves in place of a 16-bit parameter"),
    cell: ({ facts }) => (facts.master || !facts.notes.some(({ of }) => of.includes("master")) ? said(facts.master) : { text: "none" }),
  },
  gradientColumn,
  stored("activation", "activation gradient", "the gradient of the value that the module gives"),
  { key: "state", title: "optimizer state", tooltip: "what the optimizer keeps in the parameter's shape", cell: stateCell, rank: (item) => (item.facts.state.length ? stateCell(item).text : null) },
  { key: "bars", title: "log₂ magnitude", tooltip: "how the entries of the newest gradient that was counted are distributed, from 2⁻⁴⁸ to 2¹⁶; zeros are left out", cell: ({ entries, without }) => (entries && !without ? { text: "" } : NOTHING), rank: ({ entries, without }) => (entries && !without ? medianOf(entries) : null) },
  fateColumn("underflow", "zero", "the share of entries that would be rounded to zero, of those that are not zero already"),
  fateColumn("subnormal", "subnormal", "the share that would have fewer digits than other numbers"),
  fateColumn("overflow", "too large", "the share that would be infinite; in float8 e4m3, which has no infinity, NaN or 448, its largest number"),
];

function medianOf({ heights }: Entries): number | null {
  const total = heights.reduce((sum, height) => sum + height, 0);
  let seen = 0;
  return total ? heights.findIndex((height) => (seen += height) >= total / 2) : null;
}

export interface Order {
  key: string;
  /** 1: the smallest first. */
  way: 1 | -1;
}

const compare = (a: number | string, b: number | string): number => (a < b ? -1 : a > b ? 1 : 0);

/** In the order that was asked for; those that stand equally high as they are declared. */
export function sorted(items: readonly Item[], order: Order | null, dtype: number): Item[] {
  const column = order && COLUMNS.find(({ key }) => key === order.key);
  if (!column) return [...items];
  const ranked = items.map((item) => ({ item, rank: column.rank(item, dtype) }));
  ranked.sort((a, b) => {
    if (a.rank === null || b.rank === null) return Number(a.rank === null) - Number(b.rank === null);
    return order.way * compare(a.rank, b.rank);
  });
  return ranked.map(({ item }) => item);
}

/** Numbers are asked for the largest first, texts from a to z; then the other way round, then as declared. */
export function nextOrder(order: Order | null, { key, isNumber }: Column): Order | null {
  const first = isNumber || key === "shape" ? -1 : 1;
  if (order?.key !== key) return { key, way: first };
  return order.way === first ? { key, way: first === 1 ? -1 : 1 } : null;
}
