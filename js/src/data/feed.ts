// What every widget knows of a run: its parameters, its columns, and how it stands. One feed per model, shared by all
// its views.
//
// The kernel is deaf while a cell trains, so nothing here waits for an answer: after a gap in `seq` the
// feed asks for the whole picture and goes on with what it gets, leaving a hole.
import type { AnyModel } from "@anywidget/types";
import { firstPlace } from "../kit/bisect";
import { messageOf } from "../kit/errors";
import type { Extent } from "../kit/extent";
import { Link } from "./link";
import { Overview } from "./overview";
import { Recent } from "./recent";
import { Survey } from "./survey";
import type { AnswerMessage, Buffer, Columns, ColumnsMessage, Run } from "./wire";
import { decodeColumns, decodeEpochs, decodeMetrics } from "./wire";

export interface Parameter {
  name: string;
  dtype: string;
  shape: number[] | null;
}

/** The synced traits. Type, not interface: an AFM model wants an index signature. */
export type FeedTraits = {
  /** The run's id in the page: see link.ts. */
  _run: string;
  /** Only in a page of its own: that nothing can be done to the run from there. */
  _offline?: boolean;
  _parameters: Parameter[];
  /** The picture as it was, for a page without a kernel: a message and its buffers. */
  _kept: { message: ColumnsMessage; buffers: Buffer[] } | Record<string, never>;
};

/** Columns to show, and at what level they were merged; `exact`: each has the numbers of one iteration, its first. */
export interface Shown {
  columns: Columns;
  level: number;
  exact: boolean;
}

/** What changed. Columns come with the index of the first one that is new, among all and among the newest. */
export type Change = { kind: "columns"; from: number; recent: number } | { kind: "parameters" } | { kind: "colours" } | { kind: "selection" } | { kind: "answer"; message: AnswerMessage; buffers: readonly Buffer[] } | { kind: "notice" };

/** First wait before asking again; doubled each time, since every question may be answered with the whole picture. */
const ASK_AGAIN_MS = 5000;

const WAITING: Run = {
  status: "idle",
  epoch: 0,
  epochs: null,
  iteration: 0,
  iterations: null,
  nothing: "waiting for the kernel …",
  left_s: null,
  metric_names: [],
  message: null,
};

export class Feed<Traits extends FeedTraits = FeedTraits, Message extends ColumnsMessage = ColumnsMessage> {
  parameters: readonly Parameter[] = [];
  names: readonly string[] = [];
  overview = new Overview();
  recent = new Recent();
  survey = new Survey();
  run: Run = WAITING;
  epochs: number[] = [];
  /** The last message before a gap, or the newest. */
  seq = 0;
  newest = 0;
  catchingUp = false;
  /** Whether there was no kernel to hear what was said last, as after it was restarted. */
  isLost = false;
  /** Our own failure, in a line. */
  error: string | null = null;

  /** Whether columns came that Python had merged. */
  #coarse = false;
  readonly #listeners = new Set<(change: Change) => void>();
  #askedAt = -Infinity;
  #askAfter = ASK_AGAIN_MS;

  constructor(protected readonly model: AnyModel<Traits>) {
    this.readParameters();
  }

  /** Begin with the picture that was kept for a page without a kernel. Where there is one, it is asked for all of it. */
  protected restore(): void {
    const { message, buffers } = this.model.get("_kept") ?? {};
    if (!message) return;
    try {
      this.receive(message as Message, buffers);
    } catch (error) {
      this.fail(error);
    }
    this.seq = 0;
  }

  /** Whether this is a page of its own, far from any kernel. */
  get isOffline(): boolean {
    return this.model.get("_offline") === true;
  }

  /** What a view tells the other widgets of the run in the page, and hears from them. */
  link(hear: ConstructorParameters<typeof Link>[1], signal: AbortSignal): Link {
    return new Link(this.model.get("_run") ?? "", hear, signal);
  }

  /** What to do when a trait changes, by the trait's name. */
  get traits(): Record<string, () => void> {
    return { _parameters: () => this.readParameters() };
  }

