// What a widget knows: one store per model, shared by all its views.
//
// The kernel is deaf while a cell trains, so nothing here waits for an answer: after a gap in `seq` the
// store asks for the whole picture and goes on with what it gets, leaving a hole.
import type { AnyModel } from "@anywidget/types";
import type { Scale } from "./colour";
import { pixelTable, SCALES } from "./colour";
import { firstPlace } from "../kit/bisect";
import type { Extent } from "../kit/extent";
import { Overview } from "./overview";
import { Recent } from "./recent";
import type { Selection } from "./selection";
import { Survey } from "./survey";
import type { AnswerMessage, Buffer, Columns, ColumnsMessage, Run } from "./wire";
import { bytesOf, decodeColumns, decodeEpochs, decodeMetrics, Flag } from "./wire";

export interface Parameter {
  name: string;
  dtype: string;
  shape: number[] | null;
}

/** What the numbers are: what they are called, beside the bar, in a sentence and before a number. */
export interface Quantity {
  label: string;
  title: string;
  noun: string;
  /** Of a ratio: the run that is divided, and the one that it is divided by. */
  runs: readonly [string, string] | null;
  /** Behind a mark's word, where there is more than one run that it may have been seen in. */
  where: string;
}

/** What can be chosen: its name, the word on its button, its tooltip, and the stages that it needs. */
export type Offer = readonly [string, string, string, readonly string[]];

export interface Offers {
  statistics: readonly Offer[];
  stages: readonly Offer[];
}

/** The synced traits. Type, not interface: an AFM model wants an index signature. */
export type Traits = {
  _parameters: Parameter[];
  _colours: DataView | null;
  _quantity: Quantity;
  _choices: Offers;
  _kept: { message: ColumnsMessage; buffers: Buffer[] } | Record<string, never>;
  selection: Selection | null;
};

export type Model = AnyModel<Traits>;

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
  left_s: null,
  metric_names: [],
  message: null,
};

export class Store {
  parameters: readonly Parameter[] = [];
  names: readonly string[] = [];
  readonly quantity: Quantity;
  readonly scale: Scale;
  table = pixelTable(new Uint8Array(0));
  overview = new Overview();
  recent = new Recent();
  survey = new Survey();
  run: Run = WAITING;
  stages: readonly string[] = [];
  metrics: Float64Array = new Float64Array(0);
  epochs: number[] = [];
  /** The batch loss of the newest iteration; null before the first, and where none was taken. */
  loss: number | null = null;
  /** The last message before a gap, or the newest. */
  seq = 0;
  newest = 0;
  catchingUp = false;
  /** Our own failure, in a line. */
  error: string | null = null;

  /** Whether columns came that Python had merged. */
  #coarse = false;
  readonly #listeners = new Set<(change: Change) => void>();
  #askedAt = -Infinity;
  #askAfter = ASK_AGAIN_MS;

  constructor(private readonly model: Model) {
    this.quantity = model.get("_quantity");
    this.scale = SCALES[this.quantity.runs ? "ratios" : "norms"]!;
    this.readParameters();
    this.readColours();
    this.#restore();
  }

  /** Begin with the picture that was kept for a page without a kernel. Where there is one, it is asked for all of it. */
  #restore(): void {
    const { message, buffers } = this.model.get("_kept") ?? {};
    if (!message) return;
    try {
      this.receive(message, buffers);
    } catch (error) {
      this.fail(error);
    }
    this.seq = 0;
  }

  subscribe(listener: (change: Change) => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  /** Tell Python what is here; a view also says that it is one, for it may have come inside a box. */
  hello(view = false): void {
    this.#askedAt = performance.now();
    this.model.send(view ? { kind: "hello", have: this.seq, view } : { kind: "hello", have: this.seq });
  }

  /** A view is gone: Python closes what nobody looks at. */
  bye(): void {
    this.model.send({ kind: "bye" });
  }

  readParameters(): void {
    this.parameters = this.model.get("_parameters") ?? [];
    this.names = this.parameters.map((parameter) => parameter.name);
    this.#notify({ kind: "parameters" });
  }

  readColours(): void {
    const bytes = this.model.get("_colours");
    this.table = pixelTable(bytes ? bytesOf(bytes) : new Uint8Array(0));
    this.#notify({ kind: "colours" });
  }

  get offers(): Offers {
    return this.model.get("_choices") ?? { statistics: [], stages: [] };
  }

  get selection(): Selection | null {
    return this.model.get("selection") ?? null;
  }

  /** Tell all views and Python what is selected. */
  select(selection: Selection | null): void {
    if (!selection && !this.selection) return;
    this.model.set("selection", selection);
    this.model.save_changes();
    this.onSelection();
  }

  onSelection(): void {
    this.#notify({ kind: "selection" });
  }

  fail(error: unknown): void {
    this.error = error instanceof Error ? error.message : String(error);
    this.#notify({ kind: "notice" });
  }

  /** Put a question to Python, which answers when the kernel is free. */
  ask(question: { id: string; statistic: string; stage: string; start: number; stop: number }): void {
    this.model.send({ kind: "ask", ...question });
  }

  receive(message: ColumnsMessage | AnswerMessage, buffers: readonly Buffer[]): void {
    if (message?.kind === "answer") this.#notify({ kind: "answer", message, buffers });
    if (message?.kind !== "columns") return;
    if (buffers.length !== 3) throw new Error(`a message brought ${buffers.length} buffers instead of 3`);
    const [columns, metrics, epochs] = buffers as [Buffer, Buffer, Buffer];
    // A message that the whole picture already holds.
    if (!message.fresh && message.seq <= this.newest) return;
    // All of it first: a message that cannot be read changes nothing, and the gap it leaves is noticed.
    const decoded = decodeColumns(columns);
    const values = decodeMetrics(metrics);
    const starts = decodeEpochs(epochs);
    if (message.fresh) this.#restart(message.level);
    else this.#noticeGap(message.seq);
    this.#coarse ||= message.level > 0;
    this.newest = message.seq;
    if (!this.catchingUp) this.seq = message.seq;
    this.run = message.run;
    this.stages = message.stages ?? [];
    // The means by name, and behind them the newest batch's own loss.
    this.metrics = values;
    for (const start of starts) this.epochs.push(start);
    const from = this.overview.append(decoded);
    const recent = this.recent.add(decoded);
    this.survey.add(decoded);
    this.loss = message.run.iteration ? this.#taken(values[message.run.metric_names.length]) : null;
    this.error = null;
    this.#notify({ kind: "columns", from, recent });
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

  #restart(level: number): void {
    this.overview = new Overview();
    this.overview.level = level;
    this.recent = new Recent();
    this.survey = new Survey();
    this.epochs = [];
    this.loss = null;
    this.catchingUp = this.#coarse = false;
    this.#askAfter = ASK_AGAIN_MS;
  }

  #noticeGap(seq: number): void {
    if (seq !== this.newest + 1) this.catchingUp = true;
    if (!this.catchingUp || performance.now() - this.#askedAt < this.#askAfter) return;
    this.#askAfter *= 2;
    this.hello();
  }

  /** NaN is a loss only if the newest column says so. */
  #taken(loss = NaN): number | null {
    const { count, rows, flags } = this.overview;
    return Number.isNaN(loss) && !(flags[count * rows - 1]! & Flag.nan) ? null : loss;
  }

  #notify(change: Change): void {
    for (const listener of this.#listeners) listener(change);
  }
}
