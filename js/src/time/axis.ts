// The two rulers under the heatmap: epochs and iterations.
import { element, UNSPOKEN } from "../kit/element";
import type { Extent } from "../kit/extent";
import type { Tick } from "../kit/ticks";
import { epochTicks, iterationTicks } from "../kit/ticks";

export class Axis {
  readonly element = element("div", "gv-axis", UNSPOKEN);
  #drawn = "";

  update(epochs: readonly number[], firstEpoch: number, extent: Extent, width: number, measure: (text: string) => number): void {
    const key = [epochs.length, epochs.at(-1), firstEpoch, extent.start, extent.span, width].join();
    if (key === this.#drawn) return;
    this.#drawn = key;
    this.element.replaceChildren(
      ...epochTicks(epochs, firstEpoch, extent, width, measure).flatMap((tick) => [mark(tick), ...words(tick, "gv-epoch-tick")]),
      ...iterationTicks(extent, width, measure).flatMap((tick) => words(tick, "gv-iteration-tick")),
    );
  }
}

function mark({ x }: Tick): HTMLElement {
  const tick = element("i", "gv-epoch-tick");
  tick.style.left = `${Math.round(x)}px`;
  return tick;
}

function words({ label, left }: Tick, className: string): HTMLElement[] {
  const text = element("span", className, {}, label);
  text.style.left = `${left}px`;
  return label ? [text] : [];
}
