// Which iterations are in view: the whole run, the newest ones, or a part that was zoomed into.

/** The iterations from the left edge to the right one. */
export interface Extent {
  start: number;
  span: number;
}

/** What is looked at. A part may begin at fractions of an iteration: many small steps add up. */
export type Zoom = { kind: "whole" } | { kind: "tail"; span: number } | ({ kind: "part" } & Extent);

/** Nobody wants to see less. */
export const NARROWEST = 8;

/** All iterations: what is planned, or else the next power of two. */
export function wholeOf(newest: number, planned: number | null): Extent {
  if (planned !== null && planned > 0) return { start: 0, span: Math.max(planned, newest) };
  return { start: 0, span: 2 ** Math.ceil(Math.log2(Math.max(64, newest))) };
}

export function extentOf(zoom: Zoom, newest: number, whole: Extent): Extent {
  if (zoom.kind === "whole") return whole;
  if (zoom.kind === "part") return inside({ start: Math.round(zoom.start), span: Math.round(zoom.span) }, whole);
  const span = Math.min(zoom.span, whole.span);
  return { start: Math.max(0, newest - span), span };
}

function inside({ start, span }: Extent, whole: Extent): Extent {
  const fits = Math.min(span, whole.span);
  return { start: Math.max(0, Math.min(start, whole.span - fits)), span: fits };
}

/** `factor` times as many iterations, of which this one stays where it is. */
export function zoomed(extent: Extent, factor: number, about: number, whole: Extent): Zoom {
  const span = Math.max(Math.min(NARROWEST, whole.span), extent.span * factor);
  if (span >= whole.span) return { kind: "whole" };
  const share = (about - extent.start) / extent.span;
  return { kind: "part", ...inside({ start: about - share * span, span }, whole) };
}

export function panned({ start, span }: Extent, by: number, whole: Extent): Zoom {
  if (span >= whole.span) return { kind: "whole" };
  return { kind: "part", ...inside({ start: start + by, span }, whole) };
}

/** These iterations, from the first to the last; never fewer than fit. */
export function part(start: number, stop: number, whole: Extent): Zoom {
  const span = Math.max(stop - start, Math.min(NARROWEST, whole.span));
  return span >= whole.span ? { kind: "whole" } : { kind: "part", ...inside({ start: (start + stop - span) / 2, span }, whole) };
}
