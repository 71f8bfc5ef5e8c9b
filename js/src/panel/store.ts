// What a panel knows of a run: its metrics, where it first went wrong, what its buttons act on and what came of that.
import type { AnyModel } from "@anywidget/types";
import { Feed } from "../data/feed";
import type { FeedTraits } from "../data/feed";
import { Overview } from "../data/overview";
import type { AnswerMessage, Buffer, Status } from "../data/wire";
import { decodeColumns, decodeMetrics } from "../data/wire";
import type { AnsweredMessage, Controls, PanelMessage, Verb, Verdict } from "./wire";

/** A kernel that is free has answered by then, in milliseconds. */
const PATIENCE_MS = 1000;

export const DEAF = "The kernel hears this when the cell is done. To stop now, interrupt the kernel (■, or Esc then I I): the run ends after its current step, and nothing is lost. loop.start(...) makes these buttons live.";
export const BUSY = "waiting for the kernel, which hears this when it is free …";

export class PanelStore extends Feed<FeedTraits, PanelMessage> {
  /** The rows of the columns, the loss last; and those of the columns by epoch, the mean loss last. */
  metrics: readonly string[] = [];
  epochMetrics: readonly string[] = [];
  more = 0;
  byEpoch = new Overview();
  /** The newest iteration's own metrics and loss, in the order of the rows. */
  own: Float64Array = new Float64Array(0);
  /** Means over the epoch so far, and what a validation has found, by name. */
  means = new Map<string, number>();
  overhead: number | null = null;
  verdict: Verdict | null = null;
  controls: Controls | null = null;
  /** What was asked for and has no answer yet. */
  waiting: { id: string; verb: Verb; run: number } | null = null;
  /** What came of the last wish, and whether it is bad news. */
  said: { text: string; isError: boolean } | null = null;

  #more: readonly Buffer[] = [];
  /** For which what was said holds. */
  #status: Status = "idle";

  constructor(model: AnyModel<FeedTraits>) {
    super(model);
    this.restore();
  }

  /** Ask Python, which answers when the kernel is free. */
  wish(verb: Verb): void {
    const { controls } = this;
    if (!controls || this.waiting) return;
    const id = String(Math.random());
    this.waiting = { id, verb, run: controls.run };
    this.tell(null);
    if (!this.say({ kind: "control", id, verb, run: controls.run })) {
      this.waiting = null;
      return;
    }
    setTimeout(() => {
      if (this.waiting?.id === id) this.tell(this.controls?.blocks ? DEAF : BUSY);
    }, PATIENCE_MS);
  }

  tell(text: string | null, isError = false): void {
    this.said = text === null ? null : { text, isError };
    this.notify({ kind: "notice" });
  }

  override receive(message: PanelMessage | AnswerMessage | AnsweredMessage, buffers: readonly Buffer[]): void {
    if (message?.kind === "answered") return this.#answered(message);
    this.#more = buffers.slice(3);
    super.receive(message, buffers.slice(0, 3));
  }

  protected override take(message: PanelMessage, means: Float64Array): void {
    const [own, epochs] = this.#more as [Buffer, Buffer];
    this.metrics = message.metrics;
    this.epochMetrics = message.epoch_metrics;
    this.more = message.more_metrics;
    this.own = decodeMetrics(own);
    this.byEpoch.append(decodeColumns(epochs));
    this.means = new Map(message.run.metric_names.map((name, place) => [name, means[place]!]));
    this.overhead = message.overhead;
    this.verdict = message.verdict;
    this.controls = message.controls;
    // A wish is for the run that it was made for: what ends with it is not waited for.
    if (this.waiting && this.waiting.run !== message.controls?.run) {
      this.waiting = null;
      this.said = null;
    }
    if (!this.waiting && message.run.status !== this.#status) this.said = null;
    this.#status = message.run.status;
  }

  protected override restart(level: number): void {
    super.restart(level);
    this.byEpoch = new Overview();
  }

  #answered({ id, said, error }: AnsweredMessage): void {
    if (this.waiting?.id !== id) return;
    this.waiting = null;
    this.tell(error || said, error !== "");
  }
}
