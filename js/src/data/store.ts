// What a heatmap knows beside the run itself: what its numbers are, their colours, and what is selected.
import type { AnyModel } from "@anywidget/types";
import type { Scale } from "./colour";
import { pixelTable, SCALES } from "./colour";
import { Feed } from "./feed";
import type { FeedTraits } from "./feed";
import type { Of } from "./link";
import { throttled } from "../kit/throttle";
import type { Selection } from "./selection";
import type { ColumnsMessage } from "./wire";
import { bytesOf, Flag } from "./wire";

export type { Change, Parameter, Shown } from "./feed";

/** What the numbers are: what they are called, beside the bar, in a sentence and before a number. */
export interface Quantity {
  label: string;
  title: string;
  noun: string;
  /** Of a ratio: the run that is divided, and the one that it is divided by. */
  runs: readonly [string, string] | null;
  /** Behind a mark's word, where there is more than one run that it may have been seen in. */
  where: string;
  /** What has such a number: one row of the picture. */
  of: string;
  /** Whether numbers were rounded, to three digits or so. */
  rounded?: boolean;
}

/** What can be chosen: its name, the word on its button, its tooltip, and the stages that it needs. */
export type Offer = readonly [string, string, string, readonly string[]];

export interface Offers {
  statistics: readonly Offer[];
  stages: readonly Offer[];
}

export type Traits = FeedTraits & {
  _colours: DataView | null;
  _quantity: Quantity;
  _choices: Offers;
  selection: Selection | null;
};

export type Model = AnyModel<Traits>;

/** Python is told of a selection no more often, in milliseconds: a brush makes sixty a second. */
const SAVE_MS = 300;

export class Store extends Feed<Traits> {
  readonly quantity: Quantity;
  readonly scale: Scale;
  table = pixelTable(new Uint8Array(0));
  stages: readonly string[] = [];
  metrics: Float64Array = new Float64Array(0);
  /** The batch loss of the newest iteration; null before the first, and where none was taken. */
  loss: number | null = null;
  readonly #save = throttled(SAVE_MS, () => this.model.save_changes());

  constructor(model: Model) {
    super(model);
    this.quantity = model.get("_quantity");
    this.scale = SCALES[this.quantity.runs ? "ratios" : "norms"]!;
    this.readColours();
    this.restore();
  }

  override get traits(): Record<string, () => void> {
    return { ...super.traits, _colours: () => this.readColours(), selection: () => this.onSelection() };
  }

  readColours(): void {
    const bytes = this.model.get("_colours");
    this.table = pixelTable(bytes ? bytesOf(bytes) : new Uint8Array(0));
    this.notify({ kind: "colours" });
  }

  get offers(): Offers {
    return this.model.get("_choices") ?? { statistics: [], stages: [] };
  }

  /** What the rows are. */
  get of(): Of {
    return this.quantity.of === "parameter" ? "parameters" : "activations";
  }

  get selection(): Selection | null {
    return this.model.get("selection") ?? null;
  }

  /** Tell all views and Python what is selected. */
  select(selection: Selection | null): void {
    if (!selection && !this.selection) return;
    this.model.set("selection", selection);
    this.#save();
    this.onSelection();
  }

  onSelection(): void {
    this.notify({ kind: "selection" });
  }

  /** Put a question to Python, which answers when the kernel is free. */
  ask(question: { id: string; statistic: string; stage: string; start: number; stop: number }): void {
    this.say({ kind: "ask", ...question });
  }

  protected override take(message: ColumnsMessage, metrics: Float64Array): void {
    this.stages = message.stages ?? [];
    // The means by name, and behind them the newest batch's own loss.
    this.metrics = metrics;
    this.loss = message.run.iteration ? this.#taken(metrics[message.run.metric_names.length]) : null;
  }

  protected override restart(level: number): void {
    super.restart(level);
    this.loss = null;
  }

  /** NaN is a loss only if the newest column says so. */
  #taken(loss = NaN): number | null {
    const { count, rows, flags } = this.overview;
    return Number.isNaN(loss) && !(flags[count * rows - 1]! & Flag.nan) ? null : loss;
  }
}
