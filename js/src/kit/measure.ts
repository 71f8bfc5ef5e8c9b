// How wide a text is, in the fonts of labels, headers and the axis.
import { surface } from "./surface";

const FONTS = {
  name: "11.5px",
  header: "600 11.5px",
  axis: "11px",
} as const;

export type Font = keyof typeof FONTS;

export class Ruler {
  readonly #context = surface();
  readonly #sizes = new Map<string, number>();
  #family = "";

  /** Take the family that an element has; returns whether it is another one. */
  follow(target: Element): boolean {
    const family = getComputedStyle(target).fontFamily;
    const isOther = family !== this.#family;
    if (isOther) this.#sizes.clear();
    this.#family = family;
    return isOther;
  }

  measure = (text: string, font: Font = "name"): number => {
    const key = `${font} ${text}`;
    let size = this.#sizes.get(key);
    if (size === undefined) {
      this.#context.font = `${FONTS[font]} ${this.#family}`;
      size = this.#context.measureText(text).width;
      if (this.#sizes.size > 20000) this.#sizes.clear();
      this.#sizes.set(key, size);
    }
    return size;
  };
}
