// From a number to a colour: a domain in powers of ten or two, and a table of 256 colours (gradviz/widgets/colours.py).

/** Ends of the colour bar, as exponents of a base. */
export interface Domain {
  lo: number;
  hi: number;
  base: number;
}

/** How numbers of a kind become colours. */
export interface Scale {
  base: 2 | 10;
  /** So many powers at least, or noise would look like news, and at most, or nothing would differ. */
  narrowest: number;
  widest: number;
  /** Whether 1 is in the middle. */
  centred: boolean;
  /** Whether the smallest of what a cell stands for matters too. */
  sees: "max" | "both";
  /** Of what a cell stands for, the number that it shows, and which one that is in a word or three. */
  shown(max: number, min: number): number;
  which: string;
}

export const NORMS: Scale = { base: 10, narrowest: 3, widest: 12, centred: false, sees: "max", shown: (max) => max, which: "max" };
export const RATIOS: Scale = {
  base: 2,
  narrowest: 2,
  widest: 10,
  centred: true,
  sees: "both",
  shown: (max, min) => (min > 0 && max * min < 1 ? min : max),
  which: "furthest from 1",
};

/** The domain of values between min and max (> 0): a function of the two alone, so that a run always looks the same. */
export function domainOf(min: number, max: number, { base, narrowest, widest, centred }: Scale = NORMS): Domain | null {
  if (!(min > 0) || !(max > 0) || max === Infinity) return null;
  const hi = Math.ceil(log(max, base)) + 0; // not -0
  const lo = Math.floor(log(min, base));
  if (centred) {
    const reach = Math.min(Math.max(hi, -lo, narrowest), widest);
    return { lo: -reach, hi: reach, base };
  }
  return { lo: Math.min(Math.max(lo, hi - widest), hi - narrowest), hi, base };
}

export function colourIndex(value: number, { lo, hi, base }: Domain): number {
  const index = Math.floor(((log(value, base) - lo) / (hi - lo)) * 256);
  return Math.max(0, Math.min(255, index));
}

const log = (value: number, base: number): number => (base === 2 ? Math.log2(value) : Math.log10(value));

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
