// Asks before something is frozen or unfrozen. Beside the row, above everything, so that nothing moves.
import { element, setText } from "../kit/element";

export interface Question {
  title: string;
  text: string;
  /** The word on the button that does it. */
  word: string;
}

let asks = 0;

export class Ask {
  readonly #title = element("b", "");
  readonly #text = element("p", "");
  readonly #yes = element("button", "gv-act gv-yes", { type: "button" });
  readonly #no = element("button", "gv-act", { type: "button" }, "Cancel");
  readonly element: HTMLElement;
  #act: (() => void) | null = null;
  #back: HTMLElement | null = null;

  constructor(private readonly box: HTMLElement) {
    const id = `gv-ask-${(asks += 1)}`;
    this.#title.id = id;
    this.#text.id = `${id}-text`;
    const attributes = { role: "alertdialog", "aria-labelledby": id, "aria-describedby": `${id}-text` };
    this.element = element("div", "gv-ask", attributes, this.#title, this.#text, element("div", "gv-ask-buttons", {}, this.#yes, this.#no));
    this.element.hidden = true;
    this.#yes.addEventListener("click", () => this.#close(true));
    this.#no.addEventListener("click", () => this.#close(false));
    this.element.addEventListener("keydown", (event) => this.#onKey(event));
  }

  /** Ask below a height of the box, or above it; focus goes back to where it was. */
  open({ title, text, word }: Question, below: number, above: number, act: () => void, back: HTMLElement): void {
    setText(this.#title, title);
    setText(this.#text, text);
    setText(this.#yes, word);
    this.#act = act;
    this.#back = back;
    this.element.hidden = false;
    const { offsetHeight: height } = this.element;
    const top = below + height <= this.box.clientHeight || above - height < 0 ? below : above - height;
    this.element.style.top = `${Math.max(0, Math.min(top, this.box.clientHeight - height))}px`;
    this.#yes.focus({ preventScroll: true });
  }

  get isOpen(): boolean {
    return !this.element.hidden;
  }

  #close(does: boolean): void {
    this.element.hidden = true;
    const act = this.#act;
    this.#act = null;
    this.#back?.focus({ preventScroll: true });
    if (does) act?.();
  }

  #onKey(event: KeyboardEvent): void {
    if (event.key === "Escape") this.#close(false);
    else if (event.key === "Tab") (document.activeElement === this.#yes ? this.#no : this.#yes).focus();
    else if (event.key !== "Enter" && event.key !== " ") return;
    else {
      event.stopPropagation();
      return; // the button's own
    }
    event.preventDefault();
    event.stopPropagation();
  }
}
