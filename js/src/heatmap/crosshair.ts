// The crosshair: which cell is looked at, by pointer or by keys, and the boxes that show it. These are elements
// above the canvases: looking never repaints data and never asks the kernel.
import type { Description, When } from "./describe";
import { describeFold, describeLoss, describeParameter, sentence } from "./describe";
import { element, setText } from "../kit/element";
import * as format from "../kit/format";
import { coveredBy } from "./chips";
import type { Chip } from "./chips";
import { isInside } from "../rows/folds";
import type { Lane } from "../data/lanes";
import { laneOf, mergeCell } from "../data/lanes";
import type { Pixels } from "../data/pixels";
import { wordOf } from "../data/looks";
import type { Layout, Row } from "../rows/rows";
import { PITCH, rowAt } from "../rows/rows";
import type { Quantity, Store } from "../data/store";
import { Tooltip } from "./tooltip";
import type { Columns } from "../data/wire";

/** What the crosshair needs to know of the picture as it was last painted. */
export interface Scene {
  store: Store;
  quantity: Quantity;
  layout: Layout;
  columns: Columns;
  laneOf(row: Row): Lane;
  lossLane: Lane;
  pixels: Pixels;
  /** Device pixels to a css pixel, sideways. */
  dpr: number;
  /** By row, as far as rows are painted. */
  chipsOf(row: number): readonly Chip[];
  lossChips: readonly Chip[];
}

/** The places it works in, all inside the widget's root. */
export interface Places {
  root: HTMLElement;
  lanes: HTMLElement;
  scroll: HTMLElement;
  region: HTMLElement;
  plot: HTMLElement;
  lossLane: HTMLElement;
}

const LOSS = -1;

/** A cell by its row's place and its iteration. */
export interface Shown {
  row: number;
  iteration: number;
}

/** A pointer moves on with the mouse, so it stays a place on the screen; keys stay with a row and an iteration. */
type At = { by: "pointer"; clientX: number; clientY: number; lane: "heat" | "loss" } | { by: "keys"; name: string; row: number; iteration: number };

export class Crosshair {
  #at: At | null = null;
  #scene: Scene | null = null;
  #shown: { row: number; pixel: number } | null = null;
  readonly #line = element("div", "gv-line");
  readonly #rowBox = element("div", "gv-row-box");
  readonly #cellBox = element("div", "gv-cell-box");
  readonly #tooltip = new Tooltip();
  readonly #live = element("div", "gv-live", { "aria-live": "polite" });
  /** Where a selection by keys began. */
  #anchor: Shown | null = null;
  /** What is looked at stays so, wherever the pointer goes. */
  #pinned = false;
  #speak: ReturnType<typeof setTimeout> | undefined;

