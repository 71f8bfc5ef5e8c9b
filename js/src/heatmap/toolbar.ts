// The controls above the picture. What they do: view.ts.
import { button, group, press } from "../kit/buttons";
import { element, setText } from "../kit/element";
import * as format from "../kit/format";
import type { Zoombar, ZoomCommands } from "../time/zoombar";
import { zoombar } from "../time/zoombar";
import type { Order } from "../rows/order";
import type { Rowbar, RowCommands } from "../rows/rowbar";
import { rowbar } from "../rows/rowbar";
import type { Choice, Source } from "../data/source";
import type { Offer, Store } from "../data/store";
import { listen } from "../kit/listen";

export interface Commands extends RowCommands<Order>, ZoomCommands {
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
  readonly rows: Rowbar<Order>;
  readonly zoom: Zoombar;
  readonly #selected = element("span", "gv-selected-words");
  /** Stands below the picture: nothing moves while it comes. */
  readonly selection: HTMLElement;

  /** `more` stands at the end. */
  constructor(commands: Commands, { offers, quantity }: Store, more: HTMLElement) {
    this.rows = rowbar(commands, ORDERS, quantity.of);
    this.zoom = zoombar(commands);
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
      ...this.rows.parts,
      this.zoom.element,
      more,
    );
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

  updateSelection({ selection, quantity }: Store): void {
    this.selection.hidden = !selection;
    if (!selection) return;
    const { parameters, iterations } = selection;
    setText(this.#selected, `${format.many(parameters.length, quantity.of)}, ${format.iterations(...iterations)}`);
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
