// The controls above the picture. What they do: view.ts.
import { element } from "./element";
import { NARROWEST } from "./extent";
import type { ICONS } from "./icons";
import { icon } from "./icons";
import type { Lens } from "./lens";
import type { Modules } from "./modules";
import type { Order } from "./order";

/** A press of a button zooms so much. */
const STEP = 2;

export interface Commands {
  /** Open modules one level deeper, or fold them one level more. */
  deeper(by: 1 | -1): void;
  /** Show the rows whose names hold these words. */
  filter(text: string): void;
  sort(order: Order): void;
  /** See so many times as many iterations. */
  zoom(factor: number): void;
  showAll(): void;
  showTail(): void;
}

const ORDERS: Record<Order, string> = {
  declaration: "as declared",
  norm: "largest first",
  change: "most changed first",
};

export class Toolbar {
  readonly element: HTMLElement;
  private readonly fold: HTMLButtonElement;
  private readonly unfold: HTMLButtonElement;
  private readonly in: HTMLButtonElement;
  private readonly out: HTMLButtonElement;
  private readonly whole: HTMLButtonElement;
  private readonly tail: HTMLButtonElement;
  private readonly orders: readonly (readonly [Order, HTMLButtonElement])[];

  constructor(commands: Commands) {
    this.fold = button("fold", "fold modules", () => commands.deeper(-1));
    this.unfold = button("unfold", "open modules", () => commands.deeper(1));
    this.in = button("in", "zoom in (+, or Ctrl and wheel)", () => commands.zoom(1 / STEP));
    this.out = button("out", "zoom out (−)", () => commands.zoom(STEP));
    this.whole = button("whole", "show the whole run (0)", () => commands.showAll());
    this.tail = button("tail", "follow the newest iterations (t)", () => commands.showTail());
    this.orders = (Object.keys(ORDERS) as Order[]).map((order) => [order, button(order, `rows: ${ORDERS[order]}`, () => commands.sort(order))]);
    const filter = element("input", "gv-filter", { type: "search", placeholder: "filter parameters", "aria-label": "filter parameters by words in their names", spellcheck: "false" });
    filter.addEventListener("input", () => commands.filter(filter.value));
    this.element = element(
      "div",
      "gv-tools",
      { role: "toolbar", "aria-label": "heatmap" },
      filter,
      group("order of rows", ...this.orders.map(([, each]) => each)),
      group("modules", this.fold, this.unfold),
      group("iterations", this.out, this.in, this.whole, this.tail),
    );
  }

  updateRows({ isDeepest, isShallowest }: Modules, current: Order): void {
    enable(this.fold, !isShallowest);
    enable(this.unfold, !isDeepest);
    for (const [order, each] of this.orders) press(each, order === current);
  }

  updateZoom({ zoom, extent, isWhole }: Lens): void {
    enable(this.in, extent.span > NARROWEST);
    enable(this.out, !isWhole);
    press(this.whole, zoom.kind === "whole");
    press(this.tail, zoom.kind === "tail");
  }
}

function button(name: keyof typeof ICONS, label: string, act: () => void): HTMLButtonElement {
  const made = element("button", "gv-button", { type: "button", title: label, "aria-label": label });
  made.append(icon(name));
  made.addEventListener("click", act);
  return made;
}

/** Not `disabled`, which would take the focus away from under a finger that pressed it. */
const enable = (target: HTMLElement, isPossible: boolean): void => target.setAttribute("aria-disabled", String(!isPossible));

const press = (target: HTMLElement, isPressed: boolean): void => target.setAttribute("aria-pressed", String(isPressed));

const group = (label: string, ...parts: HTMLElement[]): HTMLElement => element("div", "gv-group", { role: "group", "aria-label": label }, ...parts);
