// What an inspector knows beside the run itself: what it looks into, and what Python said of it.
import type { AnyModel } from "@anywidget/types";
import { Feed } from "../data/feed";
import type { FeedTraits } from "../data/feed";
import type { Of } from "../data/link";
import type { Quantity } from "../data/store";
import type { AnswerMessage, Buffer, ColumnsMessage } from "../data/wire";
import { throttled } from "../kit/throttle";
import type { InspectedMessage } from "./answer";
import { Questions } from "./questions";
import type { Wish } from "./questions";

export type Traits = FeedTraits & {
  _quantity: Quantity;
  /** The answer as it was, for a page without a kernel. */
  _inspected: { message: InspectedMessage; buffers: Buffer[] } | Record<string, never>;
  parameter: string;
  iteration: number | null;
};

/** Python is told of what is looked into no more often, in milliseconds. */
const SAVE_MS = 300;

export class InspectorStore extends Feed<Traits> {
  readonly quantity: Quantity;
  readonly questions: Questions;
  /** Whether Python is being told: what it knows then is not yet all. */
  #isTelling = false;
  readonly #save = throttled(SAVE_MS, () => this.model.save_changes());

  constructor(model: AnyModel<Traits>) {
    super(model);
    this.quantity = model.get("_quantity");
    this.questions = new Questions((question) => model.send({ kind: "inspect", of: this.of, ...question }));
    this.restore();
    const { message, buffers } = model.get("_inspected") ?? {};
    if (message && !message.error) this.questions.restore(message, buffers);
  }

  override get traits(): Record<string, () => void> {
    const chosen = (): void => {
      if (!this.#isTelling) this.notify({ kind: "selection" });
    };
    return { ...super.traits, parameter: chosen, iteration: chosen };
  }

  get of(): Of {
    return this.quantity.of === "parameter" ? "parameters" : "activations";
  }

  /** What is looked into, as Python knows it. */
  get wish(): Wish {
    return { name: this.model.get("parameter") ?? "", iteration: this.model.get("iteration") ?? null };
  }

  /** Tell Python what is looked into. */
  choose({ name, iteration }: Wish): void {
    const { wish } = this;
    if (name === wish.name && iteration === wish.iteration) return;
    this.#isTelling = true;
    this.model.set("parameter", name);
    this.model.set("iteration", iteration);
    this.#isTelling = false;
    this.#save();
  }

  override receive(message: ColumnsMessage | AnswerMessage | InspectedMessage, buffers: readonly Buffer[]): void {
    if (message?.kind !== "answer") return super.receive(message, buffers);
    this.questions.receive(message as InspectedMessage, buffers);
    this.notify({ kind: "notice" });
  }
}
