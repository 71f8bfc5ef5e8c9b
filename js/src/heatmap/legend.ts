// The foot: colour bar, the marks in words, and how many iterations a column stands for.
import type { Domain } from "../data/colour";
import { endOf } from "../data/colour";
import { element, setLine, setText, UNSPOKEN } from "../kit/element";
import * as format from "../kit/format";
import type { Chip } from "./chips";
import { placeChips } from "./chips";
import { isNonFinite, LEGEND, Look } from "../data/looks";
import type { Marks } from "./marks";
import type { Quantity } from "../data/store";
import { Flag } from "../data/wire";
import { listen } from "../kit/listen";

const BAR = { width: 110, height: 9 };
const KEY = { width: 20, height: 12 };

export interface Legend {
  element: HTMLElement;
  /** Repaint the swatches: the theme, the colours or the device pixels changed. */
  paint(marks: Marks, table: Uint32Array): void;
  update(label: string, domain: Domain | null, byHand: boolean, seen: Uint8Array, note: string): void;
}

/** `onRange`: colours from one number to another. `onAuto`: as the values ask for. */
export function legendOf({ where }: Quantity, onRange: (low: number, high: number) => void, onAuto: () => void): Legend {
  let domain: Domain | null = null;
  const [low, high] = [end(false), end(true)];
  const auto = element("button", "gv-button gv-auto", { type: "button", title: "choose the colours' range again" }, "auto");
  const name = element("span", "");
  const bar = element("canvas", "gv-bar-colours", UNSPOKEN);
  const keys = LEGEND.map((entry) => {
    const swatch = element("canvas", "gv-swatch", UNSPOKEN);
    return { ...entry, swatch, key: element("span", "gv-key", {}, swatch, entry.word) };
  });
  const said = element("span", "gv-note");
  listen(auto, "click", onAuto);

  function end(isHigh: boolean): HTMLInputElement {
    const input = element("input", "gv-end", { "aria-label": `${isHigh ? "highest" : "lowest"} colour`, title: "set the colours' range", spellcheck: "false" });
    const number = (wantsHigh: boolean): number => (wantsHigh === isHigh ? Number(input.value) : endOf(domain!, wantsHigh));
    listen(input, "focus", () => {
      if (domain) input.value = String(Number(endOf(domain, isHigh).toPrecision(3)));
      input.select();
    });
    listen(input, "change", () => domain && input.value.trim() && onRange(number(false), number(true)));
    listen(input, "blur", sayEnds);
    listen(input, "keydown", ({ key }) => key === "Enter" && input.blur());
    return input;
  }

  function sayEnds(): void {
    const { activeElement } = document;
    if (activeElement !== low) low.value = domain ? (domain.signed ? `−${format.power(domain.base, domain.hi)}` : format.power(domain.base, domain.lo)) : "low";
    if (activeElement !== high) high.value = domain ? format.power(domain.base, domain.hi) : "high";
  }

  return {
    element: element(
      "div",
      "gv-foot",
      {},
      element("span", "gv-bar", {}, name, element("span", "gv-bar", {}, low, bar, high, auto)),
      ...(where ? [element("span", "gv-where", {}, `${where.trim()}:`)] : []),
      ...keys.map(({ key }) => key),
      said,
    ),

    paint(marks, table) {
      const colours = context(bar, BAR, 1);
      bar.width = 256;
      bar.height = 1;
      colours.putImageData(new ImageData(new Uint8ClampedArray(table.slice().buffer), 256, 1), 0, 0);
      for (const { swatch, look } of keys) {
        const x = context(swatch, KEY, marks.dpr);
        const { width, height } = swatch;
        if (look === Look.value_not_optimized) {
          x.putImageData(new ImageData(new Uint8ClampedArray(new Uint32Array(width * height).fill(table[150]!).buffer), width, height), 0, 0);
        }
        if (isNonFinite(look)) {
          const chips: Chip[] = [];
          placeChips(chips, new Uint8Array(width).fill(look), 0, width, marks.chipSize);
          for (const chip of chips) marks.chip(x, chip, 0, height);
        } else {
          marks.run(x, look, 0, width, 0, height);
        }
      }
    },

    update(label, shown, byHand, seen, note) {
      domain = shown;
      setText(name, label);
      sayEnds();
      auto.hidden = !byHand;
      let flags = 0;
      let bothInfs = false;
      for (const row of seen) {
        flags |= row;
        bothInfs ||= (row & Flag.posinf) !== 0 && (row & Flag.neginf) !== 0;
      }
      for (const { key, look, always } of keys) key.hidden = !(always || present(look, flags, bothInfs));
      setLine(said, note);
    },
  };
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
