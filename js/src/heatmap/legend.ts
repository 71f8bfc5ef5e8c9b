// The foot: colour bar, the marks in words, and how many iterations a column stands for.
import type { Domain } from "../data/colour";
import { endOf } from "../data/colour";
import { element, setText, UNSPOKEN } from "../kit/element";
import * as format from "../kit/format";
import { placeChips } from "./chips";
import { isNonFinite, LEGEND, Look } from "../data/looks";
import type { Marks } from "./marks";
import type { Quantity } from "../data/store";
import { Flag } from "../data/wire";
import { listen } from "../kit/listen";

const BAR = { width: 110, height: 9 };
const KEY = { width: 20, height: 12 };

export class Legend {
  readonly #low: HTMLInputElement;
  readonly #high: HTMLInputElement;
  readonly #auto = element("button", "gv-button gv-auto", { type: "button", title: "choose the colours' range again" }, "auto");
  readonly #label = element("span", "");
  #domain: Domain | null = null;
  readonly #bar = element("canvas", "gv-bar-colours", UNSPOKEN);
  readonly #keys = LEGEND.map((entry) => {
    const swatch = element("canvas", "gv-swatch", UNSPOKEN);
    return { ...entry, swatch, element: element("span", "gv-key", {}, swatch, entry.word) };
  });
  readonly #note = element("span", "gv-note");
  readonly element: HTMLElement;

  /** `onRange`: colours from one number to another; null: as the values ask for. */
  constructor({ where }: Quantity, onRange: (low: number, high: number) => void, onAuto: () => void) {
    const end = (isHigh: boolean): HTMLInputElement => {
      const input = element("input", "gv-end", { "aria-label": `${isHigh ? "highest" : "lowest"} colour`, title: "set the colours' range", spellcheck: "false" });
      const number = (high: boolean): number => (high === isHigh ? Number(input.value) : endOf(this.#domain!, high));
      listen(input, "focus", () => {
        if (this.#domain) input.value = String(Number(endOf(this.#domain, isHigh).toPrecision(3)));
        input.select();
      });
      listen(input, "change", () => this.#domain && input.value.trim() && onRange(number(false), number(true)));
      listen(input, "blur", () => this.#sayEnds());
      listen(input, "keydown", ({ key }) => key === "Enter" && input.blur());
      return input;
    };
    [this.#low, this.#high] = [end(false), end(true)];
    listen(this.#auto, "click", onAuto);
    this.element = element(
      "div",
      "gv-foot",
      {},
      element("span", "gv-bar", {}, this.#label, element("span", "gv-bar", {}, this.#low, this.#bar, this.#high, this.#auto)),
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

  #sayEnds(): void {
    const domain = this.#domain;
    if (document.activeElement !== this.#low) {
      const low = domain && (domain.signed ? `−${format.power(domain.base, domain.hi)}` : format.power(domain.base, domain.lo));
      this.#low.value = low ?? "low";
    }
    if (document.activeElement !== this.#high) this.#high.value = domain ? format.power(domain.base, domain.hi) : "high";
  }

  update(label: string, domain: Domain | null, byHand: boolean, seen: Uint8Array, note: string): void {
    this.#domain = domain;
    setText(this.#label, label);
    this.#sayEnds();
    this.#auto.hidden = !byHand;
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
