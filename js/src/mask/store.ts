// What a frozen mask knows beside the run itself: what has changed and by whom, and what it has asked Python for.
import type { AnyModel } from "@anywidget/types";
import { Feed } from "../data/feed";
import type { FeedTraits } from "../data/feed";
import type { AnswerMessage, Buffer, ColumnsMessage } from "../data/wire";

export interface Change {
  /** The first iteration that it held for. */
  iteration: number;
  event: "frozen" | "unfrozen";
  by: "user" | "handler" | "widget" | null;
  /** Parameters, and paths of modules of which it is all; "" is the whole model. */
  names: readonly string[];
  /** How many names there are beside these. */
  more: number;
}

export interface MaskMessage extends ColumnsMessage {
  changes: readonly Change[];
  /** Why nothing can be frozen now; "" where it can. */
  barred: string;
}

export interface AnsweredMessage {
  kind: "answered";
  id: string;
  iteration: number | null;
  error: string;
}

export interface Wish {
  verb: "freeze" | "unfreeze";
  /** As it is called here. */
  name: string;
  parameters: readonly string[];
  modules: readonly string[];
}

/** What is kept of them; Python keeps all. */
const MOST_CHANGES = 200;

export class MaskStore extends Feed<FeedTraits, MaskMessage> {
  changes: readonly Change[] = [];
  barred = "";
  /** What was asked for and has no answer yet, by the name of the row. */
  readonly waiting = new Map<string, Wish & { id: string }>();
  /** What came of the last wish, and whether it is bad news. */
  said: { text: string; isError: boolean } | null = null;

  constructor(model: AnyModel<FeedTraits>) {
    super(model);
    this.restore();
  }

  /** Ask Python, which answers when the kernel is free. */
  wish(wish: Wish): void {
    if (this.waiting.has(wish.name)) return;
    const id = String(Math.random());
    this.waiting.set(wish.name, { ...wish, id });
    this.tell(null);
    if (!this.say({ kind: wish.verb, id, parameters: wish.parameters, modules: wish.modules })) this.waiting.delete(wish.name);
  }

  tell(text: string | null, isError = false): void {
    this.said = text === null ? null : { text, isError };
    this.notify({ kind: "notice" });
  }

  override receive(message: MaskMessage | AnswerMessage | AnsweredMessage, buffers: readonly Buffer[]): void {
    if (message?.kind === "answered") this.#answered(message);
    else super.receive(message, buffers);
  }

  protected override take({ changes, barred, fresh }: MaskMessage): void {
    this.changes = (fresh ? changes : [...this.changes, ...changes]).slice(-MOST_CHANGES);
    this.barred = barred;
  }

  #answered({ id, iteration, error }: AnsweredMessage): void {
    const wish = [...this.waiting.values()].find((each) => each.id === id);
    if (!wish) return;
    this.waiting.delete(wish.name);
    if (error) this.tell(`${wish.name} was not ${done(wish.verb)}. ${error}`, true);
    else this.tell(`${wish.name} is ${done(wish.verb)} from iteration ${iteration} on`);
  }
}

export const done = (verb: Wish["verb"]): string => (verb === "freeze" ? "frozen" : "unfrozen");
