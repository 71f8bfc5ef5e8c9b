// A widget's model without a kernel: its traits, what Python would send it, and answers to what it asks.
import { messageOf } from "../kit/errors";
import type { Blob64 } from "./blobs";
import { bytesAt, isBlob } from "./blobs";
import { Answers } from "./inspected";
import type { Inspected, Wish } from "./inspected";
import type { Pictures, Question } from "./pictures";
import { answer, partOf } from "./pictures";

/** A widget as the page has it: see gradviz/widgets/embedded.py. */
export interface Part {
  label: string;
  /** Above the others, beside them, or behind a tab. */
  place: "top" | "side" | "tab";
  script: Blob64;
  style: Blob64;
  traits: Record<string, unknown>;
  message: Record<string, unknown>;
  buffers: readonly (Blob64 | { picture: string })[];
  pictures: Pictures;
  inspected?: Inspected;
}

type Listener = (...values: unknown[]) => void;
type Content = { kind?: string; id?: string; have?: number; view?: boolean } & Record<string, unknown>;

export class Model {
  readonly #listeners = new Map<string, Set<Listener>>();
  readonly #answers: Answers | null;
  #isTold = false;

  private constructor(
    private readonly part: Part,
    private readonly traits: Record<string, unknown>,
  ) {
    this.#answers = part.inspected ? new Answers(part.inspected) : null;
  }

  static async of(part: Part): Promise<Model> {
    const traits = Object.entries(part.traits).map(async ([name, value]) => [name, isBlob(value) ? new DataView((await bytesAt(value)).buffer) : value]);
    return new Model(part, Object.fromEntries(await Promise.all(traits)));
  }

  get(name: string): unknown {
    return this.traits[name];
  }

  set(name: string, value: unknown): void {
    this.traits[name] = value;
    this.#emit(`change:${name}`);
  }

  save_changes(): void {}

  on(name: string, act: Listener): void {
    this.#listeners.set(name, (this.#listeners.get(name) ?? new Set()).add(act));
  }

  off(name: string, act: Listener): void {
    this.#listeners.get(name)?.delete(act);
  }

  send(content: Content): void {
    void this.#hear(content);
  }

  async #hear(content: Content): Promise<void> {
    if (content.kind === "hello") {
      if (this.#isTold) return;
      this.#isTold = true;
      const whole = await this.#whole();
      this.#emit("msg:custom", ...whole);
    } else if (content.id) {
      const about = { kind: "answer", id: content.id };
      try {
        const [told, buffers] = await this.#answer(content);
        this.#emit("msg:custom", { ...told, ...about }, buffers);
      } catch (error) {
        this.#emit("msg:custom", { ...about, error: messageOf(error) }, []);
      }
    }
  }

  async #answer(content: Content): Promise<[object, Uint8Array[]]> {
    if (content.kind === "ask") return answer(this.part.pictures, content as unknown as Question);
    if (content.kind === "inspect" && this.#answers) return this.#answers.of(content as unknown as Wish);
    throw new Error("This page is a run as it was saved: nothing else can be asked of it.");
  }

  async #whole(): Promise<[object, Uint8Array[]]> {
    const { message, buffers, pictures } = this.part;
    let { level } = message;
    const told: Uint8Array[] = [];
    for (const buffer of buffers) {
      if (isBlob(buffer)) told.push(await bytesAt(buffer));
      else {
        const part = await partOf(pictures[buffer.picture]!);
        told.push(part.bytes);
        ({ level } = part);
      }
    }
    return [{ ...message, level }, told];
  }

  #emit(name: string, ...values: unknown[]): void {
    for (const act of [...(this.#listeners.get(name) ?? [])]) act(...values);
  }
}
