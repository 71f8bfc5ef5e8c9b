// The buttons that steer a run, and what recording costs it, at the end of the head line.
import { enable } from "../kit/buttons";
import { element, setLine, setText } from "../kit/element";
import { listen } from "../kit/listen";
import type { PanelStore } from "./store";
import type { Verb } from "./wire";

/** 0.018 -> "1.8 %". */
export function percent(share: number): string {
  const value = 100 * share;
  return value < 0.05 ? "under 0.1 %" : `${value < 10 ? value.toFixed(1) : Math.round(value)} %`;
}

function pushButton(word: string, title: string, act: () => void): HTMLButtonElement {
  const made = element("button", "gv-push", { type: "button", title }, word);
  listen(made, "click", act);
  return made;
}

export class Steer {
  readonly #cost = element("span", "gv-cost", { title: "what recording adds to an iteration, those of the pictures included" });
  readonly #pause: HTMLButtonElement;
  readonly #step: HTMLButtonElement;
  readonly #stop: HTMLButtonElement;
  readonly element: HTMLElement;

  constructor(private readonly store: PanelStore) {
    this.#pause = pushButton("Pause", "", () => this.#wish(store.run.status === "paused" ? "unpause" : "pause"));
    this.#step = pushButton("Step", "take one iteration, and wait again", () => this.#wish("step"));
    this.#stop = pushButton("Stop", "end the run after this iteration; what was recorded stays", () => this.#wish("stop"));
    this.element = element("span", "gv-steer", {}, this.#cost, this.#pause, this.#step, this.#stop);
  }

  update(): void {
    const { run, controls, overhead, waiting, isLost } = this.store;
    const isUnderWay = run.status === "training" || run.status === "paused";
    const isPaused = run.status === "paused";
    setLine(this.#cost, overhead !== null && isUnderWay ? `recording ${percent(overhead)}` : null);
    const isThere = controls !== null && isUnderWay && !isLost;
    this.#pause.hidden = this.#stop.hidden = !isThere;
    this.#step.hidden = !isThere || !isPaused;
    setText(this.#pause, isPaused ? "Continue" : "Pause");
    this.#pause.title = isPaused ? "let training go on" : "wait after this iteration";
    for (const [each, verbs] of [
      [this.#pause, ["pause", "unpause"]],
      [this.#step, ["step"]],
      [this.#stop, ["stop"]],
    ] as [HTMLElement, Verb[]][]) {
      enable(each, !waiting);
      each.toggleAttribute("data-waiting", waiting !== null && verbs.includes(waiting.verb));
    }
  }

  #wish(verb: Verb): void {
    this.store.wish(verb);
  }
}