  constructor(
    private readonly places: Places,
    private readonly commands: { fold(row: number): void; selectTo(row: number, iteration: number, from: Shown): void; deselect(): void },
    signal: AbortSignal,
  ) {
    const { root, lanes, region, plot, lossLane } = places;
    lanes.append(this.#line);
    plot.append(this.#rowBox, this.#cellBox);
    root.append(this.#tooltip.element, this.#live);
    for (const [target, lane] of [
      [plot, "heat"],
      [lossLane, "loss"],
    ] as const) {
      const move = (event: PointerEvent): void => {
        if (this.#pinned) return;
        this.#at = { by: "pointer", clientX: event.clientX, clientY: event.clientY, lane };
        this.#refresh();
      };
      target.addEventListener("pointermove", move, { signal });
      target.addEventListener("pointerdown", move, { signal });
      target.addEventListener("pointerleave", () => this.#at?.by === "pointer" && this.clear(), { signal });
    }
    region.addEventListener("keydown", (event) => this.#onKey(event), { signal });
    region.addEventListener("blur", () => this.#at?.by === "keys" && !this.#pinned && this.clear(), { signal });
    places.scroll.addEventListener("scroll", () => this.#refresh(), { signal, passive: true });
    signal.addEventListener("abort", () => clearTimeout(this.#speak));
    this.#hide();
  }

  /** The picture was painted anew. */
  update(scene: Scene): void {
    this.#scene = scene;
    this.#refresh();
  }

  /** Hold on to the cell that is looked at, or let it go. */
  togglePin(): void {
    const [scene, shown] = [this.#scene, this.#shown];
    if (!scene || !shown || shown.row === LOSS) return;
    this.#pinned = !this.#pinned;
    this.#at = { by: "keys", name: scene.layout.rows[shown.row]!.name, row: shown.row, iteration: this.iteration! };
    this.places.root.classList.toggle("gv-pinned", this.#pinned);
    this.#refresh();
  }

  /** The iteration that is looked at. */
  get iteration(): number | null {
    if (!this.#shown || !this.#scene) return null;
    return iterationAt(this.#scene.pixels, this.#scene.columns, this.#shown.pixel);
  }

  clear(): void {
    this.#at = null;
    this.#pinned = false;
    this.places.root.classList.remove("gv-pinned");
    clearTimeout(this.#speak);
    setText(this.#live, "");
    this.#hide();
  }

  #hide(): void {
    this.#shown = null;
    this.#line.hidden = this.#rowBox.hidden = this.#cellBox.hidden = true;
    this.#tooltip.hide();
  }

  #refresh(): void {
    const target = this.#scene && this.#at && (this.#at.by === "pointer" ? this.#pointed(this.#scene) : this.#keyed(this.#scene));
    if (target) this.#show(this.#scene!, target.row, target.pixel);
    else if (this.#shown) this.#hide();
  }

  #pointed({ layout, pixels, dpr }: Scene): { row: number; pixel: number } | null {
    if (this.#at?.by !== "pointer") return null;
    const { clientX, clientY, lane } = this.#at;
    const box = this.places.plot.getBoundingClientRect();
    const pixel = Math.floor((clientX - box.left) * dpr);
    const row = lane === "loss" ? LOSS : rowAt(layout, clientY - box.top);
    return row !== null && has(pixels, pixel) ? { row, pixel } : null;
  }

  #keyed({ pixels, layout, columns }: Scene): { row: number; pixel: number } | null {
    if (this.#at?.by !== "keys" || !layout.rows.length) return null;
    const { iteration, name } = this.#at;
    // The row itself, or the module that it was folded into.
    let row = layout.rows.findIndex((each) => each.name === name || (each.folded && isInside(name, each.name)));
    if (row < 0) row = Math.min(this.#at.row, layout.rows.length - 1);
    const edge = ((iteration - pixels.extent.start) * pixels.width) / pixels.extent.span;
    // The pixel that an iteration begins in is its own or, after rounding, still the one before's.
    const pixel = [Math.floor(edge), Math.round(edge)].find(
      (x) => has(pixels, x) && columns.start[pixels.first[x]!]! <= iteration && iteration < columns.stop[pixels.last[x]!]!,
    );
    return pixel === undefined ? null : { row, pixel };
  }

  #show(scene: Scene, row: number, pixel: number): void {
    const { store, layout, columns, pixels, dpr } = scene;
    const [first, last] = [pixels.first[pixel]!, pixels.last[pixel]!];
    const chips = row === LOSS ? scene.lossChips : scene.chipsOf(row);
    const chip = chips.find((c) => c.glyph && c.right - c.left > c.to - c.from && pixel >= c.from && pixel < c.to);
    // A chip stands for its cells: box the chip, or the box would hide its glyph.
    const [from, to] = chip ? [chip.left, chip.right] : around(pixels, pixel);
    const [start, stop] = [columns.start[first]!, columns.stop[last]!];
    const when = { start, stop, firstEpoch: store.epochOf(start), lastEpoch: store.epochOf(stop - 1) };
    const isLoss = row === LOSS;
    const description = isLoss ? describeLoss(mergeCell(scene.lossLane, first, last), when) : this.#describe(scene, layout.rows[row]!, first, last, when);
    // The cell under the pointer may lie under the mark of another: say what that mark stands for.
    const cover = coveredBy(chips, pixel);
    if (cover) {
      const iterations = [columns.start[pixels.first[cover.from]!]!, columns.stop[pixels.last[cover.to - 1]!]!] as const;
      description.flags.push(`beside: ${wordOf(cover.look)} at ${format.iterations(...iterations)}`);
    }

    const middle = (from + to) / 2 / dpr;
    const { root, lanes, plot, lossLane } = this.places;
    const plotBox = plot.getBoundingClientRect();
    const rootBox = root.getBoundingClientRect();
    this.#line.style.left = `${plotBox.left - lanes.getBoundingClientRect().left + middle}px`;
    this.#line.hidden = false;
    // The line stops short of the cell, which is to be seen.
    const hole = isLoss ? -1 : plotBox.top - lanes.getBoundingClientRect().top + layout.rows[row]!.top;
    this.#line.style.setProperty("--gv-hole", `${hole}px`);
    this.#rowBox.hidden = this.#cellBox.hidden = isLoss;
    const top = isLoss ? 0 : layout.rows[row]!.top;
    this.#rowBox.style.top = `${top}px`;
    const width = Math.max(3, (to - from) / dpr);
    this.#cellBox.style.cssText = `top:${top}px;left:${middle - width / 2}px;width:${width}px`;
    this.#shown = { row, pixel };

    const x = plotBox.left - rootBox.left + middle;
    const y = isLoss ? lossLane.getBoundingClientRect().bottom - rootBox.top - 8 : plotBox.top - rootBox.top + top + PITCH / 2;
    this.#tooltip.show(description, x, y, root);
    if (this.#at?.by === "keys") this.#say(description);
  }

  #describe({ store, quantity, columns, laneOf: lane }: Scene, row: Row, first: number, last: number, when: When): Description {
    const cell = mergeCell(lane(row), first, last);
    if (!row.folded) return describeParameter(store.parameters[row.members[0]!]!, cell, when, quantity);
    const inside = row.members.map((place) => ({ name: store.parameters[place]!.name, cell: mergeCell(laneOf(columns, place), first, last) }));
    return describeFold(row.name, inside, cell, when, quantity);
  }

  /** Only what keys look at is spoken, once they rest: a moving mouse would never stop talking. */
  #say(description: Description): void {
    clearTimeout(this.#speak);
    this.#speak = setTimeout(() => setText(this.#live, sentence(description)), 150);
  }

  get #here(): Shown | null {
    return this.#shown && { row: this.#shown.row, iteration: this.iteration! };
  }

  #onKey(event: KeyboardEvent): void {
    if (!this.#scene || event.ctrlKey || event.metaKey || event.altKey) return;
    const { key } = event;
    if (key === "Escape") {
      if (!this.#at) return this.commands.deselect();
      this.clear();
    } else if (key === " ") {
      if (!this.#shown || this.#shown.row === LOSS) return;
      this.commands.fold(this.#shown.row);
    } else if (key === "Enter") {
      this.togglePin();
    } else {
      const next = this.#step(key, this.#scene);
      if (!next) return;
      this.#anchor = event.shiftKey ? (this.#anchor ?? this.#here) : null;
      this.#at = { by: "keys", ...next, name: this.#scene.layout.rows[next.row]!.name };
      this.#refresh();
      this.#reveal(next.row);
      if (this.#anchor) this.commands.selectTo(next.row, next.iteration, this.#anchor);
    }
    event.preventDefault();
    event.stopPropagation();
  }

  #step(key: string, { layout, pixels, columns }: Scene): { row: number; iteration: number } | null {
    const moves: Record<string, [number, number]> = {
      ArrowLeft: [0, -1],
      ArrowRight: [0, 1],
      ArrowUp: [-1, 0],
      ArrowDown: [1, 0],
      PageUp: [-10, 0],
      PageDown: [10, 0],
      Home: [0, -Infinity],
      End: [0, Infinity],
    };
    const move = moves[key];
    if (!move || !layout.rows.length || pixels.end === 0) return null;
    const [down, right] = move;
    // The first key brings the crosshair to the newest cell.
    const here = this.#shown ?? { row: 0, pixel: pixels.end - 1 };
    const row = this.#shown ? Math.max(0, Math.min(layout.rows.length - 1, here.row + down)) : 0;
    let pixel = here.pixel;
    if (right === -Infinity) pixel = nextCell(pixels, -1, 1) ?? pixel;
    else if (right === Infinity) pixel = pixels.end - 1;
    else if (right && this.#shown) pixel = nextCell(pixels, pixel, right) ?? pixel;
    return { row, iteration: iterationAt(pixels, columns, pixel) };
  }

  /** Scroll the lanes, not the page, so that the row is in view. */
  #reveal(row: number): void {
    const { scroll } = this.places;
    const top = this.#scene?.layout.rows[row]?.top ?? 0;
    if (top < scroll.scrollTop) scroll.scrollTop = top - PITCH;
    else if (top + PITCH > scroll.scrollTop + scroll.clientHeight) scroll.scrollTop = top + 2 * PITCH - scroll.clientHeight;
  }
}

const has = (pixels: Pixels, pixel: number): boolean => pixel >= 0 && pixel < pixels.end && pixels.first[pixel]! <= pixels.last[pixel]!;

const same = (pixels: Pixels, a: number, b: number): boolean => pixels.first[a] === pixels.first[b] && pixels.last[a] === pixels.last[b];

/** The pixels [from, to) that show the same columns as this one. */
function around(pixels: Pixels, pixel: number): [number, number] {
  let from = pixel;
  let to = pixel + 1;
  while (from > 0 && same(pixels, from - 1, pixel)) from -= 1;
  while (to < pixels.end && same(pixels, to, pixel)) to += 1;
  return [from, to];
}

function nextCell(pixels: Pixels, pixel: number, direction: number): number | null {
  let x = pixel + direction;
  while (x >= 0 && x < pixels.end && (!has(pixels, x) || (pixel >= 0 && same(pixels, x, pixel)))) x += direction;
  return has(pixels, x) ? x : null;
}

/** An iteration that leads back to this pixel's cell. */
function iterationAt(pixels: Pixels, columns: Columns, pixel: number): number {
  const start = columns.start[pixels.first[pixel]!]!;
  const { extent, width } = pixels;
  const inside = Math.ceil(extent.start + (pixel * extent.span) / width);
  return Math.max(start, Math.min(inside, columns.stop[pixels.last[pixel]!]! - 1));
}
