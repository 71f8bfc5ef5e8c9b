// What the looks are painted with: hatch, dots, lines, and glyphs on red. Patterns are tied to the canvas,
// not to the run of cells, so that a run can grow without a seam.
import type { Chip } from "./chips";
import { isBand } from "./chips";
import { Look } from "../data/looks";
import { surface } from "../kit/surface";
import type { Theme } from "../kit/theme";

const GLYPH_CSS = 9;

type Context = CanvasRenderingContext2D;

export class Marks {
  /** Width of a chip in device pixels. */
  readonly chipSize: number;
  readonly #hatch: CanvasPattern | null;
  readonly #sprites = new Map<string, HTMLCanvasElement>();

  constructor(
    private readonly theme: Theme,
    readonly dpr: number,
  ) {
    this.chipSize = Math.round(GLYPH_CSS * dpr);
    const side = Math.round(5 * dpr);
    const tile = canvas(side, side, (x) => {
      x.strokeStyle = theme.mark;
      x.lineWidth = dpr;
      x.beginPath();
      for (const shift of [-side, 0, side]) {
        x.moveTo(shift - 1, side + 1);
        x.lineTo(shift + side + 1, -1);
      }
      x.stroke();
    });
    this.#hatch = tile.getContext("2d")!.createPattern(tile, "repeat");
  }

  /** Paint the run [from, to) of a look without a colour; `open`: the run goes on at its left. */
  run(x: Context, look: number, from: number, to: number, top: number, height: number, open = false): void {
    const { theme, dpr } = this;
    const line = Math.max(1, Math.round(dpr));
    const width = to - from;
    switch (look) {
      case Look.none:
        x.fillStyle = theme.track;
        x.fillRect(from, top, width, height);
        break;
      case Look.zero:
        x.fillStyle = theme.muted;
        x.fillRect(from, top + Math.floor((height - line) / 2), width, line);
        break;
      case Look.frozen:
        x.fillStyle = theme.track;
        x.fillRect(from, top, width, height);
        x.fillStyle = this.#hatch ?? theme.mark;
        x.fillRect(from, top, width, height);
        break;
      case Look.unused:
        x.fillStyle = theme.track;
        x.fillRect(from, top, width, height);
        this.#dots(x, from, to, top, height);
        break;
      case Look.value_not_optimized:
        // Its value's colour, with a notched lower edge.
        for (let notch = 4 * dpr * Math.floor(from / (4 * dpr)); notch < to; notch += 4 * dpr) {
          const left = Math.max(from, Math.round(notch));
          const right = Math.min(to, Math.round(notch + 2 * dpr));
          if (right > left) x.clearRect(left, top + height - 2 * line, right - left, 2 * line);
        }
        break;
      case Look.not_recorded:
        x.fillStyle = theme.mark;
        x.fillRect(from, top, width, 1);
        x.fillRect(from, top + height - 1, width, 1);
        if (!open) x.fillRect(from, top, 1, height);
        x.fillRect(to - 1, top, 1, height);
        break;
    }
  }

  #dots(x: Context, from: number, to: number, top: number, height: number): void {
    const period = Math.round(7 * this.dpr);
    const tile = this.#sprite(`dots ${height}`, period, height, (t) => {
      t.fillStyle = this.theme.mark;
      t.beginPath();
      t.arc(period / 2, height / 2, 1.3 * this.dpr, 0, 7);
      t.fill();
    });
    x.save();
    x.translate(0, top);
    x.fillStyle = x.createPattern(tile, "repeat-x") ?? this.theme.mark;
    x.fillRect(from, 0, to - from, height);
    x.restore();
  }

  chip(x: Context, chip: Chip, top: number, height: number): void {
    const { chipSize: size, theme } = this;
    // A chip wider than its run covers neighbours: a gap on both sides says so, on any colour.
    if (chip.right - chip.left > chip.to - chip.from) x.clearRect(chip.left - 1, top, size + 2, height);
    x.fillStyle = theme.bad;
    x.fillRect(chip.left, top, chip.right - chip.left, height);
    if (!chip.glyph) return;
    const glyph = this.#glyph(chip.look, height);
    if (!isBand(chip, size)) {
      x.drawImage(glyph, Math.round((chip.left + chip.right - size) / 2), top);
      return;
    }
    for (let left = chip.left + Math.round(size / 2); left + size <= chip.right; left += 2 * size) {
      x.drawImage(glyph, left, top);
    }
  }

  #glyph(look: number, height: number): HTMLCanvasElement {
    return this.#sprite(`glyph ${look} ${height}`, this.chipSize, height, (x) => {
      const [m, c] = [this.chipSize / 2, height / 2];
      const s = Math.min(2.6 * this.dpr, height / 4);
      x.strokeStyle = this.theme.onBad;
      x.lineWidth = 1.3 * this.dpr;
      x.beginPath();
      if (look === Look.nan) {
        x.moveTo(m - s, c - s);
        x.lineTo(m + s, c + s);
        x.moveTo(m + s, c - s);
        x.lineTo(m - s, c + s);
      } else {
        const reach = s * 1.55;
        x.moveTo(m, c - reach);
        x.lineTo(m, c + reach);
        for (const [direction, is] of [
          [-1, look !== Look.neginf],
          [1, look !== Look.posinf],
        ] as const) {
          if (!is) continue;
          const tip = c + direction * reach;
          const wing = look === Look.bothinf ? s * 0.8 : s;
          x.moveTo(m - wing, tip - direction * wing);
          x.lineTo(m, tip);
          x.lineTo(m + wing, tip - direction * wing);
        }
      }
      x.stroke();
    });
  }

  #sprite(key: string, width: number, height: number, draw: (x: Context) => void): HTMLCanvasElement {
    let sprite = this.#sprites.get(key);
    if (!sprite) this.#sprites.set(key, (sprite = canvas(width, height, draw)));
    return sprite;
  }
}

function canvas(width: number, height: number, draw: (x: Context) => void): HTMLCanvasElement {
  const x = surface(Math.max(1, width), Math.max(1, height));
  draw(x);
  return x.canvas;
}
