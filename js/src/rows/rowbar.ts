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

export interface Rowbar<Order extends string> {
  parts: readonly HTMLElement[];
  update(modules: Modules, current: Order): void;
}

/** `orders`: what the button of each says; it has the picture of that name. `of`: what a row is. */
export function rowbar<Order extends string>(commands: RowCommands<Order>, orders: Record<Order, string>, of: string): Rowbar<Order> {
  const fold = button("fold", "fold modules", () => commands.deeper(-1));
  const unfold = button("unfold", "open modules", () => commands.deeper(1));
  const buttons = (Object.keys(orders) as Order[]).map((order) => button(order, `rows: ${orders[order]}`, () => commands.sort(order)));
  const find = `filter ${of}s`;
  const filter = element("input", "gv-filter", { type: "search", placeholder: find, "aria-label": `${find} by words`, spellcheck: "false" });
  listen(filter, "input", () => commands.filter(filter.value));
  return {
    parts: [filter, group("order of rows", ...buttons), group("modules", fold, unfold)],

    update({ isDeepest, isShallowest }, current) {
      enable(fold, !isShallowest);
      enable(unfold, !isDeepest);
      for (const each of buttons) press(each, each.dataset.icon === current);
    },
  };
}
