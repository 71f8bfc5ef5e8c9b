// Rows over time as runs of the same state, which are few: nobody freezes something at every iteration.
import { laneOf } from "../data/lanes";
import type { Columns } from "../data/wire";
import { stateOf } from "./state";

/** Run k has the state bits[k] from the iteration start[k] to start[k + 1]; the last one to the end. 0: no column. */
export interface Runs {
  start: number[];
  bits: number[];
}

export class AllRuns {
  /** By parameter. */
  #runs: Runs[] = [];
  #done = 0;
  #of: Columns | null = null;
  /** Columns that are still as they were read. */
  #kept = Infinity;
  #end = 0;
  #merged = new Map<string, Runs>();
  #mergedAt = 0;
  /** Grows when a run begins or all are read anew. */
  version = 0;

  /** The iteration after the newest. */
  get end(): number {
    return this.#end;
  }

  /** Columns from this one on are new or changed. */
  forget(column: number): void {
    this.#kept = Math.min(this.#kept, column);
  }

  update(columns: Columns, parameters: number): void {
    if (columns !== this.#of || parameters !== this.#runs.length) {
      this.#runs = Array.from({ length: parameters }, () => ({ start: [], bits: [] }));
      this.#done = this.#end = 0;
      this.#of = columns;
      this.version += 1;
    }
    if (this.#kept < this.#done) this.#goBack(columns, this.#kept);
    this.#kept = Infinity;
    if (this.#done === columns.count) return;
    let began = 0;
    const lanes = this.#runs.map((_, place) => laneOf(columns, place));
    for (let c = this.#done; c < columns.count; c++) {
      const [start, gap] = [columns.start[c]!, this.#end];
      for (let place = 0; place < parameters; place++) {
        const { max, flags, offset, stride } = lanes[place]!;
        const runs = this.#runs[place]!;
        if (start > gap) began += push(runs, gap, 0);
        began += push(runs, start, stateOf(max[offset + c * stride]!, flags[offset + c * stride]!));
      }
      this.#end = columns.stop[c]!;
    }
    this.#done = columns.count;
    this.version += began;
  }

  /** To before a column: the newest one may have merged with what came. */
  #goBack(columns: Columns, column: number): void {
    this.#done = column;
    this.#end = column ? columns.stop[column - 1]! : 0;
    this.version += 1;
    for (const { start, bits } of this.#runs) {
      while (start.length && start.at(-1)! >= this.#end) {
        start.pop();
        bits.pop();
      }
    }
  }

  /** Of several parameters as one row. */
  of(members: readonly number[]): Runs {
    if (members.length === 1) return this.#runs[members[0]!] ?? NONE;
    if (this.#mergedAt !== this.version) this.#merged.clear();
    this.#mergedAt = this.version;
    const key = members.join();
    let runs = this.#merged.get(key);
    if (!runs) this.#merged.set(key, (runs = merged(members.map((place) => this.#runs[place] ?? NONE))));
    return runs;
  }
}

const NONE: Runs = { start: [], bits: [] };

/** Returns how many runs have begun: one, or none. */
function push({ start, bits }: Runs, at: number, state: number): number {
  if (bits.at(-1) === state) return 0;
  start.push(at);
  bits.push(state);
  return 1;
}

export function merged(all: readonly Runs[]): Runs {
  const runs: Runs = { start: [], bits: [] };
  const edges = [...new Set(all.flatMap(({ start }) => start))].sort((a, b) => a - b);
  const at = all.map(() => -1);
  for (const edge of edges) {
    let bits = 0;
    all.forEach((each, i) => {
      while (each.start[at[i]! + 1]! <= edge) at[i]! += 1;
      bits |= each.bits[at[i]!] ?? 0;
    });
    push(runs, edge, bits);
  }
  return runs;
}

/** The state at an iteration. */
export function bitsAt({ start, bits }: Runs, iteration: number): number {
  let k = start.length - 1;
  while (k >= 0 && start[k]! > iteration) k -= 1;
  return bits[k] ?? 0;
}
