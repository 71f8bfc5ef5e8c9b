// The strip below the rulers: which part of the run is in view. Dragging it moves on.
import { onDrag } from "../kit/drag";
import { element, UNSPOKEN } from "../kit/element";
import type { Lens } from "./lens";

/** A part of a long run would be too small to take hold of. */
const SMALLEST = 24;

export class Rangebar {
  readonly #thumb = element("i", "");
  readonly element = element("div", "gv-range", UNSPOKEN, this.#thumb);

  constructor(
    private readonly lens: Lens,
    signal: AbortSignal,
  ) {
    onDrag(
      this.#thumb,
      (down) => {
        const { extent, whole } = lens;
        return { move: (event) => lens.pan(((event.clientX - down.clientX) * whole.span) / extent.span, extent) };
      },
      signal,
    );
  }

  update(): void {
    const { extent, whole, isWhole } = this.lens;
    // Widths are left to the style sheet: to read one here would lay out the page once more.
    const size = `max(${SMALLEST}px, ${(100 * extent.span) / whole.span}%)`;
    const share = isWhole ? 0 : extent.start / (whole.span - extent.span);
    this.#thumb.style.left = `calc(${share} * (100% - ${size}))`;
    this.#thumb.style.width = size;
    // Its place is kept: nothing moves when it comes.
    this.element.style.visibility = isWhole ? "hidden" : "";
  }
}
