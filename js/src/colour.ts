// From a norm to a colour: a domain in powers of ten, and a table of 256 colours.

/** Ends of the colour bar, as exponents of ten. */
export interface Domain {
  lo: number;
  hi: number;
}

/** Three powers of ten at least, or noise would look like news; twelve at most, or nothing would differ. */
const NARROWEST = 3;
const WIDEST = 12;

/** The domain of values between min and max (> 0): a function of the two alone, so that a run always looks the same. */
export function domainOf(min: number, max: number): Domain | null {
  if (!(min > 0) || !(max > 0) || max === Infinity) return null;
  const hi = Math.ceil(Math.log10(max)) + 0; // not -0
  const lo = Math.floor(Math.log10(min));
  return { lo: Math.min(Math.max(lo, hi - WIDEST), hi - NARROWEST), hi };
}

export function colourIndex(value: number, { lo, hi }: Domain): number {
  const index = Math.floor(((Math.log10(value) - lo) / (hi - lo)) * 256);
  return Math.max(0, Math.min(255, index));
}

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
