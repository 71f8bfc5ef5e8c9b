// The layout of `columns`, written by hand from its description: what the decoder is held against.

export interface Column {
  start: number;
  stop: number;
  max: number[];
  min?: number[];
  flags?: number[];
}

export function encode(columns: readonly Column[], rows: number, version = 1): Uint8Array<ArrayBuffer> {
  const hasMin = columns.some((c) => c.min);
  const bytes = new Uint8Array(16 + columns.length * (8 + rows * (hasMin ? 9 : 5)));
  const view = new DataView(bytes.buffer);
  let at = 0;
  const u32 = (value: number): void => {
    view.setUint32(at, value, true);
    at += 4;
  };
  const f32 = (value: number): void => {
    view.setFloat32(at, value, true);
    at += 4;
  };
  [columns.length, rows, Number(hasMin), version].forEach(u32);
  for (const c of columns) u32(c.start);
  for (const c of columns) u32(c.stop);
  for (const c of columns) c.max.forEach(f32);
  if (hasMin) for (const c of columns) (c.min ?? c.max).forEach(f32);
  for (const c of columns) for (let r = 0; r < rows; r++) bytes[at++] = c.flags?.[r] ?? 0;
  return bytes;
}

/** One column an iteration, each with these values. */
export function singles(values: readonly number[][], first = 0): Column[] {
  return values.map((max, i) => ({ start: first + i, stop: first + i + 1, max: [...max] }));
}
