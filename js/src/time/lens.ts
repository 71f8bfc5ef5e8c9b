// Which part of the run a view looks at, and how wheel, hand and keys change that.
import { boxOf } from "../kit/element";
import type { Extent, Zoom } from "../kit/extent";
import { extentOf, panned, wholeOf, zoomed } from "../kit/extent";
import { listen } from "../kit/listen";

/** A notch of the wheel is 100 of these: it halves what is seen in about four. */
const PER_PIXEL = 0.0018;
const LINE = 16;
/** Iterations of a tail: as many as have so many pixels each. */
const TAIL_WIDTH = 4;

export class Lens {
  zoom: Zoom = { kind: "whole" };
  extent: Extent = { start: 0, span: 1 };
  whole: Extent = this.extent;
  /** Css pixels that the extent is seen on. */
  width = 1;
  #newest = 0;

  constructor(private readonly onChange: () => void) {}

  update(newest: number, planned: number | null, width: number): void {
    this.#newest = newest;
    this.width = width;
    this.whole = wholeOf(newest, planned);
    this.extent = extentOf(this.zoom, newest, this.whole);
  }

  to(zoom: Zoom): void {
    this.zoom = zoom;
    this.extent = extentOf(zoom, this.#newest, this.whole);
    this.onChange();
  }

  toAll(): void {
    this.to({ kind: "whole" });
  }

  toTail(): void {
    this.to({ kind: "tail", span: Math.max(32, Math.floor(this.width / TAIL_WIDTH)) });
  }

  /** About an iteration; without one, about the newest in view, or the middle of a part. */
  by(factor: number, about: number | null): void {
    const { start, span } = this.#current;
    const middle = this.zoom.kind === "part" ? start + span / 2 : Math.min(this.#newest, start + span);
    this.to(zoomed(this.#current, factor, about ?? middle, this.whole));
  }

  /** By so many css pixels. */
  pan(pixels: number, from: Extent = this.#current): void {
    this.to(panned(from, (pixels * from.span) / this.width, this.whole));
  }

  /** The iteration that lies so many css pixels from the left edge. */
  at(pixels: number): number {
    return this.extent.start + (pixels / this.width) * this.extent.span;
  }

  get isWhole(): boolean {
    return this.extent.span >= this.whole.span;
  }

  /** Small steps add up: what is in view before it is rounded to iterations. */
  get #current(): Extent {
    return this.zoom.kind === "part" ? this.zoom : this.extent;
  }

  /** The page scrolls as ever: only Ctrl or ⌘ with the wheel zooms, and only sideways scrolling pans. */
  followWheel(target: HTMLElement, lane: HTMLElement, signal: AbortSignal): void {
    const onWheel = (event: WheelEvent): void => {
      const unit = event.deltaMode === WheelEvent.DOM_DELTA_LINE ? LINE : 1;
      const sideways = event.shiftKey ? event.deltaX || event.deltaY : event.deltaX;
      if (event.ctrlKey || event.metaKey) {
        this.by(Math.exp(event.deltaY * unit * PER_PIXEL), this.at(event.clientX - boxOf(lane).left));
      } else if (!this.isWhole && (event.shiftKey || Math.abs(sideways) > Math.abs(event.deltaY))) {
        this.pan(sideways * unit);
      } else return;
      event.preventDefault();
    };
    listen(target, "wheel", onWheel, { signal, passive: false });
  }

  /** `about`: the iteration that is looked at. */
  followKeys(target: HTMLElement, about: () => number | null, signal: AbortSignal): void {
    const acts: Record<string, () => void> = {
      "+": () => this.by(1 / 2, about()),
      "=": () => this.by(1 / 2, about()),
      "-": () => this.by(2, about()),
      0: () => this.toAll(),
      t: () => this.toTail(),
    };
    const onKey = (event: KeyboardEvent): void => {
      const act = acts[event.key];
      if (!act || event.ctrlKey || event.metaKey || event.altKey) return;
      act();
      event.preventDefault();
      event.stopPropagation();
    };
    listen(target, "keydown", onKey, { signal });
  }
}
