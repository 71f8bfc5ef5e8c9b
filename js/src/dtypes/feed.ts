// What a table of dtypes knows beside the run itself. The columns of its overview have one row, the loss scale.
import type { AnyModel } from "@anywidget/types";
import { Feed } from "../data/feed";
import type { FeedTraits } from "../data/feed";
import type { AnswerMessage, Buffer } from "../data/wire";
import type { Form } from "./facts";
import { decodeNews } from "./wire";
import type { DtypesMessage, Entries, News } from "./wire";

export class DtypeFeed extends Feed<FeedTraits, DtypesMessage> {
  /** By the parameter's place and by what it is of, one after the other. */
  readonly forms = new Map<number, Map<string, Form[]>>();
  readonly entries = new Map<number, Entries>();
  states: Uint8Array = new Uint8Array(0);
  /** Steps that were skipped. */
  skipped = 0;
  /** Parameters whose entries have not come. */
  missing = 0;
  #brought: News | null = null;

  constructor(model: AnyModel<FeedTraits>) {
    super(model);
    this.restore();
  }

  override receive(message: DtypesMessage | AnswerMessage, buffers: readonly Buffer[]): void {
    // All of it first: what cannot be read changes nothing.
    this.#brought = message?.kind === "columns" ? decodeNews(message.texts, buffers.slice(3)) : null;
    super.receive(message, buffers.slice(0, 3));
  }

  protected override take({ skipped, missing }: DtypesMessage): void {
    this.skipped = skipped;
    this.missing = missing;
    const { changes, states, entries } = this.#brought!;
    for (const { place, of, ...form } of changes) {
      const own = this.forms.get(place) ?? new Map<string, Form[]>();
      this.forms.set(place, own.set(of, [...(own.get(of) ?? []), form]));
    }
    this.states = states;
    for (const [place, each] of entries) this.entries.set(place, each);
  }

  protected override restart(level: number): void {
    super.restart(level);
    this.forms.clear();
    this.entries.clear();
  }

  /** The newest loss scale; null before the first iteration, and where none was written down. */
  get scale(): number | null {
    const { count, max } = this.overview;
    const newest = count ? max[count - 1]! : NaN;
    return Number.isNaN(newest) ? null : newest;
  }
}
