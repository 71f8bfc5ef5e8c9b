// What an inspector can be told in a page: the answers that it carries, of which the nearest iteration's is given.
import type { Of } from "../data/link";
import type { Blob64 } from "./blobs";
import { bytesAt } from "./blobs";

/** What Python answers: see gradviz/widgets/inspection.py. */
interface Told {
  name: string;
  of: Of;
  iteration: number;
}

export interface Wish {
  name: string;
  of: Of;
  iteration: number | null;
}

/** Answers, and how many bytes each of their buffers has; and these buffers, one behind the other. */
export interface Inspected {
  told: Blob64;
  buffers: Blob64;
}

export class Answers {
  #all: Promise<readonly (readonly [Told, Uint8Array[]])[]> | null = null;

  constructor(private readonly inspected: Inspected) {}

  async of({ name, of, iteration }: Wish): Promise<[object, Uint8Array[]]> {
    this.#all ??= this.#read();
    const away = (told: Told): number => (iteration === null ? -told.iteration : Math.abs(told.iteration - iteration));
    const own = (await this.#all).filter(([told]) => told.name === name && told.of === of);
    if (!own.length) throw new Error(`${name} is not looked into in this page.`);
    const [told, buffers] = own.reduce((best, each) => (away(each[0]) < away(best[0]) ? each : best));
    return [{ ...told, asked: iteration }, buffers];
  }

  async #read(): Promise<readonly (readonly [Told, Uint8Array[]])[]> {
    const all = JSON.parse(new TextDecoder().decode(await bytesAt(this.inspected.told))) as [Told, number[]][];
    const bytes = await bytesAt(this.inspected.buffers);
    let at = 0;
    return all.map(([told, sizes]) => [told, sizes.map((size) => bytes.slice(at, (at += size)))] as const);
  }
}
