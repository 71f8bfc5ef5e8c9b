// Taking what is shown elsewhere: as a picture, or as numbers.
import { button, group } from "../kit/buttons";
import { csv } from "./csv";
import { element, setLine } from "../kit/element";
import { messageOf } from "../kit/errors";
import type { Scene } from "./scene";
import { snap } from "../kit/snap";

/** Not in the picture: what is there to be pressed, where the crosshair is, and what only a screen reader reads. */
const LEFT_OUT = ".gv-tools, .gv-group, .gv-said, .gv-numbers, .gv-auto, .gv-triangle, .gv-tooltip, .gv-line, .gv-row-box, .gv-cell-box, .gv-live, .gv-probe";

export class Copy {
  /** Says what came of it. */
  readonly said = element("div", "gv-said", { role: "status" });
  readonly element: HTMLElement;

  /** `shown`: the widget's root and its picture, once it is painted. */
  constructor(private readonly shown: () => readonly [HTMLElement, Scene] | null) {
    this.said.hidden = true;
    this.element = group(
      "copy",
      button("png", "copy as PNG", () => this.#copy("image/png", "gradients.png", (root) => pngOf(snap(root, LEFT_OUT)))),
      // What is copied as text/csv no browser takes.
      button("csv", "copy as CSV", () => this.#copy("text/plain", "gradients.csv", async (_, scene) => new Blob([csv(scene)], { type: "text/plain" }))),
    );
  }

  async #copy(type: string, name: string, make: (root: HTMLElement, scene: Scene) => Promise<Blob>): Promise<void> {
    const shown = this.shown();
    if (!shown) return;
    try {
      const made = make(...shown);
      try {
        // The promise and not the blob: some browsers let nobody write who has waited.
        await navigator.clipboard.write([new ClipboardItem({ [type]: made })]);
        setLine(this.said, `Copied as ${name.slice(-3).toUpperCase()}.`);
      } catch {
        save(await made, name);
        setLine(this.said, `This page may not write to the clipboard, so ${name} was saved as a file.`);
      }
    } catch (error) {
      setLine(this.said, `Not copied: ${messageOf(error)}`);
    }
  }
}

const pngOf = (canvas: HTMLCanvasElement): Promise<Blob> =>
  new Promise((done, fail) => canvas.toBlob((blob) => (blob ? done(blob) : fail(new Error("the picture is too large for this browser")))));

function save(blob: Blob, name: string): void {
  const href = URL.createObjectURL(blob);
  element("a", "", { href, download: name }).click();
  URL.revokeObjectURL(href);
}
