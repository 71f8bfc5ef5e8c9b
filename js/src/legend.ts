// The foot: colour bar, the marks in words, and how many iterations a column stands for.
import type { Domain } from "./colour";
import { element, setText } from "./element";
import * as format from "./format";
import { placeChips } from "./chips";
import { isNonFinite, LEGEND, Look } from "./looks";
import type { Marks } from "./marks";
import type { Quantity } from "./store";
import { Flag } from "./wire";

const BAR = { width: 110, height: 9 };
const KEY = { width: 20, height: 12 };

export class Legend {
  readonly #low = element("span", "gv-end");
  readonly #high = element("span", "gv-end");
  readonly #bar = element("canvas", "gv-bar-colours", { "aria-hidden": "true" });
  readonly #keys = LEGEND.map((entry) => {
    const swatch = element("canvas", "gv-swatch", { "aria-hidden": "true" });
    return { ...entry, swatch, element: element("span", "gv-key", {}, swatch, entry.word) };
  });
  readonly #note = element("span", "gv-note");
  readonly element: HTMLElement;

  constructor({ label, where }: Quantity) {
    this.element = element(
      "div",
      "gv-foot",
      {},
      element("span", "gv-bar", {}, element("span", "", {}, label), element("span", "gv-bar", {}, this.#low, this.#bar, this.#high)),
      ...(where ? [element("span", "gv-where", {}, `${where.trim()}:`)] : []),
      ...this.#keys.map((key) => key.element),
      this.#note,
    );
  }

  /** Repaint the swatches: the theme, the colours or the device pixels changed. */
  paint(marks: Marks, table: Uint32Array, dpr: number): void {
    const bar = context(this.#bar, BAR, 1);
    this.#bar.width = 256;
    this.#bar.height = 1;
    bar.putImageData(new ImageData(new Uint8ClampedArray(table.slice().buffer), 256, 1), 0, 0);
    for (const { swatch, look } of this.#keys) {
      const x = context(swatch, KEY, dpr);
      const { width, height } = swatch;
      if (look === Look.value_not_optimized) {
        x.putImageData(new ImageData(new Uint8ClampedArray(new Uint32Array(width * height).fill(table[150]!).buffer), width, height), 0, 0);
      }
      if (isNonFinite(look)) {
        const chips: Parameters<Marks["chip"]>[1][] = [];
        placeChips(chips, new Uint8Array(width).fill(look), 0, width, marks.chipSize);
        for (const chip of chips) marks.chip(x, chip, 0, height);
      } else {
        marks.run(x, look, 0, width, 0, height);
      }
    }
  }

  update(domain: Domain | null, seen: Uint8Array, note: string): void {
    setText(this.#low, domain ? format.power(domain.base, domain.lo) : "low");
    setText(this.#high, domain ? format.power(domain.base, domain.hi) : "high");
    let flags = 0;
    let bothInfs = false;
    for (const row of seen) {
      flags |= row;
      bothInfs ||= (row & Flag.posinf) !== 0 && (row & Flag.neginf) !== 0;
    }
    for (const key of this.#keys) key.element.hidden = !(key.always || present(key.look, flags, bothInfs));
    setText(this.#note, note);
    this.#note.hidden = !note;
  }
}

function present(look: Look, flags: number, bothInfs: boolean): boolean {
  if (look === Look.bothinf) return bothInfs;
  return (flags & (look === Look.value_not_optimized ? Flag.not_optimized : Flag.not_recorded)) !== 0;
}

function context(canvas: HTMLCanvasElement, size: { width: number; height: number }, dpr: number): CanvasRenderingContext2D {
  canvas.style.width = `${size.width}px`;
  canvas.style.height = `${size.height}px`;
  canvas.width = Math.round(size.width * dpr);
  canvas.height = Math.round(size.height * dpr);
  return canvas.getContext("2d")!;
}

/** How many iterations are seen as one, and by which of them: `most` is the largest number that any pixel shows. */
export function noteText(level: number, most: number, which = "max"): string {
  if (most > 2 ** level) return `1 column = up to ${format.count(most)} iterations (${which})`;
  return level > 0 ? `1 column = ${format.count(2 ** level)} iterations (${which})` : "";
}
