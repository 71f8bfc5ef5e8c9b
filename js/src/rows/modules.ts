// Which rows the user has asked for: modules that are folded, names that are looked for, an order.
import { depthFor, depthOf, foldedAt, opened, unitsOf } from "./folds";
import type { Unit } from "./folds";
import { matcher } from "./order";
import type { Parameter } from "../data/store";

/** More rows than this are not seen at once. */
export const MANY_ROWS = 60;

export class Modules {
  #folded: ReadonlySet<string> = new Set();
  #parameters: readonly Parameter[] = [];
  #names: readonly string[] = [];
  #depth = Infinity;
  #deepest = 0;
  #touched = false;
  #text = "";
  /** What was folded before names were looked for. */
  #before: ReadonlySet<string> | null = null;

  /** Other parameters: a large model is folded as far as it takes, unless the user has said what to fold. */
  read(parameters: readonly Parameter[], most = MANY_ROWS): void {
    this.#parameters = parameters;
    this.#names = parameters.map((parameter) => parameter.name);
    this.#deepest = depthOf(this.#names);
    if (this.#touched) return;
    this.#depth = depthFor(parameters, most);
    this.#folded = foldedAt(this.#names, this.#depth);
  }

  get units(): Unit[] {
    const fits = matcher(this.#text);
    return unitsOf(this.#parameters, this.#folded, (place) => fits(this.#names[place]!));
  }

  /** Show the names that hold these words; few of them outside their folded modules. */
  filter(text: string): void {
    this.#text = text.trim();
    this.#before ??= this.#folded;
    this.#folded = this.#text && this.#names.filter(matcher(this.#text)).length <= MANY_ROWS ? new Set() : this.#before;
    if (!this.#text) this.#before = null;
  }

  fold(module: string): void {
    this.#touched = true;
    this.#folded = new Set([...this.#folded, module]);
  }

  open(module: string): void {
    this.#touched = true;
    this.#folded = opened(this.#names, this.#folded, module);
  }

  get isDeepest(): boolean {
    return !this.#folded.size;
  }

  get isShallowest(): boolean {
    return this.#deepest === 0 || (this.#depth <= 1 && this.#folded.size > 0);
  }

  /** Open everything one level deeper, or fold it one level more. */
  deeper(by: 1 | -1): void {
    this.#touched = true;
    const from = this.#folded.size ? Math.min(this.#depth, this.#deepest + 1) : this.#deepest + 1;
    this.#depth = Math.max(1, Math.min(from + by, this.#deepest + 1));
    this.#folded = foldedAt(this.#names, this.#depth);
  }
}