  subscribe(listener: (change: Change) => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  /** Tell Python what is here; a view also says that it is one, for it may have come inside a box. */
  hello(view = false): void {
    this.#askedAt = performance.now();
    this.say(view ? { kind: "hello", have: this.seq, view } : { kind: "hello", have: this.seq });
  }

  /** A view is gone: Python closes what nobody looks at. */
  bye(): void {
    this.say({ kind: "bye" });
  }

  /** Say something to Python; returns whether there is somebody to hear it, now or later. */
  say(message: { kind: string } & Record<string, unknown>): boolean {
    try {
      this.model.send(message);
    } catch {
      this.isLost = true;
      this.notify({ kind: "notice" });
    }
    return !this.isLost;
  }

  readParameters(): void {
    this.parameters = this.model.get("_parameters") ?? [];
    this.names = this.parameters.map((parameter) => parameter.name);
    this.notify({ kind: "parameters" });
  }

  fail(error: unknown): void {
    this.error = messageOf(error);
    this.notify({ kind: "notice" });
  }

  receive(message: Message | AnswerMessage, buffers: readonly Buffer[]): void {
    if (message?.kind === "answer") this.notify({ kind: "answer", message, buffers });
    if (message?.kind !== "columns") return;
    if (buffers.length !== 3) throw new Error(`${buffers.length} buffers instead of 3`);
    const [columns, metrics, epochs] = buffers as [Buffer, Buffer, Buffer];
    // A message that the whole picture already holds.
    if (!message.fresh && message.seq <= this.newest) return;
    // All of it first: a message that cannot be read changes nothing, and the gap it leaves is noticed.
    const decoded = decodeColumns(columns);
    const values = decodeMetrics(metrics);
    const starts = decodeEpochs(epochs);
    if (message.fresh) this.restart(message.level);
    else this.#noticeGap(message.seq);
    this.#coarse ||= message.level > 0;
    this.newest = message.seq;
    if (!this.catchingUp) this.seq = message.seq;
    this.run = message.run;
    for (const start of starts) this.epochs.push(start);
    const from = this.overview.append(decoded);
    // What comes merged is not what is kept fine.
    const recent = message.fresh && message.level ? 0 : this.recent.add(decoded);
    this.survey.add(decoded);
    this.take(message, values);
    this.error = null;
    this.notify({ kind: "columns", from, recent });
  }

  /** The finest columns that show these iterations. */
  columnsFor(extent: Extent): Shown {
    const { overview, recent } = this;
    const columns = overview.level && extent.start >= recent.start ? recent.columns : overview;
    return { columns, level: columns.level, exact: !columns.level && !this.#coarse };
  }

  /** The iteration after the newest. */
  get end(): number {
    const { count, stop } = this.overview;
    return count ? stop[count - 1]! : 0;
  }

  /** The epoch (0-based) of an iteration. */
  epochOf(iteration: number): number {
    return this.firstEpoch + Math.max(0, firstPlace(this.epochs.length, (epoch) => this.epochs[epoch]! > iteration) - 1);
  }

  /** The number (0-based) of the first epoch in `epochs`: 0, unless messages were missed. */
  get firstEpoch(): number {
    return this.catchingUp ? Math.max(0, this.run.epoch + 1 - this.epochs.length) : 0;
  }

  /** What else came with new columns. */
  protected take(_message: Message, _metrics: Float64Array): void {}

  protected restart(level: number): void {
    this.overview = new Overview();
    this.overview.level = level;
    this.recent = new Recent();
    this.survey = new Survey();
    this.epochs = [];
    this.catchingUp = this.#coarse = false;
    this.#askAfter = ASK_AGAIN_MS;
  }

  protected notify(change: Change): void {
    for (const listener of this.#listeners) listener(change);
  }

  #noticeGap(seq: number): void {
    if (seq !== this.newest + 1) this.catchingUp = true;
    if (!this.catchingUp || performance.now() - this.#askedAt < this.#askAfter) return;
    this.#askAfter *= 2;
    this.hello();
  }
}
