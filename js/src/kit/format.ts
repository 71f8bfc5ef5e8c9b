// Numbers and times in words.

/** 1234567 -> "1,234,567". Not Intl: the same in every browser and language. */
export function count(n: number): string {
  return String(Math.round(n)).replace(/\B(?=(\d{3})+$)/g, ",");
}

/** "1 iteration", "1,200 iterations". */
export const many = (n: number, noun: string): string => `${count(n)} ${noun}${n === 1 ? "" : "s"}`;

function nonFinite(value: number): string {
  return Number.isNaN(value) ? "NaN" : value > 0 ? "+inf" : "−inf";
}

const signed = (value: number): string => (value < 0 ? "-" : "") + count(Math.abs(value));

/** A metric or a loss at a glance: three digits. */
export function glance(value: number): string {
  if (!Number.isFinite(value)) return nonFinite(value);
  const size = Math.abs(value);
  if (size === 0) return "0";
  if (size < 1e-3 || size >= 1e6) return value.toExponential(2).replace("e+", "e");
  return size >= 999.5 ? signed(value) : value.toPrecision(3);
}

/** The smallest and the largest norm a float32 can hold: what lies beyond was clamped by the sender. */
const SMALLEST = 1.4e-45;
const LARGEST = 3.4028234e38;

/** A value to read off: four digits. */
export function precise(value: number): string {
  if (!Number.isFinite(value)) return nonFinite(value);
  if (value === 0) return "0";
  const size = Math.abs(value);
  if (size <= SMALLEST * 1.01) return "≤ 1.4e-45";
  if (size >= LARGEST) return "≥ 3.4e38";
  if (size < 0.01 || size >= 1e5) return value.toExponential(3).replace("e+", "e");
  return size >= 9999.5 ? signed(value) : value.toPrecision(4);
}

/** 42 -> "0:42", 3723 -> "1:02:03". */
export function duration(seconds: number): string {
  const s = Math.max(0, Math.round(seconds));
  const two = (n: number): string => String(n).padStart(2, "0");
  const minutes = Math.floor(s / 60);
  if (minutes < 60) return `${minutes}:${two(s % 60)}`;
  return `${count(Math.floor(minutes / 60))}:${two(minutes % 60)}:${two(s % 60)}`;
}

const SUPERSCRIPT = "⁰¹²³⁴⁵⁶⁷⁸⁹";

/** An end of the colour bar: "10⁻⁸", or "1/16" and "16" for powers of two, which are of a ratio. */
export function power(base: number, exponent: number): string {
  if (base === 1 || exponent % 1) return glance(base === 1 ? exponent : base ** exponent);
  if (base === 2) return exponent < 0 ? `1/${2 ** -exponent}` : count(2 ** exponent);
  const digits = [...String(Math.abs(exponent))].map((d) => SUPERSCRIPT[Number(d)]).join("");
  return `10${exponent < 0 ? "⁻" : ""}${digits}`;
}

/** "iteration 128", or "iterations 128–131" for [128, 132). */
export function iterations(start: number, stop: number): string {
  if (stop - start <= 1) return `iteration ${count(start)}`;
  return `iterations ${count(start)}–${count(stop - 1)}`;
}

export function shape(sizes: readonly number[] | null): string {
  if (!sizes) return "shape unknown";
  return sizes.length ? sizes.map((n) => count(n)).join(" × ") : "scalar";
}

const KINDS: readonly [string, string][] = [
  ["bfloat", "bf"],
  ["float", "f"],
  ["complex", "c"],
  ["uint", "u"],
  ["int", "i"],
];

/** "float32" -> "f32", "bfloat16" -> "bf16", "float8_e4m3fn" -> "f8". */
export function shortDtype(dtype: string): string {
  for (const [long, short] of KINDS) {
    const bits = dtype.startsWith(long) && /^\d+/.exec(dtype.slice(long.length));
    if (bits) return short + bits[0];
  }
  return dtype;
}
