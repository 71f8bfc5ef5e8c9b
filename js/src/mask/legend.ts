// The marks in words.
import { element } from "../kit/element";
import { resize } from "../kit/surface";
import type { Ink } from "./ink";
import { State, STATES } from "./state";

const KEY = { width: 20, height: 12 };

export class Legend {
  readonly #keys = [
    ...STATES.slice(0, 1),
    { bit: State.trained | State.frozen, word: "", meaning: "partly", always: true },
    ...STATES.slice(1),
  ].map((entry) => {
    const swatch = element("canvas", "", { "aria-hidden": "true" });
    return { ...entry, swatch, element: element("span", "gv-key", {}, swatch, entry.meaning) };
  });
  readonly element = element("div", "gv-foot", {}, ...this.#keys.map((key) => key.element));

  paint(ink: Ink, dpr: number): void {
    const [width, height] = [Math.round(KEY.width * dpr), Math.round(KEY.height * dpr)];
    for (const { swatch, bit } of this.#keys) {
      resize(swatch, width, height, dpr);
      const x = swatch.getContext("2d")!;
      x.clearRect(0, 0, width, height);
      ink.paint(x, bit, 0, width, 0, height);
    }
  }

  /** `seen`: every state that there was. */
  update(seen: number): void {
    for (const key of this.#keys) key.element.hidden = !(key.always || seen & key.bit);
  }
}
