// The tooltip: beside the pointer, inside the widget's box (an output area clips what leaves it).
import { element, setLine, UNSPOKEN } from "./element";

export interface Description {
  title: string;
  /** What it is: shape and dtype, for example. */
  kind: string;
  /** Iterations and epochs. */
  when: string;
  value: string;
  flags: string[];
}

/** Css pixels between the pointer and the tooltip, and between the tooltip and the widget's edge. */
const AWAY = 14;
const EDGE = 2;

export interface Tooltip {
  element: HTMLElement;
  /** Show beside (x, y), both in the coordinates of `box`. */
  show(description: Description, x: number, y: number, box: HTMLElement): void;
  hide(): void;
}

export function tooltip(): Tooltip {
  const title = element("div", "gv-tooltip-title");
  const [kind, when] = [element("div", "gv-tooltip-muted"), element("div", "gv-tooltip-muted")];
  const value = element("div", "gv-tooltip-value");
  const flags = element("div", "gv-tooltip-flags");
  // The live region speaks; the tooltip itself would say everything twice.
  const made = element("div", "gv-tooltip", UNSPOKEN, title, kind, when, value, flags);
  const hide = (): void => {
    made.hidden = true;
  };
  hide();

  return {
    element: made,
    hide,

    show(description, x, y, box) {
      setLine(title, description.title);
      setLine(kind, description.kind);
      setLine(when, description.when);
      setLine(value, description.value);
      flags.replaceChildren(...description.flags.map((flag) => element("div", "", {}, flag)));
      flags.hidden = !description.flags.length;
      const { style } = made;
      style.maxWidth = `${Math.min(320, box.clientWidth - 2 * EDGE)}px`;
      style.left = style.top = "0";
      made.hidden = false;
      const { offsetWidth: width, offsetHeight: height } = made;
      style.left = `${beside(x, width, box.clientWidth)}px`;
      style.top = `${beside(y, height, box.clientHeight)}px`;
    },
  };
}

/** After the pointer if it fits, else before it, else at the edge. */
export function beside(at: number, size: number, room: number): number {
  if (at + AWAY + size <= room - EDGE) return at + AWAY;
  if (at - AWAY - size >= EDGE) return at - AWAY - size;
  return Math.max(EDGE, Math.min(room - EDGE - size, at + AWAY));
}
