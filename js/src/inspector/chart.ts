// The loss and the norm over one time axis. Pointing at it, dragging and the keys choose an iteration.
import { around, iterationAt, nextCell, pixelOf } from "../heatmap/cells";
import { LossPainter } from "../heatmap/loss";
import type { LossRange } from "../heatmap/loss";
import type { Marks } from "../heatmap/marks";
import type { Lane } from "../data/lanes";
import { laneOf, lossLane } from "../data/lanes";
import type { Pixels } from "../data/pixels";
import { placeColumns } from "../data/pixels";
import type { Columns } from "../data/wire";
import { onDrag } from "../kit/drag";
import { boxOf, element, UNSPOKEN } from "../kit/element";
import { listen } from "../kit/listen";
import { resize } from "../kit/surface";
import type { Theme } from "../kit/theme";
import type { Description } from "../kit/tooltip";
import { tooltip } from "../kit/tooltip";
import type { Lens } from "../time/lens";
import type { NormRange } from "./norm";
import { paintNorm } from "./norm";

/** Css pixels. */
const LOSS = 40;
const NORM = 92;

export interface Commands {
  /** Point at an iteration, or at none. */
  point(iteration: number | null): void;
  /** Stay at it. */
  choose(iteration: number): void;
}

export class Chart {
  readonly #lossCanvas = element("canvas", "gv-loss", { role: "img" });
  readonly #normCanvas = element("canvas", "gv-norm", { role: "img" });
  readonly #line = element("i", "gv-chart-line", UNSPOKEN);
  readonly #chosen = element("i", "gv-chart-chosen", UNSPOKEN);
  readonly #shade = element("i", "gv-chart-shade", UNSPOKEN);
  readonly #tooltip = tooltip();
  readonly #painter = new LossPainter(this.#lossCanvas);
  /** What the arrow keys move. */
  readonly element: HTMLElement;
  #columns: Columns | null = null;
  #pixels: Pixels | null = null;
  #dpr = 1;
  /** What is pointed at here, by pointer or by keys. */
  #here: number | null = null;

