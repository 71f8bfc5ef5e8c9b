// Asks Python for what is not in the columns. One question is under way at a time, and the newest wish is the next: a
// deaf kernel has no heap of them to answer afterwards, and a hand that scrubs asks a few times a second.
import type { Buffer } from "../data/wire";
import type { Answer, InspectedMessage } from "./answer";
import { answerOf } from "./answer";

export interface Wish {
  name: string;
  /** null: the newest. */
  iteration: number | null;
}

/** Milliseconds between two questions, and between two of the same thing as the run grows. */
const PAUSE_MS = 200;
const RENEW_MS = 1000;

const keyOf = ({ name, iteration }: Wish): string => `${iteration} ${name}`;

export class Questions {
  answer: Answer | null = null;
  error = "";
  /** What the answer or the error is of, and how long the run was then. */
  #key = "";
  #end = -1;
  #asked: { id: string; key: string; end: number } | null = null;
  #askedAt = -Infinity;

  constructor(private readonly send: (question: Wish & { id: string }) => void) {}

  /** The answer as it was kept for a page without a kernel. */
  restore(message: InspectedMessage, buffers: readonly Buffer[]): void {
    this.answer = answerOf(message, buffers);
    this.#key = keyOf({ name: message.name, iteration: message.asked });
  }

  /** See to it that this will be known, of a run that has come so far; the milliseconds after which to come again, or null. */
  want(wish: Wish, end: number, now: number): number | null {
    const key = keyOf(wish);
    const isSame = key === this.#key;
    if (this.#asked || !end || (isSame && (wish.iteration !== null || this.#end === end))) return null;
    const wait = this.#askedAt + (isSame ? RENEW_MS : PAUSE_MS) - now;
    if (wait > 0) return wait;
    this.#asked = { id: String(Math.random()), key, end };
    this.#askedAt = now;
    this.send({ ...wish, id: this.#asked.id });
    return null;
  }

  /** Whether what is known is of something else. */
  isWaitingFor(wish: Wish): boolean {
    return keyOf(wish) !== this.#key;
  }

  receive(message: InspectedMessage, buffers: readonly Buffer[]): void {
    const asked = this.#asked;
    if (message.id !== asked?.id) return;
    this.#asked = null;
    [this.#key, this.#end] = [asked.key, asked.end];
    this.error = message.error ?? "";
    if (!message.error) this.answer = answerOf(message, buffers);
  }
}
