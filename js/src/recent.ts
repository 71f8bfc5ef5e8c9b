// The newest columns as they came: fine, where the overview has merged them already.
import { Overview } from "./overview";
import type { Columns } from "./wire";

const KEPT = 1024;

export class Recent {
  private pieces: Columns[] = [];
  private joined: Columns | null = null;

  add(columns: Columns): void {
    if (!columns.count) return;
    this.pieces.push(columns);
    this.joined = null;
    let count = this.pieces.reduce((sum, piece) => sum + piece.count, 0);
    while (count - this.pieces[0]!.count >= KEPT) count -= this.pieces.shift()!.count;
  }

  clear(): void {
    this.pieces = [];
    this.joined = null;
  }

  /** The first iteration that is here. */
  get start(): number {
    return this.pieces[0]?.start[0] ?? Infinity;
  }

  get columns(): Columns {
    return (this.joined ??= join(this.pieces));
  }
}

function join(pieces: readonly Columns[]): Columns {
  const all = new Overview(0, Infinity);
  for (const piece of pieces) all.append(piece);
  return all;
}
