// The rows: names, sizes and buttons as elements, the lanes between them on one canvas; in a box that scrolls where
// there are many. Only the rows in view, and those that a little scrolling brings there, are there at all.
import type { Parameter } from "../data/feed";
import { element, setText } from "../kit/element";
import type { Extent } from "../kit/extent";
import * as format from "../kit/format";
import type { Ruler } from "../kit/measure";
import { resize } from "../kit/surface";
import { fitEnd } from "../rows/rows";
import type { Ink } from "./ink";
import type { Band } from "./lanes";
import { paintLane, stretches } from "./lanes";
import type { AllRuns } from "./runs";
import { inBytes, inThousands, sizeOf, total } from "./sizes";
import { State, words } from "./state";
import type { TreeRow } from "./tree";

/** Css pixels. */
export const PITCH = 24;
const LANE = 14;
const INDENT = 13;
const TRIANGLE = 14;
const OVERSCAN = 320;
/** More rows than this are not seen at once. */
export const MANY_ROWS = 26;

/** What a row can do now. */
export type Act = "freeze" | "unfreeze" | "wait" | null;

interface Shown {
  row: TreeRow;
  names: readonly string[];
  band: Band;
  box: HTMLElement;
  state: HTMLElement;
  act: HTMLButtonElement;
}

const ACTS = { freeze: "Freeze", unfreeze: "Unfreeze", wait: "waits …" } as const;

let plots = 0;

export class Plot {
  readonly canvas = element("canvas", "gv-mask-lanes", { "aria-hidden": "true" });
  readonly empty = element("span", "");
  readonly cells = element("div", "gv-plot", {}, this.canvas, element("div", "gv-empty", {}, this.empty));
  readonly #rows = element("div", "gv-mask-rows", { role: "rowgroup" });
  readonly scroll: HTMLElement;
  rows: readonly TreeRow[] = [];
  readonly #id = `gv-mask-${(plots += 1)}`;
  #first = 0;
  #shown: Shown[] = [];

