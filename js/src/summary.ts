// The picture in a sentence, for those who do not see it.
import * as format from "./format";
import type { Store } from "./store";
import { Flag } from "./wire";

const KINDS: readonly [number, string][] = [
  [Flag.nan, "NaN"],
  [Flag.posinf, "+inf"],
  [Flag.neginf, "−inf"],
  [Flag.zero, "zero"],
  [Flag.unused, "unused"],
  [Flag.frozen, "frozen"],
  [Flag.not_optimized, "not in the optimizer"],
];

export function summary({ parameters, overview, domain, seen }: Pick<Store, "parameters" | "overview" | "domain" | "seen">): string {
  const title = `Heatmap of the gradient norms of ${format.count(parameters.length)} parameters`;
  if (!overview.count) return `${title}: no iteration recorded yet.`;
  const range = domain ? `, from 1e${domain.lo} to 1e${domain.hi}` : "";
  const kinds = KINDS.map(([flag, word]) => [seen.reduce((n, flags) => n + (flags & flag ? 1 : 0), 0), word] as const)
    .filter(([n]) => n)
    .map(([n, word]) => `${word} in ${format.count(n)}`);
  const seenKinds = kinds.length ? ` Seen at some time: ${kinds.join(", ")}.` : "";
  return `${title} over ${format.count(overview.stop[overview.count - 1]!)} iterations${range}.${seenKinds}`;
}
