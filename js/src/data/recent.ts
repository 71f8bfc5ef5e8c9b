// The newest columns as they came: fine, where the overview has merged them already.
import { hasLossAlone, Overview } from "./overview";
import type { Columns } from "./wire";

const KEPT = 1024;

export class Recent {
  #pieces: Columns[] = [];
  #joined: Columns | null = null;

  add(columns: Columns): void {
    if (!columns.count) return;
    this.#pieces.push(columns);
    this.#joined = null;
    let count = this.#pieces.reduce((sum, piece) => sum + piece.count, 0);
    while (count - this.#pieces[0]!.count >= KEPT) count -= this.#pieces.shift()!.count;
  }

  clear(): void {
    this.#pieces = [];
    this.#joined = null;
  }

  /** The first iteration that is here; a loss that belongs to a column that is not does not count. */
  get start(): number {
    for (const piece of this.#pieces) {
      for (let c = 0; c < piece.count; c++) if (!hasLossAlone(piece, c)) return piece.start[c]!;
    }
    return Infinity;
  }

  get columns(): Columns {
    return (this.#joined ??= join(this.#pieces));
  }
}

function join(pieces: readonly Columns[]): Columns {
  const all = new Overview(0, Infinity);
  for (const piece of pieces) all.append(piece);
  return all;
}