  /** `onScroll`: other rows than those that are there have come into view. */
  constructor(
    private readonly ruler: Ruler,
    onScroll: () => void,
    signal: AbortSignal,
  ) {
    const body = element("div", "gv-mask-body gv-mask-columns", {}, this.#rows, this.cells);
    this.scroll = element("div", "gv-scroll", {}, body);
    const scrolled = (): void => {
      this.#hintAtMore();
      if (!this.#isThere) onScroll();
    };
    this.scroll.addEventListener("scroll", scrolled, { signal, passive: true });
  }

  layOut(rows: readonly TreeRow[]): void {
    this.rows = rows;
    this.scroll.classList.toggle("gv-scrolls", rows.length > MANY_ROWS);
    (this.scroll.firstChild as HTMLElement).style.height = `${Math.max(rows.length, 2) * PITCH}px`;
    this.#hintAtMore();
  }

  /** Css pixels that the names need, of all rows that there can be. */
  room(rows: readonly TreeRow[], available: number): number {
    const share = available < 560 ? 0.34 * available : Math.min(300, 0.3 * available);
    const needed = rows.map(({ label, depth, open }) => depth * INDENT + TRIANGLE + this.ruler.measure(label, open === null ? "name" : "header"));
    return Math.ceil(Math.max(84, Math.min(Math.max(0, ...needed) + 2, share)));
  }

  /** Take the rows that are in view now. */
  takeRows(parameters: readonly Parameter[], room: number, width: number, dpr: number): void {
    const [top, bottom] = [this.#top - OVERSCAN, this.#bottom + OVERSCAN];
    this.#first = Math.max(0, Math.floor(top / PITCH));
    const taken = this.rows.slice(this.#first, Math.ceil(bottom / PITCH));
    // On whole device pixels, wherever the rows begin.
    const device = (y: number): number => Math.round(y * dpr);
    const origin = device(this.#first * PITCH);
    const height = device(LANE);
    this.#shown = taken.map((row, i) => {
      const at = (this.#first + i) * PITCH;
      const state = element("span", "gv-live");
      const act = element("button", "gv-act", { type: "button", tabindex: "-1" }, element("i", "gv-icon"), element("span", ""));
      const box = this.#row(row, this.#first + i, parameters, room, state, act);
      const names = row.members.map((place) => parameters[place]!.name);
      return { row, names, band: { top: device(at + (PITCH - LANE) / 2) - origin, height }, box, state, act };
    });
    this.#rows.replaceChildren(...this.#shown.map(({ box }) => box));
    this.canvas.style.top = `${origin / dpr}px`;
    resize(this.canvas, width, Math.max(1, device((this.#first + taken.length) * PITCH) - origin), dpr);
  }

  #row({ name, label, depth, members, open }: TreeRow, index: number, parameters: readonly Parameter[], room: number, state: HTMLElement, act: HTMLElement): HTMLElement {
    const those = members.map((place) => parameters[place]!);
    const { entries, bytes } = total(those.map(sizeOf));
    const wide = room - depth * INDENT - TRIANGLE;
    const text = fitEnd(label, wide, (t) => this.ruler.measure(t, open === null ? "name" : "header"));
    const attributes = { type: "button", tabindex: "-1", "data-module": name, title: name, "aria-label": name, "aria-expanded": String(open) };
    const named = open === null ? element("span", "gv-mask-name", { title: name }, text) : element("button", "gv-block", attributes, element("i", "gv-triangle"), text);
    const cell = (className: string, ...inside: (Node | string)[]): HTMLElement => element("div", className, { role: "gridcell" }, ...inside);
    const first = cell("gv-mask-first", named);
    first.style.paddingLeft = `${depth * INDENT}px`;
    const size = cell("gv-mask-size", inThousands(entries));
    size.title = entries === null ? "size not known" : `${format.count(entries)} entries in ${format.many(members.length, "parameter")}`;
    const about = { role: "row", id: `${this.#id}-${index}`, "aria-level": String(depth + 1), "aria-rowindex": String(index + 2), "data-name": name, ...(open === null ? {} : { "aria-expanded": String(open) }) };
    const box = element("div", "gv-mask-row gv-mask-columns", about, first, size, cell("gv-mask-size gv-mask-bytes", inBytes(bytes)), cell("gv-mask-lane", state), cell("gv-mask-do", act));
    box.style.top = `${index * PITCH}px`;
    return box;
  }

  paint(runs: AllRuns, extent: Extent, width: number, ink: Ink): void {
    const x = this.canvas.getContext("2d")!;
    x.clearRect(0, 0, this.canvas.width, this.canvas.height);
    for (const { row, band } of this.#shown) paintLane(x, ink, stretches(runs.of(row.members), runs.end, extent, width), width, band);
  }

  /** Say what state each row has, and what its button does. */
  say(now: (row: TreeRow) => number, actOf: (row: TreeRow) => Act): void {
    for (const { row, state, act } of this.#shown) {
      const bits = now(row);
      setText(state, words(bits & ~State.not_recorded || bits));
      const does = actOf(row);
      act.hidden = !does;
      if (!does) continue;
      act.dataset.act = act.dataset.icon = does;
      act.setAttribute("aria-disabled", String(does === "wait"));
      act.setAttribute("aria-label", does === "wait" ? `waiting for an answer about ${row.name}` : `${ACTS[does]} ${row.name}`);
      act.title = ACTS[does];
      setText(act.lastElementChild as HTMLElement, ACTS[does]);
    }
  }

  /** The id of a row that is there. */
  idOf(index: number): string {
    return `${this.#id}-${index}`;
  }

  mark(current: number | null): void {
    this.#shown.forEach(({ box }, i) => box.classList.toggle("gv-current", this.#first + i === current));
  }

  /** The rows that are there, the names of their parameters, and their elements. */
  eachShown(act: (row: TreeRow, names: readonly string[], box: HTMLElement) => void): void {
    for (const { row, names, box } of this.#shown) act(row, names, box);
  }

  actAt(index: number): HTMLButtonElement | null {
    return this.#shown[index - this.#first]?.act ?? null;
  }

  /** Scroll the rows, not the page, so that this one is in view. */
  reveal(index: number): void {
    const { scroll } = this;
    if (index * PITCH < scroll.scrollTop) scroll.scrollTop = index * PITCH;
    else if ((index + 1) * PITCH > scroll.scrollTop + scroll.clientHeight) scroll.scrollTop = (index + 2) * PITCH - scroll.clientHeight;
  }

  get #scrolls(): boolean {
    return this.scroll.classList.contains("gv-scrolls");
  }

  get #top(): number {
    return this.#scrolls ? this.scroll.scrollTop : 0;
  }

  get #bottom(): number {
    return this.#scrolls ? this.scroll.scrollTop + this.scroll.clientHeight : this.rows.length * PITCH;
  }

  get #isThere(): boolean {
    return this.#first * PITCH <= this.#top && (this.#first + this.#shown.length) * PITCH >= Math.min(this.#bottom, this.rows.length * PITCH);
  }

  /** Rows out of sight above or below fade: some browsers hide the scroll bar. */
  #hintAtMore(): void {
    const { scroll } = this;
    scroll.classList.toggle("gv-above", this.#scrolls && scroll.scrollTop > 4);
    scroll.classList.toggle("gv-below", this.#scrolls && scroll.scrollTop + scroll.clientHeight < scroll.scrollHeight - 4);
  }
}
