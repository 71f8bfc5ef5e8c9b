// The controls above the picture. What they do: view.ts.
import { element } from "./element";
import type { Extent, Zoom } from "./extent";
import { NARROWEST } from "./extent";
import type { ICONS } from "./icons";
import { icon } from "./icons";

/** A press of a button or a key zooms so much. */
const STEP = 2;

export interface Commands {
  /** Open modules one level deeper, or fold them one level more. */
  deeper(by: 1 | -1): void;
  /** See so many times as many iterations. */
  zoom(factor: number): void;
  showAll(): void;
  showTail(): void;
}

export interface Possible {
  deeper: boolean;
  shallower: boolean;
}

export class Toolbar {
  private readonly fold: HTMLButtonElement;
  private readonly unfold: HTMLButtonElement;
  private readonly in: HTMLButtonElement;
  private readonly out: HTMLButtonElement;
  private readonly whole: HTMLButtonElement;
  private readonly tail: HTMLButtonElement;
  readonly element: HTMLElement;

  constructor(commands: Commands) {
    this.fold = button("fold", "fold modules", () => commands.deeper(-1));
    this.unfold = button("unfold", "open modules", () => commands.deeper(1));
    this.in = button("in", "zoom in (+, or Ctrl and wheel)", () => commands.zoom(1 / STEP));
    this.out = button("out", "zoom out (−)", () => commands.zoom(STEP));
    this.whole = button("whole", "show the whole run (0)", () => commands.showAll());
    this.tail = button("tail", "follow the newest iterations (t)", () => commands.showTail());
    this.element = element(
      "div",
      "gv-tools",
      { role: "toolbar", "aria-label": "heatmap" },
      group("rows", this.fold, this.unfold),
      group("iterations", this.out, this.in, this.whole, this.tail),
    );
  }

  updateRows(possible: Possible): void {
    enable(this.fold, possible.shallower);
    enable(this.unfold, possible.deeper);
  }

  updateZoom(kind: Zoom["kind"], extent: Extent, whole: Extent): void {
    enable(this.in, extent.span > NARROWEST);
    enable(this.out, extent.span < whole.span);
    this.whole.setAttribute("aria-pressed", String(kind === "whole"));
    this.tail.setAttribute("aria-pressed", String(kind === "tail"));
  }
}

function button(name: keyof typeof ICONS, label: string, act: () => void): HTMLButtonElement {
  const made = element("button", "gv-button", { type: "button", title: label, "aria-label": label });
  made.append(icon(name));
  made.addEventListener("click", act);
  return made;
}

/** Not `disabled`, which would take the focus away from under a finger that pressed it. */
function enable(target: HTMLElement, isPossible: boolean): void {
  target.setAttribute("aria-disabled", String(!isPossible));
}

const group = (label: string, ...parts: HTMLElement[]): HTMLElement => element("div", "gv-group", { role: "group", "aria-label": label }, ...parts);
