// The controls above the picture. What they do: view.ts.
import { button, enable, group, press } from "../kit/buttons";
import { element, setText } from "../kit/element";
import { NARROWEST } from "../kit/extent";
import * as format from "../kit/format";
import type { Lens } from "../time/lens";
import type { Modules } from "../rows/modules";
import type { Order } from "../rows/order";
import type { Choice, Source } from "../data/source";
import type { Selection } from "../data/selection";
import type { Offer, Offers } from "../data/store";
import { listen } from "../kit/listen";

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
  choose(choice: Partial<Choice>): void;
  /** Show what is selected as large as can be, or select nothing. */
  zoomToSelection(): void;
  deselect(): void;
}

const ORDERS: Record<Order, string> = {
  declaration: "as declared",
  norm: "largest first",
  change: "most changed first",
};

export class Toolbar {
  readonly element: HTMLElement;
  readonly #choices: readonly ReturnType<typeof choices>[];
  readonly #fold: HTMLButtonElement;
  readonly #unfold: HTMLButtonElement;
  readonly #in: HTMLButtonElement;
  readonly #out: HTMLButtonElement;
  readonly #whole: HTMLButtonElement;
  readonly #tail: HTMLButtonElement;
  readonly #selected = element("span", "gv-selected-words");
  /** Stands below the picture: nothing moves while it comes. */
  readonly selection: HTMLElement;
  readonly #orders: readonly (readonly [Order, HTMLButtonElement])[];

  /** `more` stands at the end. */
  constructor(commands: Commands, offers: Offers, more: HTMLElement) {
    this.#fold = button("fold", "fold modules", () => commands.deeper(-1));
    this.#unfold = button("unfold", "open modules", () => commands.deeper(1));
    this.#in = button("in", "zoom in (+, or Ctrl and wheel)", () => commands.zoom(1 / STEP));
    this.#out = button("out", "zoom out (−)", () => commands.zoom(STEP));
    this.#whole = button("whole", "show the whole run (0)", () => commands.showAll());
    this.#tail = button("tail", "follow the newest iterations (t)", () => commands.showTail());
    this.#orders = (Object.keys(ORDERS) as Order[]).map((order) => [order, button(order, `rows: ${ORDERS[order]}`, () => commands.sort(order))]);
    const filter = element("input", "gv-filter", { type: "search", placeholder: "filter parameters", "aria-label": "filter parameters by words in their names", spellcheck: "false" });
    listen(filter, "input", () => commands.filter(filter.value));
    this.#choices = [choices("statistic", offers.statistics, commands), choices("stage", offers.stages, commands)];
    this.selection = group(
      "selection",
      this.#selected,
      button("in", "zoom to the selection", () => commands.zoomToSelection()),
      button("clear", "select nothing (Escape)", () => commands.deselect()),
    );
    this.element = element(
      "div",
      "gv-tools",
      { role: "toolbar", "aria-label": "heatmap" },
      ...this.#choices.map((choice) => choice.group),
      filter,
      group("order of rows", ...this.#orders.map(([, each]) => each)),
      group("modules", this.#fold, this.#unfold),
      group("iterations", this.#out, this.#in, this.#whole, this.#tail),
      more,
    );
  }

  updateRows({ isDeepest, isShallowest }: Modules, current: Order): void {
    enable(this.#fold, !isShallowest);
    enable(this.#unfold, !isDeepest);
    for (const [order, each] of this.#orders) press(each, order === current);
  }

  /** `stages`: those of which there are rows. */
  updateChoice({ choice }: Source, stages: readonly string[]): void {
    for (const { key, buttons, group: box } of this.#choices) {
      const shown = buttons.filter(({ each, name, needs }) => {
        press(each, name === choice[key]);
        return !(each.hidden = !needs.every((stage) => stages.includes(stage)));
      });
      box.hidden = shown.length < 2;
    }
  }

  updateSelection(selection: Selection | null): void {
    this.selection.hidden = !selection;
    if (!selection) return;
    const { parameters, iterations } = selection;
    setText(this.#selected, `${format.many(parameters.length, "parameter")}, ${format.iterations(...iterations)}`);
  }

  updateZoom({ zoom, extent, isWhole }: Lens): void {
    enable(this.#in, extent.span > NARROWEST);
    enable(this.#out, !isWhole);
    press(this.#whole, zoom.kind === "whole");
    press(this.#tail, zoom.kind === "tail");
  }
}

function choices(key: keyof Choice, offers: readonly Offer[], commands: Commands) {
  const buttons = offers.map(([name, word, title, needs]) => {
    const each = element("button", "gv-button", { type: "button", title }, word);
    listen(each, "click", () => commands.choose({ [key]: name }));
    return { name, needs, each };
  });
  return { key, buttons, group: group(key, ...buttons.map(({ each }) => each)) };
}
