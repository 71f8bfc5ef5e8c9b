// The bins of a histogram as bars: by the size of the entries in powers of two, positive and negative ones apart.

export interface Bar {
  /** Entries of size 2^low to 2^high. */
  low: number;
  high: number;
  positive: number;
  negative: number;
}

/** What has no size on the grid, by what it is. */
export type Special = "zero" | "below" | "above" | "posinf" | "neginf" | "nan";

export interface Bars {
  bars: Bar[];
  special: Record<Special, number>;
  total: number;
  /** The largest number of entries on one side of a bar, or of a special one. */
  tallest: number;
}

/** Bars as fine as the grid, or merged by two, four, ... until there are no more than `most`. */
export function barsOf(bins: Float64Array, most: number): Bars {
  const quarters = new Map<number, [number, number]>();
  const special: Bars["special"] = { zero: 0, below: 0, above: 0, posinf: 0, neginf: 0, nan: 0 };
  let total = 0;
  for (let i = 0; i < bins.length; i += 3) {
    const [low, high, count] = bins.subarray(i, i + 3) as unknown as [number, number, number];
    total += count;
    const [near, far] = [Math.min(Math.abs(low), Math.abs(high)), Math.max(Math.abs(low), Math.abs(high))];
    if (low !== low) special.nan += count;
    else if (near === Infinity) special[low > 0 ? "posinf" : "neginf"] += count;
    else if (far === 0) special.zero += count;
    else if (near === 0) special.below += count;
    else if (far === Infinity) special.above += count;
    else {
      const quarter = Math.round(4 * Math.log2(near));
      const sides = quarters.get(quarter) ?? [0, 0];
      sides[Number(high <= 0)]! += count;
      quarters.set(quarter, sides);
    }
  }
  const bars = merged(quarters, most);
  const tallest = Math.max(0, ...bars.flatMap(({ positive, negative }) => [positive, negative]), ...Object.values(special));
  return { bars, special, total, tallest };
}

function merged(quarters: ReadonlyMap<number, readonly [number, number]>, most: number): Bar[] {
  if (!quarters.size) return [];
  const [first, last] = [Math.min(...quarters.keys()), Math.max(...quarters.keys())];
  let step = 1;
  while (Math.floor(last / step) - Math.floor(first / step) >= most) step *= 2;
  const [from, to] = [Math.floor(first / step), Math.floor(last / step)];
  const bars = Array.from({ length: to - from + 1 }, (_, i) => ({ low: ((from + i) * step) / 4, high: ((from + i + 1) * step) / 4, positive: 0, negative: 0 }));
  for (const [quarter, [positive, negative]] of quarters) {
    const bar = bars[Math.floor(quarter / step) - from]!;
    bar.positive += positive;
    bar.negative += negative;
  }
  return bars;
}
