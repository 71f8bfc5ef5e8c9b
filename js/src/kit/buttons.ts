// Buttons with a picture (the style sheet has it), and groups of them.
import { element } from "./element";
import { listen } from "./listen";

export function button(icon: string, label: string, act: () => void): HTMLButtonElement {
  const attributes = { type: "button", title: label, "aria-label": label, "data-icon": icon };
  const made = element("button", "gv-button", attributes, element("i", "gv-icon"));
  listen(made, "click", act);
  return made;
}

export const group = (label: string, ...parts: HTMLElement[]): HTMLElement => element("div", "gv-group", { role: "group", "aria-label": label }, ...parts);

/** Not `disabled`, which would take the focus away from under a finger that pressed it. */
export const enable = (target: HTMLElement, isPossible: boolean): void => target.setAttribute("aria-disabled", String(!isPossible));

export const press = (target: HTMLElement, isPressed: boolean): void => target.setAttribute("aria-pressed", String(isPressed));
