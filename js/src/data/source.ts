// The numbers that a view shows: the live norms of the store, or what Python was asked for.
//
// Norms come by themselves. Another statistic, another stage, or single iterations where the overview has merged them
// take an answer of the kernel, which is deaf while a cell runs: what was there before stays, and the view says that it
// waits. One question is under way at a time, so that a deaf kernel has no heap of them to answer afterwards.
import type { Domain, Scale } from "./colour";
import { domainOf, pixelTable, SCALES } from "./colour";
import type { Extent } from "../kit/extent";
import { Overview } from "./overview";
import type { Quantity, Shown, Store } from "./store";
import { Survey } from "./survey";
import type { AnswerMessage, Buffer } from "./wire";
import { bytesOf, decodeColumns } from "./wire";

export interface Choice {
  statistic: string;
  stage: string;
}

export const LIVE: Choice = { statistic: "norm", stage: "backward" };
const isSame = (a: Choice, b: Choice): boolean => a.statistic === b.statistic && a.stage === b.stage;

interface Answer extends Choice, Extent {
  columns: Overview;
  /** The iteration after the newest, when it was given. */
  end: number;
  quantity: Quantity;
  scale: Scale;
  table: Uint32Array;
  survey: Survey;
}

/** A run that goes on makes an answer old: it is asked for anew so often. */
const RENEW_MS = 1000;

export class Source {
  choice: Choice = LIVE;
  error = "";
  #answer: Answer | null = null;
  /** The question that is under way, and when the last one was put. */
  #asked: (Choice & Extent & { id: string }) | null = null;
  #askedAt = -Infinity;

  constructor(private readonly store: Store) {}

  get isLive(): boolean {
    return isSame(this.choice, LIVE);
  }

  get isWaiting(): boolean {
    return this.#asked !== null;
  }

  /** What the numbers are, and how they become colours: those of the answer, once there is one, in place of the live ones. */
  get shown(): Pick<Store, "quantity" | "scale" | "table" | "survey"> {
    return this.#replacing ?? this.store;
  }

  get domain(): Domain | null {
    const { survey, scale } = this.shown;
    return domainOf(survey.smallest, survey.largest, scale);
  }

  /** The answer that replaces the live numbers; a part of the live ones in more detail does not. */
  get #replacing(): Answer | null {
    return this.#answer && !isSame(this.#answer, LIVE) ? this.#answer : null;
  }

  columnsFor(extent: Extent): Shown {
    const columns = this.#answer?.columns;
    if (columns && (this.#replacing || this.#covers(this.#answer!, extent))) return { columns, level: columns.level, exact: !columns.level };
    return this.store.columnsFor(extent);
  }

  /** See to it that there is what these iterations on so many pixels need. */
  want(extent: Extent, width: number, now: number): void {
    if (this.#asked) return;
    const { end } = this.store;
    const answer = this.#answer;
    const isFine = (level: number): boolean => level === 0 || 2 ** level * width <= extent.span;
    if (this.isLive) {
      if (answer && this.#replacing) this.#answer = null;
      if (isFine(this.columnsFor(extent).level)) return;
    } else if (answer && isSame(answer, this.choice) && this.#covers(answer, extent) && isFine(answer.columns.level)) {
      if (answer.end >= end || now - this.#askedAt < RENEW_MS) return;
    }
    // What cannot be finer than it is: asked for once.
    if (answer && isSame(answer, this.choice) && answer.start === extent.start && answer.span === extent.span && answer.end >= end) return;
    this.#asked = { ...this.choice, ...extent, id: String(Math.random()) };
    this.#askedAt = now;
    this.store.ask({ ...this.#asked, stop: extent.start + extent.span });
  }

  /** Returns whether it was for us. */
  receive(message: AnswerMessage, [columns, table]: readonly Buffer[]): boolean {
    const asked = this.#asked;
    if (!asked || message.id !== asked.id) return false;
    this.#asked = null;
    this.error = message.error ?? "";
    if (message.error) this.choice = this.#replacing ?? LIVE;
    else if (columns && table) {
      const merged = new Overview(0, Infinity);
      const decoded = decodeColumns(columns);
      merged.level = message.level;
      merged.append(decoded);
      const { quantity, end } = message;
      const scale = SCALES[message.scale]!;
      this.#answer = { ...asked, columns: merged, end, quantity, scale, table: pixelTable(bytesOf(table)), survey: new Survey().add(decoded) };
    }
    return true;
  }

  /** Whether it has all iterations of a part that there were. */
  #covers(answer: Answer, extent: Extent): boolean {
    return answer.start <= extent.start && Math.min(extent.start + extent.span, this.store.end) <= Math.min(answer.start + answer.span, answer.end);
  }
}
