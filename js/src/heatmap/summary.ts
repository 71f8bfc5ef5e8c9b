// The picture in a sentence, for those who do not see it.
import * as format from "../kit/format";
import type { Domain } from "../data/colour";
import type { Store } from "../data/store";
import { Flag } from "../data/wire";

const KINDS: readonly [number, string][] = [
  [Flag.nan, "NaN"],
  [Flag.posinf, "+inf"],
  [Flag.neginf, "−inf"],
  [Flag.zero, "zero"],
  [Flag.unused, "unused"],
  [Flag.frozen, "frozen"],
  [Flag.not_optimized, "not in the optimizer"],
];

/** Superscripts are not read out well. */
const end = (base: number, exponent: number): string => (base === 10 ? `1e${exponent}` : format.power(base, exponent));

export interface Summed extends Pick<Store, "quantity" | "parameters" | "overview" | "run"> {
  domain: Domain | null;
  /** OR of each parameter's flags. */
  seen: Uint8Array;
}

export function summary({ quantity, parameters, overview, run, domain, seen }: Summed): string {
  const title = `Heatmap of the ${quantity.title} of ${format.many(parameters.length, quantity.of)}`;
  if (run.nothing) return `${title}: ${run.nothing}.`;
  const range = domain ? `, from ${end(domain.base, domain.lo)} to ${end(domain.base, domain.hi)}` : "";
  const kinds = KINDS.map(([flag, word]) => [seen.reduce((n, flags) => n + (flags & flag ? 1 : 0), 0), word] as const)
    .filter(([n]) => n)
    .map(([n, word]) => `${word} in ${format.count(n)}`);
  const seenKinds = kinds.length ? ` Seen at some time${quantity.where}: ${kinds.join(", ")}.` : "";
  return `${title} over ${format.many(overview.stop[overview.count - 1]!, "iteration")}${range}.${seenKinds}`;
}
