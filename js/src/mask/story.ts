// What has changed, when and by whom, in lines.
import type { Parameter } from "../data/feed";
import * as format from "../kit/format";
import { isInside } from "../rows/folds";
import type { Runs } from "./runs";
import { State } from "./state";
import type { Change } from "./store";

export interface Line {
  /** What is sorted by; null: now. */
  iteration: number | null;
  text: string;
}

const BY = { user: " by hand", handler: " by a handler", widget: " by a click" } as const;

/** How many names are read in a glance, and how often a parameter may come and go until that is all there is to say. */
const NAMED = 3;
const OFTEN = 3;

export function story(changes: readonly Change[], parameters: readonly Parameter[], runsOf: (place: number) => Runs): Line[] {
  const names = parameters.map((parameter) => parameter.name);
  const lines = [...changes.map(told), ...lossLines(names, runsOf)];
  lines.sort((a, b) => a.iteration! - b.iteration!);
  return [...lines, ...forgotten(names, runsOf)];
}

function told({ iteration, event, by, names, more }: Change): Line {
  return { iteration, text: `${listed(names.map((name) => name || "everything"), more)} ${event}${by ? BY[by] : ""}` };
}

function listed(names: readonly string[], more = 0): string {
  const rest = more + names.slice(NAMED).length;
  return names.slice(0, NAMED).join(", ") + (rest ? ` and ${format.count(rest)} more` : "");
}

/** Parameters that the loss reaches no longer, or again. */
function lossLines(names: readonly string[], runsOf: (place: number) => Runs): Line[] {
  const found = new Map<string, { iteration: number; verb: string; names: string[] }>();
  names.forEach((name, place) => {
    const turns = turnsOf(runsOf(place));
    const often = turns.length > OFTEN;
    for (const { iteration, leaves } of often ? turns.slice(0, 1) : turns) {
      const verb = often ? "left the loss and came back, time and again" : leaves ? "left the loss" : "came into the loss";
      const key = `${iteration} ${verb}`;
      const line = found.get(key) ?? { iteration, verb, names: [] };
      line.names.push(name);
      found.set(key, line);
    }
  });
  return [...found.values()].map(({ iteration, verb, names: those }) => ({ iteration, text: `${listed(those)} ${verb}` }));
}

function turnsOf({ start, bits }: Runs): { iteration: number; leaves: boolean }[] {
  const turns: { iteration: number; leaves: boolean }[] = [];
  let wasUnused: boolean | null = null;
  bits.forEach((state, k) => {
    if (!(state & (State.trained | State.unused | State.not_optimized))) return;
    const isUnused = (state & State.unused) !== 0;
    if (wasUnused !== null && isUnused !== wasUnused) turns.push({ iteration: start[k]!, leaves: isUnused });
    wasUnused = isUnused;
  });
  return turns;
}

/** Frozen among others of its module that train, and fewer: often an oversight. */
function forgotten(names: readonly string[], runsOf: (place: number) => Runs): Line[] {
  const now = names.map((_, place) => runsOf(place).bits.at(-1) ?? 0);
  const parents = new Map<string, number[]>();
  names.forEach((name, place) => {
    // Two levels up: a layer's own weight and bias are few.
    const module = name.split(".").slice(0, -2).join(".");
    if (module) parents.set(module, [...(parents.get(module) ?? []), place]);
  });
  const odd: string[] = [];
  for (const [module, places] of parents) {
    const inside = names.flatMap((name, place) => (isInside(name, module) ? [place] : []));
    const trained = inside.filter((place) => now[place] === State.trained).length;
    const frozen = inside.filter((place) => now[place] === State.frozen).length;
    if (frozen && frozen < trained) odd.push(...places.filter((place) => now[place] === State.frozen).map((place) => names[place]!));
  }
  return odd.length ? [{ iteration: null, text: `${listed(odd)}: frozen inside a block that trains` }] : [];
}
