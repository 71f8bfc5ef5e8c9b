// What is known of how a parameter is stored, and what of it does not go together.

/** What something is stored as, from an iteration on. */
export interface Form {
  iteration: number;
  dtype: string;
  device: string | null;
}

/** A remark; `of`: the cells that it is about. */
export interface Note {
  of: string[];
  text: string;
}

export interface Facts {
  parameter: Form | null;
  gradient: Form | null;
  /** That of the value whose gradient it is. */
  activation: Form | null;
  master: Form | null;
  /** What the optimizer keeps, by its own names. */
  state: [string, Form][];
  notes: Note[];
}

/** In the order of the columns. What else there is belongs to the optimizer's state. */
const OWN = ["parameter", "gradient", "activation", "master"] as const;

/** Too few digits for small updates to add up in. */
const isNarrow = (dtype: string): boolean => /^(b?float16|float8)/.test(dtype);

export function factsOf(forms: ReadonlyMap<string, readonly Form[]> | undefined): Facts {
  const now = (of: string): Form | null => forms?.get(of)?.at(-1) ?? null;
  const [parameter, gradient, activation, master] = OWN.map(now) as [Form | null, Form | null, Form | null, Form | null];
  const others = [...(forms?.keys() ?? [])].filter((of) => !(OWN as readonly string[]).includes(of));
  const state = others.map((of): [string, Form] => [of, now(of)!]);
  const facts: Facts = { parameter, gradient, activation, master, state, notes: [] };
  facts.notes = [...disagreements(facts), ...changes(forms)];
  return facts;
}

function disagreements({ parameter, gradient, master, state }: Facts): Note[] {
  const notes: Note[] = [];
  if (!parameter) return notes;
  const moved = master ?? parameter;
  const isTrained = gradient !== null || state.length > 0;
  if (isTrained && isNarrow(moved.dtype)) notes.push({ of: ["parameter", "master"], text: "no float32 copy: small updates are lost" });
  const what = master ? "its master copy" : "the parameter";
  const others: [string, string, Form][] = state.map(([name, form]) => ["state", name, form]);
  if (gradient) others.unshift(["gradient", "gradient", gradient]);
  for (const [of, name, form] of others) {
    if (form.dtype !== moved.dtype) notes.push({ of: [of], text: `${name} is ${form.dtype}, ${what} ${moved.dtype}` });
  }
  if (master) others.push(["master", "master copy", master]);
  for (const [of, name, form] of others) {
    if (form.device && parameter.device && form.device !== parameter.device) {
      notes.push({ of: [of, "device"], text: `${name} is on ${form.device}, the parameter on ${parameter.device}` });
    }
  }
  return together(notes);
}

/** Moments that say the same say it once. */
function together(notes: readonly Note[]): Note[] {
  const byRest = new Map<string, Note[]>();
  for (const note of notes) {
    const rest = `${note.of.join()} ${note.text.slice(note.text.indexOf(" "))}`;
    byRest.set(rest, [...(byRest.get(rest) ?? []), note]);
  }
  return [...byRest.values()].map((alike) => {
    const [first] = alike as [Note];
    if (alike.length === 1) return first;
    const names = alike.map(({ text }) => text.slice(0, text.indexOf(" ")));
    return { of: first.of, text: `${names.join(", ")}${first.text.slice(first.text.indexOf(" ")).replace(/ (is|was) /, (_, verb) => (verb === "is" ? " are " : " were "))}` };
  });
}

function changes(forms: ReadonlyMap<string, readonly Form[]> | undefined): Note[] {
  const notes: Note[] = [];
  for (const [of, each] of forms ?? []) {
    const [before, now] = each.slice(-2) as [Form, Form?];
    if (!now) continue;
    const cell = (OWN as readonly string[]).includes(of) ? of : "state";
    const what = of === "master" ? "master copy" : of;
    if (now.dtype !== before.dtype) notes.push({ of: [cell], text: `${what} was ${before.dtype} before iteration ${now.iteration}` });
    else if (now.device && before.device && now.device !== before.device) {
      notes.push({ of: [cell, "device"], text: `${what} was on ${before.device} before iteration ${now.iteration}` });
    }
  }
  return together(notes);
}
