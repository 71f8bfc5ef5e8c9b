// Where the marks of non-finite cells go in a row.
//
// A NaN may be one device pixel wide, and a red line alone would speak by hue only. Its mark is a chip wide
// enough for a glyph, centred on the run of cells; neighbouring chips move aside for each other. Chips left
// of what is new stay as they are, so that a live append repaints only its own end of the row.
import { isNonFinite } from "../data/looks";

export interface Chip {
  look: number;
  /** The run of pixels that it stands for: [from, to). */
  from: number;
  to: number;
  /** What it covers; as wide as the run or wider. */
  left: number;
  right: number;
  /** False where neighbours leave no room: the bare run is painted. */
  glyph: boolean;
}

/** A run this many chips wide repeats its glyph from its start on instead of centring one. */
export const BAND = 3;

export const isBand = (chip: Chip, size: number): boolean => chip.to - chip.from >= BAND * size;

/**
 * Bring the chips of a row up to date with its looks from pixel `dirty` on.
 * Returns the first pixel of the row to repaint.
 */
export function placeChips(chips: Chip[], looks: Uint8Array, dirty: number, end: number, size: number): number {
  let repaint = Math.max(0, dirty - 1);
  let x = Math.min(dirty, end);
  for (let chip = chips.at(-1); chip && chip.to >= dirty; chip = chips.at(-1)) {
    chips.pop();
    const changes = isBand(chip, size) ? Math.max(chip.from, dirty - BAND * size) : chip.left - 1;
    repaint = Math.max(0, Math.min(repaint, changes));
    x = Math.min(x, chip.from);
  }
  while (x < end) {
    const look = looks[x]!;
    let to = x + 1;
    if (isNonFinite(look)) {
      while (to < end && looks[to] === look) to += 1;
      const chip = place(look, x, to, chips.at(-1), size, looks.length);
      repaint = Math.max(0, Math.min(repaint, chip.to > dirty && !isBand(chip, size) ? chip.left - 1 : repaint));
      chips.push(chip);
    }
    x = to;
  }
  return repaint;
}

function place(look: number, from: number, to: number, before: Chip | undefined, size: number, width: number): Chip {
  const bare: Chip = { look, from, to, left: from, right: to, glyph: false };
  if (to - from >= size) return { ...bare, glyph: true };
  const centred = Math.max(0, Math.min(width - size, Math.round((from + to - size) / 2)));
  const left = before?.glyph ? Math.max(centred, before.right + 1) : centred;
  if (left - centred > size || left + size > width) return bare;
  return { ...bare, left, right: left + size, glyph: true };
}

/** The chip that covers the cell at pixel x without standing for it, if there is one. */
export function coveredBy(chips: readonly Chip[], x: number): Chip | undefined {
  return chips.find((chip) => chip.glyph && x >= chip.left && x < chip.right && (x < chip.from || x >= chip.to));
}
