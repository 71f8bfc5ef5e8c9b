// Zooming and panning by wheel and by hand.
import type { Extent, Zoom } from "./extent";
import { panned, zoomed } from "./extent";

export interface Zoomable {
  /** What is in view, and all there is. */
  readonly extent: Extent;
  readonly whole: Extent;
  zoomTo(zoom: Zoom): void;
}

/** A notch of the wheel is 100 of these: it halves what is seen in about four. */
const PER_PIXEL = 0.0018;
const LINE = 16;

/** The page scrolls as ever: only Ctrl or ⌘ with the wheel zooms, and only sideways scrolling pans. */
export function zoomByWheel(target: HTMLElement, lane: HTMLElement, picture: Zoomable, signal: AbortSignal): void {
  const onWheel = (event: WheelEvent): void => {
    const { extent, whole } = picture;
    const unit = event.deltaMode === WheelEvent.DOM_DELTA_LINE ? LINE : 1;
    const box = lane.getBoundingClientRect();
    if (event.ctrlKey || event.metaKey) {
      const about = extent.start + ((event.clientX - box.left) / box.width) * extent.span;
      picture.zoomTo(zoomed(extent, Math.exp(event.deltaY * unit * PER_PIXEL), about, whole));
    } else {
      const sideways = event.deltaX || (event.shiftKey ? event.deltaY : 0);
      if (Math.abs(sideways) <= Math.abs(event.shiftKey ? 0 : event.deltaY) || extent.span >= whole.span) return;
      picture.zoomTo(panned(extent, (sideways * unit * extent.span) / box.width, whole));
    }
    event.preventDefault();
  };
  target.addEventListener("wheel", onWheel, { signal, passive: false });
}

/** Follow a pointer that is pressed on a target, wherever it goes: `move` gets how far it has gone, in css pixels. */
export function onDrag(target: HTMLElement, begin: (event: PointerEvent) => ((event: PointerEvent) => void) | null, signal: AbortSignal): void {
  const onDown = (event: PointerEvent): void => {
    if (event.button !== 0) return;
    const move = begin(event);
    if (!move) return;
    target.setPointerCapture(event.pointerId);
    const ends = new AbortController();
    target.addEventListener("pointermove", move, { signal: ends.signal });
    for (const end of ["pointerup", "pointercancel"] as const) target.addEventListener(end, () => ends.abort(), { signal: ends.signal });
  };
  target.addEventListener("pointerdown", onDown, { signal });
}
