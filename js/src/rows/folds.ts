// The module tree of the parameters' names: what stands together as a block, and which modules are folded into a row.
//
// A block is what a header stands above. Its modules are not shown one by one ("attn.qkv.weight" is one label), but
// everything that has a block inside can be folded with it: "encoder.3", or "encoder" whole.
import * as format from "../kit/format";
import type { Parameter } from "../data/store";

/** What one row of the picture stands for: a parameter, or a folded module. */
export interface Unit {
  /** Places of its parameters among all, ascending. */
  members: readonly number[];
  /** The parameter's name, or the module's path. */
  name: string;
  /** The dtype, or how many parameters there are. */
  note: string;
  block: string;
  folded: boolean;
}

const isNumber = (part: string | undefined): boolean => part !== undefined && /^\d+$/.test(part);

/**
 * The block of each name: its first component, and the second if that is a number ("encoder.0.attn.weight" ->
 * "encoder.0"), or all up to a number further on that other modules lie below ("model.layers.0.attn.weight" ->
 * "model.layers.0"). A bare name has none.
 */
export function blocksOf(names: readonly string[]): string[] {
  const paths = names.map((name) => name.split("."));
  const numbered = new Set<string>();
  for (const path of paths) {
    for (let i = 2; i < path.length - 2; i++) if (isNumber(path[i])) numbered.add(path.slice(0, i + 1).join("."));
  }
  return paths.map((path) => {
    if (path.length < 2) return "";
    if (path.length > 2 && isNumber(path[1])) return `${path[0]}.${path[1]}`;
    for (let i = 2; i < path.length - 1; i++) {
      const module = path.slice(0, i + 1).join(".");
      if (numbered.has(module)) return module;
    }
    return path[0]!;
  });
}

export const isInside = (name: string, module: string): boolean => name.startsWith(`${module}.`);

/** The outermost folded module that a block is, or lies in. */
function foldOf(block: string, folded: ReadonlySet<string>): string | null {
  for (let end = block.indexOf("."); end >= 0; end = block.indexOf(".", end + 1)) {
    if (folded.has(block.slice(0, end))) return block.slice(0, end);
  }
  return block && folded.has(block) ? block : null;
}

/** One unit a parameter, or a folded module, in declaration order; of the parameters that are shown. */
export function unitsOf(parameters: readonly Parameter[], folded: ReadonlySet<string>, isShown: (place: number) => boolean = () => true): Unit[] {
  const blocks = blocksOf(parameters.map((parameter) => parameter.name));
  const units: Unit[] = [];
  for (let place = 0; place < parameters.length; ) {
    const fold = foldOf(blocks[place]!, folded);
    let end = place + 1;
    if (fold !== null) while (end < parameters.length && isInside(parameters[end]!.name, fold)) end += 1;
    const members = range(place, end).filter(isShown);
    if (members.length) units.push(fold !== null && end - place > 1 ? foldedUnit(fold, members) : single(parameters, blocks, place));
    place = end;
  }
  return units;
}

const range = (start: number, stop: number): number[] => Array.from({ length: stop - start }, (_, i) => start + i);

const foldedUnit = (module: string, members: number[]): Unit => ({ members, name: module, note: format.count(members.length), block: module, folded: true });

function single(parameters: readonly Parameter[], blocks: readonly string[], place: number): Unit {
  const { name, dtype } = parameters[place]!;
  return { members: [place], name, note: format.shortDtype(dtype), block: blocks[place]!, folded: false };
}

/** The deepest that a block lies: so many levels can be folded. */
export function depthOf(names: readonly string[]): number {
  return blocksOf(names).reduce((deepest, block) => Math.max(deepest, block ? block.split(".").length : 0), 0);
}

/** The modules that are folded when none deeper than this is open; nothing is folded beyond `depthOf`. */
export function foldedAt(names: readonly string[], depth: number): Set<string> {
  const folded = new Set<string>();
  if (depth > depthOf(names)) return folded;
  const blocks = [...new Set(blocksOf(names))].filter(Boolean);
  for (const block of blocks) {
    const path = block.split(".");
    // A block that others lie in would take these along.
    if (path.length < depth && blocks.some((other) => isInside(other, block))) continue;
    folded.add(path.slice(0, depth).join("."));
  }
  return folded;
}

/** Fewer rows tell nothing of a large model. */
const LEAST = 8;

/** How deep a model is open at first: as deep as there is room for so many rows. */
export function depthFor(parameters: readonly Parameter[], most: number): number {
  const names = parameters.map((parameter) => parameter.name);
  const rows = (depth: number): number => unitsOf(parameters, foldedAt(names, depth)).length;
  let depth = depthOf(names) + 1;
  while (depth > 1 && rows(depth) > most && rows(depth - 1) >= LEAST) depth -= 1;
  return depth;
}

/** Open a module: what blocks it holds are shown, each still folded. */
export function opened(names: readonly string[], folded: ReadonlySet<string>, module: string): Set<string> {
  const inside = new Set(blocksOf(names.filter((name) => isInside(name, module))).filter((block) => isInside(block, module)));
  return new Set([...folded].filter((other) => other !== module).concat([...inside]));
}
