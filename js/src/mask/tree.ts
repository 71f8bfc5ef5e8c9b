// The module tree as rows: a module that is open stands above what is in it, and has a row of its own.
import type { Unit } from "../rows/folds";
import { isInside } from "../rows/folds";

export interface TreeRow {
  /** The parameter's name, or the module's path. */
  name: string;
  /** The name as shown: without the modules above. */
  label: string;
  /** How many modules it lies in, of those that have rows. */
  depth: number;
  /** Places of the parameters that it stands for. */
  members: readonly number[];
  /** Null for a parameter. */
  open: boolean | null;
}

interface Module {
  path: string;
  inside: (Module | Unit)[];
}

const isModule = (node: Module | Unit): node is Module => "path" in node;

/** `flat`: units stand alone, under their whole names, since their order tears modules apart. */
export function treeOf(units: readonly Unit[], flat = false): TreeRow[] {
  const root: Module = { path: "", inside: [] };
  for (const unit of units) {
    let module = root;
    for (const path of flat ? [] : above(unit)) {
      const last = module.inside.at(-1);
      if (last && isModule(last) && last.path === path) module = last;
      else {
        const made: Module = { path, inside: [] };
        module.inside.push(made);
        module = made;
      }
    }
    module.inside.push(unit);
  }
  const rows: TreeRow[] = [];
  for (const node of root.inside) write(simple(node), "", 0, rows);
  return rows;
}

/** The modules that a unit stands in, from the outermost. */
function above({ name, block, folded }: Unit): string[] {
  const parts = block.split(".");
  const paths = parts.map((_, i) => parts.slice(0, i + 1).join("."));
  return block ? paths.filter((path) => !folded || isInside(name, path)) : [];
}

/** Without modules that hold a single thing: its own row says it. */
function simple(node: Module | Unit): Module | Unit {
  if (!isModule(node)) return node;
  const inside = node.inside.map(simple);
  return inside.length === 1 ? inside[0]! : { path: node.path, inside };
}

const membersOf = (node: Module | Unit): readonly number[] => (isModule(node) ? node.inside.flatMap(membersOf) : node.members);

function write(node: Module | Unit, parent: string, depth: number, rows: TreeRow[]): void {
  const name = isModule(node) ? node.path : node.name;
  const label = labelOf(name, parent);
  if (!isModule(node)) {
    rows.push({ name, label, depth, members: node.members, open: node.folded ? false : null });
    return;
  }
  rows.push({ name, label, depth, members: membersOf(node), open: true });
  for (const each of node.inside) write(each, node.path, depth + 1, rows);
}

/** A number alone says little: "layer4.0" below "layer4", but "conv1.weight" below "layer4.0". */
function labelOf(name: string, parent: string): string {
  if (!parent) return name;
  const rest = name.slice(parent.length + 1);
  return /^\d+(\.|$)/.test(rest) ? `${parent.slice(parent.lastIndexOf(".") + 1)}.${rest}` : rest;
}
