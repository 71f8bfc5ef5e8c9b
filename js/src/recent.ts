// The newest columns as they came: fine, where the overview has merged them already.
import { withRows } from "./overview";
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
  const rows = Math.max(0, ...pieces.map((piece) => piece.rows));
  const wide = pieces.map((piece) => (piece.rows < rows ? withRows(piece, rows) : piece));
  const count = wide.reduce((sum, piece) => sum + piece.count, 0);
  const all: Columns = {
    count,
    rows,
    start: new Uint32Array(count),
    stop: new Uint32Array(count),
    max: new Float32Array(count * rows),
    min: new Float32Array(count * rows),
    flags: new Uint8Array(count * rows),
  };
  let at = 0;
  for (const piece of wide) {
    for (const name of ["start", "stop"] as const) all[name].set(piece[name], at);
    for (const name of ["max", "min", "flags"] as const) all[name].set(piece[name], at * rows);
    at += piece.count;
  }
  return all;
}
