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

export class Tooltip {
  readonly #title = element("div", "gv-tooltip-title");
  readonly #kind = element("div", "gv-tooltip-muted");
  readonly #when = element("div", "gv-tooltip-muted");
  readonly #value = element("div", "gv-tooltip-value");
  readonly #flags = element("div", "gv-tooltip-flags");
  // The live region speaks; the tooltip itself would say everything twice.
  readonly element = element("div", "gv-tooltip", UNSPOKEN, this.#title, this.#kind, this.#when, this.#value, this.#flags);

  constructor() {
    this.element.hidden = true;
  }

  /** Show beside (x, y), both in the coordinates of `box`. */
  show(description: Description, x: number, y: number, box: HTMLElement): void {
    setLine(this.#title, description.title);
    setLine(this.#kind, description.kind);
    setLine(this.#when, description.when);
    setLine(this.#value, description.value);
    this.#flags.replaceChildren(...description.flags.map((flag) => element("div", "", {}, flag)));
    this.#flags.hidden = !description.flags.length;
    const { style } = this.element;
    style.maxWidth = `${Math.min(320, box.clientWidth - 2 * EDGE)}px`;
    style.left = style.top = "0";
    this.element.hidden = false;
    const { offsetWidth: width, offsetHeight: height } = this.element;
    style.left = `${beside(x, width, box.clientWidth)}px`;
    style.top = `${beside(y, height, box.clientHeight)}px`;
  }

  hide(): void {
    this.element.hidden = true;
  }
}

/** After the pointer if it fits, else before it, else at the edge. */
export function beside(at: number, size: number, room: number): number {
  if (at + AWAY + size <= room - EDGE) return at + AWAY;
  if (at - AWAY - size >= EDGE) return at - AWAY - size;
  return Math.max(EDGE, Math.min(room - EDGE - size, at + AWAY));
}
