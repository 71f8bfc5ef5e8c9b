// The strip below the rulers: which part of the run is in view. Dragging it moves on.
import { element } from "./element";
import type { Extent } from "./extent";
import { panned } from "./extent";
import type { Zoomable } from "./gestures";
import { onDrag } from "./gestures";

/** A part of a long run would be too small to take hold of. */
const SMALLEST = 24;

export class Rangebar {
  private readonly thumb = element("i", "");
  readonly element = element("div", "gv-range", { "aria-hidden": "true" }, this.thumb);

  constructor(picture: Zoomable, signal: AbortSignal) {
    const drag = (from: PointerEvent): ((event: PointerEvent) => void) => {
      const { extent, whole } = picture;
      const perPixel = whole.span / this.element.clientWidth;
      return (event) => picture.zoomTo(panned(extent, (event.clientX - from.clientX) * perPixel, whole));
    };
    onDrag(this.thumb, drag, signal);
  }

  update(extent: Extent, whole: Extent): void {
    const width = this.element.clientWidth;
    const size = Math.max(SMALLEST, (extent.span / whole.span) * width);
    const share = whole.span > extent.span ? extent.start / (whole.span - extent.span) : 0;
    this.thumb.style.left = `${share * (width - size)}px`;
    this.thumb.style.width = `${size}px`;
    // Its place is kept: nothing moves when it comes.
    this.element.style.visibility = extent.span < whole.span ? "" : "hidden";
  }
}
