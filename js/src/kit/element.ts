// Making and updating DOM elements. Text is always textContent: names are data, never markup.

/** Of what a screen reader leaves out. */
export const UNSPOKEN = { "aria-hidden": "true" };

export function element<K extends keyof HTMLElementTagNameMap>(
  tag: K,
  className: string,
  attributes: Record<string, string> = {},
  ...children: (Node | string)[]
): HTMLElementTagNameMap[K] {
  const made = document.createElement(tag);
  made.className = className;
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

/** Set text only where it differs: a selection or a screen reader's place survives. */
export function setText(target: Node, text: string): void {
  if (target.textContent !== text) target.textContent = text;
}

/** A line that is not there while it has nothing to say. */
export function setLine(target: HTMLElement, text: string | null): void {
  target.hidden = !text;
  setText(target, text ?? "");
}

/** Where something is on the screen, in css pixels. */
export const boxOf = (target: Element | Range): DOMRect => target.getBoundingClientRect();
