// The buttons that choose which iterations are in view.
import { button, enable, group, press } from "../kit/buttons";
import { NARROWEST } from "../kit/extent";
import type { Lens } from "./lens";

/** A press of a button zooms so much. */
const STEP = 2;

export interface ZoomCommands {
  /** See so many times as many iterations. */
  zoom(factor: number): void;
  showAll(): void;
  showTail(): void;
}

export class Zoombar {
  readonly #in: HTMLButtonElement;
  readonly #out: HTMLButtonElement;
  readonly #whole: HTMLButtonElement;
  readonly #tail: HTMLButtonElement;
  readonly element: HTMLElement;

  constructor(commands: ZoomCommands) {
    this.#in = button("in", "zoom in (+, or Ctrl and wheel)", () => commands.zoom(1 / STEP));
    this.#out = button("out", "zoom out (−)", () => commands.zoom(STEP));
    this.#whole = button("whole", "show the whole run (0)", () => commands.showAll());
    this.#tail = button("tail", "follow the newest iterations (t)", () => commands.showTail());
    this.element = group("iterations", this.#out, this.#in, this.#whole, this.#tail);
  }

  update({ zoom, extent, isWhole }: Lens): void {
    enable(this.#in, extent.span > NARROWEST);
    enable(this.#out, !isWhole);
    press(this.#whole, zoom.kind === "whole");
    press(this.#tail, zoom.kind === "tail");
  }
}
