// The controls that choose which rows are shown, and in which order.
import { button, enable, group, press } from "../kit/buttons";
import { element } from "../kit/element";
import { listen } from "../kit/listen";
import type { Modules } from "./modules";

export interface RowCommands<Order extends string> {
  /** Open modules one level deeper, or fold them one level more. */
  deeper(by: 1 | -1): void;
  /** Show the rows whose names hold these words. */
  filter(text: string): void;
  sort(order: Order): void;
}

export class Rowbar<Order extends string> {
  readonly #fold: HTMLButtonElement;
  readonly #unfold: HTMLButtonElement;
  readonly #orders: readonly HTMLButtonElement[];
  readonly parts: readonly HTMLElement[];

  /** `orders`: what the button of each says; it has the picture of that name. */
  constructor(commands: RowCommands<Order>, orders: Record<Order, string>) {
    this.#fold = button("fold", "fold modules", () => commands.deeper(-1));
    this.#unfold = button("unfold", "open modules", () => commands.deeper(1));
    this.#orders = (Object.keys(orders) as Order[]).map((order) => button(order, `rows: ${orders[order]}`, () => commands.sort(order)));
    const filter = element("input", "gv-filter", { type: "search", placeholder: "filter parameters", "aria-label": "filter parameters by words", spellcheck: "false" });
    listen(filter, "input", () => commands.filter(filter.value));
    this.parts = [filter, group("order of rows", ...this.#orders), group("modules", this.#fold, this.#unfold)];
  }

  update({ isDeepest, isShallowest }: Modules, current: Order): void {
    enable(this.#fold, !isShallowest);
    enable(this.#unfold, !isDeepest);
    for (const each of this.#orders) press(each, each.dataset.icon === current);
  }
}
