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

export interface Zoombar {
  element: HTMLElement;
  update(lens: Lens): void;
}

export function zoombar(commands: ZoomCommands): Zoombar {
  const closer = button("in", "zoom in (+, or Ctrl and wheel)", () => commands.zoom(1 / STEP));
  const further = button("out", "zoom out (−)", () => commands.zoom(STEP));
  const whole = button("whole", "show the whole run (0)", () => commands.showAll());
  const tail = button("tail", "follow the newest iterations (t)", () => commands.showTail());
  return {
    element: group("iterations", further, closer, whole, tail),

    update({ zoom, extent, isWhole }) {
      enable(closer, extent.span > NARROWEST);
      enable(further, !isWhole);
      press(whole, zoom.kind === "whole");
      press(tail, zoom.kind === "tail");
    },
  };
}
