// The controls above the picture. What they do: view.ts.
import { element } from "./element";
import type { ICONS } from "./icons";
import { icon } from "./icons";

export interface Commands {
  /** Open modules one level deeper, or fold them one level more. */
  deeper(by: 1 | -1): void;
}

export interface Possible {
  deeper: boolean;
  shallower: boolean;
}

export class Toolbar {
  private readonly fold: HTMLButtonElement;
  private readonly unfold: HTMLButtonElement;
  readonly element: HTMLElement;

  constructor(commands: Commands) {
    this.fold = button("fold", "fold modules", () => commands.deeper(-1));
    this.unfold = button("unfold", "open modules", () => commands.deeper(1));
    this.element = element("div", "gv-tools", { role: "toolbar", "aria-label": "heatmap" }, group("rows", this.fold, this.unfold));
  }

  update(possible: Possible): void {
    enable(this.fold, possible.shallower);
    enable(this.unfold, possible.deeper);
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
