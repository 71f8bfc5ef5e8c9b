// From a number to a colour: a domain in powers of ten or two, and a table of 256 colours (gradviz/widgets/colours.py).

/** Ends of the colour bar, as exponents of a base; of base 1, the numbers themselves. */
export interface Domain {
  lo: number;
  hi: number;
  base: number;
  /** From minus to plus 10^hi: what is below 10^lo has the colour in the middle. */
  signed?: boolean;
}

/** How numbers of a kind become colours. */
export interface Scale {
  base: 1 | 2 | 10;
  /** So many powers at least, or noise would look like news, and at most, or nothing would differ. */
  narrowest: number;
  widest: number;
  /** Whether 1 is in the middle. */
  centred?: boolean;
  signed?: boolean;
  /** Of what a cell stands for, the number that it shows, and which one that is in a word or three. */
  shown(max: number, min: number): number;
  which: string;
}

export const NORMS: Scale = { base: 10, narrowest: 3, widest: 12, shown: (max) => max, which: "max" };
export const RATIOS: Scale = {
  base: 2,
  narrowest: 2,
  widest: 10,
  centred: true,
  shown: (max, min) => (min > 0 && max * min < 1 ? min : max),
  which: "furthest from 1",
};
/** By the names that Python gives them. */
export const SCALES: Record<string, Scale> = {
  norms: NORMS,
  ratios: RATIOS,
  shares: { ...NORMS, base: 1 },
  signed: { ...NORMS, widest: 6, signed: true, shown: (max, min) => (-min > max ? min : max), which: "furthest from 0" },
};

/** The domain of sizes between min and max (> 0): a function of the two alone, so that a run always looks the same. */
export function domainOf(min: number, max: number, { base, narrowest, widest, centred, signed }: Scale = NORMS): Domain | null {
  if (base === 1) return { lo: 0, hi: 1, base };
  if (!(min > 0) || !(max > 0) || max === Infinity) return null;
  const hi = Math.ceil(log(max, base)) + 0; // not -0
  const lo = Math.floor(log(min, base));
  if (centred) {
    const reach = Math.min(Math.max(hi, -lo, narrowest), widest);
    return { lo: -reach, hi: reach, base };
  }
  return { lo: Math.min(Math.max(lo, hi - widest), hi - narrowest), hi, base, ...(signed && { signed }) };
}

/** A domain from one number to another, as a user wants it; null where no colours would be between them. */
export function domainBetween(low: number, high: number, { base, centred, signed, widest }: Scale): Domain | null {
  const [lo, hi] = [log(low, base), log(high, base)];
  if (signed) return Number.isFinite(hi) ? { lo: hi - widest, hi, base, signed } : null;
  if (centred) return hi > 0 && hi < Infinity ? { lo: -hi, hi, base } : null;
  return hi > lo && Number.isFinite(hi - lo) ? { lo, hi, base } : null;
}

export function colourIndex(value: number, { lo, hi, base, signed }: Domain): number {
  let share = (log(signed ? Math.abs(value) : value, base) - lo) / (hi - lo);
  if (signed) share = (1 + Math.sign(value) * Math.max(0, share)) / 2;
  return Math.max(0, Math.min(255, Math.floor(share * 256)));
}

/** An end of the colour bar as a number. */
export const endOf = ({ hi, lo, base, signed }: Domain, isHigh: boolean): number => {
  const exponent = isHigh || signed ? hi : lo;
  return (base === 1 ? exponent : base ** exponent) * (signed && !isHigh ? -1 : 1);
};

const log = (value: number, base: number): number => (base === 1 ? value : base === 2 ? Math.log2(value) : Math.log10(value));

/** The colour table as pixels: ABGR, which is how a little-endian Uint32 lies in ImageData. */
export function pixelTable(rgb: Uint8Array): Uint32Array {
  const table = new Uint32Array(256);
  for (let i = 0; i < 256; i++) {
    // Grey where Python sent no table (yet): the order stays readable.
    const [r, g, b] = rgb.length >= 768 ? rgb.subarray(3 * i, 3 * i + 3) : [i, i, i];
    table[i] = (0xff000000 | (b! << 16) | (g! << 8) | r!) >>> 0;
  }
  return table;
}
