// Paints the heatmap: per row one line of pixels, stretched downwards, then the marks on top.
import type { Chip } from "./chips";
import { placeChips } from "./chips";
import type { Domain, Scale } from "./colour";
import { colourIndex } from "./colour";
import { Look, lookOf } from "./looks";
import type { Marks } from "./marks";
import type { Pixels } from "./pixels";
import type { Columns } from "./wire";

/** A row in device pixels. */
export interface Band {
  top: number;
  height: number;
}

export interface Picture {
  columns: Columns;
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
  private looks: Uint8Array[] = [];
  private readonly strip = document.createElement("canvas");

  constructor(private readonly canvas: HTMLCanvasElement) {}

  /** Paint from device pixel `dirty` on (0: everything). Returns the first pixel touched. */
  paint(picture: Picture, dirty: number): number {
    const { pixels, bands, marks } = picture;
    const x = this.canvas.getContext("2d")!;
    const width = pixels.width;
    const all = dirty <= 0 || this.looks.length !== bands.length || this.looks[0]?.length !== width;
    if (all) {
      dirty = 0;
      this.looks = bands.map(() => new Uint8Array(width));
      this.chips = bands.map(() => []);
      x.clearRect(0, 0, this.canvas.width, this.canvas.height);
      for (const { top, height } of bands) marks.run(x, Look.none, pixels.end, width, top, height);
    }
    const end = pixels.end;
    if (end <= dirty) return width;
    const reach = Math.max(0, dirty - 4 * marks.chipSize);
    this.colour(picture, reach, end);
    x.imageSmoothingEnabled = false;
    let touched = width;
    bands.forEach(({ top, height }, row) => {
      const looks = this.looks[row]!;
      const chips = this.chips[row]!;
      const from = Math.max(reach, placeChips(chips, looks, dirty, end, marks.chipSize));
      touched = Math.min(touched, from);
      x.clearRect(from, top, end - from, height);
      x.drawImage(this.strip, from - reach, row, end - from, 1, from, top, end - from, height);
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

  /** Fill the strip with the pixels [from, to): a line for each row, clear where a look has no colour. */
  private colour({ columns, pixels, bands, domain, scale, table }: Picture, from: number, to: number): void {
    const width = to - from;
    const rows = bands.length;
    const image = new ImageData(width, Math.max(1, rows));
    const out = new Uint32Array(image.data.buffer);
    // Rows that the columns do not know yet were not recorded.
    const known = Math.min(rows, columns.rows - 1);
    const max = new Float32Array(rows);
    const min = new Float32Array(rows);
    const flags = new Uint8Array(rows);
    for (let pixel = from; pixel < to; pixel++) {
      const first = pixels.first[pixel]!;
      const last = pixels.last[pixel]!;
      if (first > last) {
        for (let r = 0; r < rows; r++) this.looks[r]![pixel] = Look.none;
        continue;
      }
      max.fill(NaN);
      min.fill(NaN);
      flags.fill(0);
      for (let c = first; c <= last; c++) {
        for (let r = 0, i = c * columns.rows; r < known; r++, i++) {
          const high = columns.max[i]!;
          if (high > max[r]! || Number.isNaN(max[r])) max[r] = high;
          const low = columns.min[i]!;
          if (low < min[r]! || Number.isNaN(min[r])) min[r] = low;
          flags[r]! |= columns.flags[i]!;
        }
      }
      for (let r = 0; r < rows; r++) {
        const value = scale.shown(max[r]!, min[r]!);
        const look = lookOf(value, flags[r]!);
        this.looks[r]![pixel] = look;
        if (look !== Look.value && look !== Look.value_not_optimized) continue;
        if (domain) out[r * width + pixel - from] = table[colourIndex(value, domain)]!;
      }
    }
    this.strip.width = width;
    this.strip.height = Math.max(1, rows);
    this.strip.getContext("2d")!.putImageData(image, 0, 0);
  }
}
