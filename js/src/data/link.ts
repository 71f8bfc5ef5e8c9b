// What the widgets of one run in a page tell each other, without the kernel: which iteration is pointed at, what is
// looked into, and what is selected.
//
// Each widget's script is a module of its own, and may be evaluated many times. So they meet at a place that the page
// has: there lies plain data by the run's id, which scripts of another version of gradviz can read too.
import { listen } from "../kit/listen";
import type { Selection } from "./selection";

/** What the rows of a picture are. */
export type Of = "parameters" | "activations";

/** What is looked into; an iteration of null is the newest one. */
export interface Focus {
  of: Of;
  name: string;
  iteration: number | null;
}

export interface Shared {
  /** The iteration that the pointer or the keys are at. */
  cursor: { iteration: number } | null;
  focus: Focus | null;
  selection: (Selection & { of: Of }) | null;
}

type What = keyof Shared;

/** `by`: the link that told it. */
interface Meeting extends Shared {
  listeners: Set<(what: What, by: object) => void>;
}

const PLACE = Symbol.for("gradviz.links");

export class Link {
  readonly #meeting: Meeting;
  /** Whether it was this one that pointed somewhere last. */
  #points = false;

  /** `hear`: something has changed; `isOwn` where this one told it. Ends with the signal. */
  constructor(run: string, hear: (what: What, isOwn: boolean) => void, signal: AbortSignal) {
    const all = ((globalThis as { [PLACE]?: Map<string, Meeting> })[PLACE] ??= new Map<string, Meeting>());
    const meeting = all.get(run) ?? { cursor: null, focus: null, selection: null, listeners: new Set() };
    // One that does not know its run is alone.
    if (run) all.set(run, meeting);
    const listener = (what: What, by: object): void => hear(what, by === this);
    meeting.listeners.add(listener);
    this.#meeting = meeting;
    listen(signal, "abort", () => {
      meeting.listeners.delete(listener);
      if (this.#points) this.tell("cursor", null);
      if (!meeting.listeners.size) all.delete(run);
    });
  }

  /** The name that is looked into among rows that are this; "" where there is none. */
  focused(of: Of): string {
    const { focus } = this.#meeting;
    return focus?.of === of ? focus.name : "";
  }

  /** Look into this one, at the iteration that was looked at before. */
  look(of: Of, name: string): void {
    this.tell("focus", { of, name, iteration: this.#meeting.focus?.iteration ?? null });
  }

  get shared(): Readonly<Shared> {
    return this.#meeting;
  }

  /** Say it to all; what is known is not said again. */
  tell<W extends What>(what: W, value: Shared[W]): void {
    const shared: Shared = this.#meeting;
    if (what === "cursor") this.#points = value !== null;
    if (JSON.stringify(shared[what]) === JSON.stringify(value)) return;
    shared[what] = value;
    for (const listener of this.#meeting.listeners) listener(what, this);
  }
}