  constructor(
    private readonly lens: Lens,
    private readonly root: HTMLElement,
    private readonly commands: Commands,
    private readonly lossHead: HTMLElement,
    normHead: HTMLElement,
    signal: AbortSignal,
  ) {
    root.append(this.#tooltip.element);
    const lanes = [lossHead, this.#lossCanvas, normHead, this.#normCanvas];
    const chart = (this.element = element("div", "gv-chart", { tabindex: "0", role: "slider" }, this.#shade, this.#chosen, ...lanes, this.#line));
    const at = ({ clientX }: PointerEvent): void => this.#point(this.#iterationAt(clientX - boxOf(chart).left));
    const stay = (): void => {
      if (this.#here !== null) commands.choose(this.#here);
    };
    listen(chart, "pointermove", at, { signal });
    listen(chart, "pointerleave", () => this.#point(null), { signal });
    onDrag(chart, (down) => (at(down), { move: at, end: stay }), signal);
    listen(chart, "blur", () => this.#point(null), { signal });
    listen(chart, "keydown", (event) => this.#onKey(event, stay), { signal });
    lens.followWheel(chart, chart, signal);
    lens.followKeys(chart, () => this.#here, signal);
  }

  get here(): number | null {
    return this.#here;
  }

  /** `width` in device pixels. */
  resize(width: number, dpr: number): void {
    this.#dpr = dpr;
    resize(this.#lossCanvas, width, Math.round(LOSS * dpr), dpr);
    resize(this.#normCanvas, width, Math.round(NORM * dpr), dpr);
  }

  paint(columns: Columns, place: number, hasLoss: boolean, theme: Theme, marks: Marks): { loss: LossRange | null; norm: NormRange; lane: Lane } {
    const pixels = placeColumns(columns, this.lens.extent, this.#normCanvas.width);
    [this.#columns, this.#pixels] = [columns, pixels];
    const lane = laneOf(columns, place);
    this.#lossCanvas.hidden = this.lossHead.hidden = !hasLoss;
    const loss = this.#painter.paint(lossLane(columns), pixels, theme, marks, this.#dpr);
    const norm = paintNorm(this.#normCanvas, lane, pixels, theme, marks, this.#dpr);
    const { start, span } = this.lens.extent;
    Object.assign(this.#normCanvas.dataset, { iterations: columns.count ? columns.stop[columns.count - 1] : 0, start, span });
    return { loss, norm, lane };
  }

  say(loss: string, norm: string): void {
    this.#lossCanvas.setAttribute("aria-label", loss);
    this.#normCanvas.setAttribute("aria-label", norm);
  }

  /** Mark the iteration that is pointed at anywhere, the one that was chosen, and those that are selected. */
  mark(at: number | null, chosen: number | null, selected: readonly [number, number] | null): void {
    this.#put(this.#line, at);
    this.#put(this.#chosen, chosen);
    const { start, span } = this.lens.extent;
    const [from, to] = (selected ?? [0, 0]).map((iteration) => Math.max(0, Math.min(1, (iteration - start) / span))) as [number, number];
    this.#shade.hidden = from === to;
    this.#shade.style.cssText = `left:${100 * from}%;width:${100 * (to - from)}%`;
  }

  #put(line: HTMLElement, iteration: number | null): void {
    const [pixels, columns] = [this.#pixels!, this.#columns!];
    const pixel = iteration === null ? undefined : pixelOf(pixels, columns, iteration);
    line.hidden = pixel === undefined;
    if (pixel === undefined) return;
    const [from, to] = around(pixels, pixel);
    line.style.left = `${(from + to) / 2 / this.#dpr}px`;
  }

  /** The value of the slider in words, and beside the pointer where it is used. */
  tell(description: Description | null, at: number, end: number): void {
    const words = description ? [description.when, description.value, ...description.flags].filter(Boolean).join(", ") : "nothing recorded yet";
    for (const [name, value] of Object.entries({ valuemin: 0, valuemax: Math.max(0, end - 1), valuenow: at, valuetext: words })) this.element.setAttribute(`aria-${name}`, String(value));
    if (!description || this.#here === null) return this.#tooltip.hide();
    const [chart, root] = [boxOf(this.element), boxOf(this.root)];
    this.#tooltip.show({ ...description, title: "", kind: "" }, chart.left - root.left + parseFloat(this.#line.style.left), chart.bottom - root.top - 30, this.root);
  }

  #point(iteration: number | null): void {
    if (iteration === null && this.#here === null) return;
    this.#here = iteration;
    this.commands.point(iteration);
  }

  #iterationAt(x: number): number | null {
    const pixels = this.#pixels;
    if (!pixels?.end) return null;
    // Beyond the newest it is the newest: a hand that drags goes too far.
    let pixel = Math.max(0, Math.min(pixels.end - 1, Math.floor(x * this.#dpr)));
    while (pixel > 0 && pixels.first[pixel]! > pixels.last[pixel]!) pixel -= 1;
    return pixels.first[pixel]! > pixels.last[pixel]! ? null : iterationAt(pixels, this.#columns!, pixel);
  }

  #onKey(event: KeyboardEvent, stay: () => void): void {
    const { key, ctrlKey, metaKey, altKey } = event;
    const pixels = this.#pixels;
    if (ctrlKey || metaKey || altKey || !pixels?.end) return;
    const by = { ArrowLeft: -1, ArrowDown: -1, ArrowRight: 1, ArrowUp: 1, PageDown: -10, PageUp: 10, Home: -Infinity, End: Infinity }[key];
    if (key === "Escape" && this.#here !== null) this.#point(null);
    else if (key === "Enter") stay();
    else if (by !== undefined) this.#point(this.#stepped(pixels, by));
    else return;
    event.preventDefault();
    event.stopPropagation();
  }

  #stepped(pixels: Pixels, by: number): number {
    const columns = this.#columns!;
    const from = Number(this.element.getAttribute("aria-valuenow"));
    let pixel = pixelOf(pixels, columns, this.#here ?? from) ?? pixels.end - 1;
    if (Math.abs(by) === Infinity) pixel = by < 0 ? (nextCell(pixels, -1, 1) ?? pixel) : pixels.end - 1;
    else for (let i = 0; i < Math.abs(by); i++) pixel = nextCell(pixels, pixel, Math.sign(by)) ?? pixel;
    return iterationAt(pixels, columns, pixel);
  }
}
