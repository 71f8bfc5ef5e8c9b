// Paints the heatmap: per row one line of pixels, stretched downwards, then the marks on top.
import type { Chip } from "./chips";
import { placeChips } from "./chips";
import type { Domain, Scale } from "../data/colour";
import { colourIndex } from "../data/colour";
import type { Lane } from "../data/lanes";
import { mergeCell } from "../data/lanes";
import { Look, lookIn } from "../data/looks";
import type { Marks } from "./marks";
import type { Pixels } from "../data/pixels";
import { surface } from "../kit/surface";

/** A row in device pixels. */
export interface Band {
  top: number;
  height: number;
}

export interface Picture {
  lanes: readonly Lane[];
  pixels: Pixels;
  bands: readonly Band[];
  domain: Domain | null;
  scale: Scale;
  table: Uint32Array;
  marks: Marks;
}

export class HeatPainter {
  /** Chips of each row, for painting and for pointing. */
  chips: Chip[][] = [];
  #looks: Uint8Array[] = [];
  /** A line of pixels for each row, clear where a look has no colour; and the same where it can be drawn from. */
  #image = new ImageData(1, 1);
  readonly #strip = surface();

  constructor(private readonly canvas: HTMLCanvasElement) {}

  /** Paint from device pixel `dirty` on (0: everything). Returns the first pixel touched. */
  paint(picture: Picture, dirty: number): number {
    const { pixels, bands, marks } = picture;
    const x = this.canvas.getContext("2d")!;
    const { width, end } = pixels;
    const all = dirty <= 0 || this.#looks.length !== bands.length || this.#image.width !== width;
    if (all) {
      dirty = 0;
      this.#begin(width, bands.length);
      x.clearRect(0, 0, this.canvas.width, this.canvas.height);
      for (const { top, height } of bands) marks.run(x, Look.none, end, width, top, height);
    }
    if (end <= dirty) return width;
    this.#colour(picture, dirty, end);
    x.imageSmoothingEnabled = false;
    let touched = width;
    bands.forEach(({ top, height }, row) => {
      const looks = this.#looks[row]!;
      const chips = this.chips[row]!;
      const from = placeChips(chips, looks, dirty, end, marks.chipSize);
      touched = Math.min(touched, from);
      if (!all) x.clearRect(from, top, end - from, height);
      x.drawImage(this.#strip.canvas, from, row, end - from, 1, from, top, end - from, height);
      for (let a = from; a < end; ) {
        const look = looks[a]!;
        let b = a + 1;
        while (b < end && looks[b] === look) b += 1;
        if (look !== Look.value) marks.run(x, look, a, b, top, height, a > 0 && looks[a - 1] === look);
        a = b;
      }
      const first = chips.findLastIndex((chip) => Math.max(chip.right, chip.to) < from);
      for (let i = first + 1; i < chips.length; i++) marks.chip(x, chips[i]!, top, height);
    });
    return touched;
  }

  #begin(width: number, rows: number): void {
    this.#looks = Array.from({ length: rows }, () => new Uint8Array(width));
    this.chips = Array.from({ length: rows }, () => []);
    this.#image = new ImageData(width, Math.max(1, rows));
    Object.assign(this.#strip.canvas, { width, height: this.#image.height });
  }

  /** Fill the strip's pixels [from, to). */
  #colour({ lanes, pixels, domain, scale, table }: Picture, from: number, to: number): void {
    const { first, last, width } = pixels;
    const image = this.#image;
    const out = new Uint32Array(image.data.buffer);
    lanes.forEach((lane, row) => {
      const looks = this.#looks[row]!;
      for (let pixel = from; pixel < to; pixel++) {
        const i = row * width + pixel;
        out[i] = 0;
        if (first[pixel]! > last[pixel]!) {
          looks[pixel] = Look.none;
          continue;
        }
        const { max, min, flags } = mergeCell(lane, first[pixel]!, last[pixel]!);
        const value = scale.shown(max, min);
        const look = lookIn(scale, value, flags);
        looks[pixel] = look;
        if (domain && (look === Look.value || look === Look.value_not_optimized)) out[i] = table[colourIndex(value, domain)]!;
      }
    });
    this.#strip.putImageData(image, 0, 0, from, 0, to - from, image.height);
  }
}
