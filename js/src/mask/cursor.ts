// Which row and iteration are looked at, by pointer or by keys: a line, a box and a tooltip above the lanes. Looking
// never asks the kernel.
import { element, setText } from "../kit/element";
import type { Description } from "../kit/tooltip";
import { tooltip } from "../kit/tooltip";
import type { Lens } from "../time/lens";
import { sentence } from "./describe";
import type { Plot } from "./plot";
import { PITCH } from "./plot";
import type { AllRuns } from "./runs";

export interface Commands {
  fold(row: number): void;
  act(row: number): void;
  /** The other widgets of the run are told which iteration is looked at. */
  point(iteration: number | null): void;
}

interface At {
  row: number;
  iteration: number;
  by: "pointer" | "keys";
}

export class Cursor {
  readonly #line = element("div", "gv-line");
  readonly #tooltip = tooltip();
  readonly #live = element("div", "gv-live", { "aria-live": "polite" });
  #at: At | null = null;
  #speak: ReturnType<typeof setTimeout> | undefined;

  constructor(
    private readonly root: HTMLElement,
    private readonly grid: HTMLElement,
    private readonly plot: Plot,
    private readonly lens: Lens,
    private readonly runs: () => AllRuns,
    private readonly describe: (row: number, iteration: number) => Description,
    private readonly commands: Commands,
    signal: AbortSignal,
  ) {
    plot.cells.append(this.#line);
    root.append(this.#tooltip.element, this.#live);
    this.#line.hidden = true;
    plot.cells.addEventListener("pointermove", (event) => this.#point(event), { signal });
    plot.cells.addEventListener("pointerleave", () => this.#at?.by === "pointer" && this.clear(), { signal });
    grid.addEventListener("keydown", (event) => this.#onKey(event), { signal });
    // What asks before something is frozen gives the focus back.
    grid.addEventListener("blur", ({ relatedTarget }) => root.contains(relatedTarget as Node | null) || this.clear(), { signal });
    plot.scroll.addEventListener("scroll", () => this.update(), { signal, passive: true });
    signal.addEventListener("abort", () => clearTimeout(this.#speak));
  }

  get iteration(): number | null {
    return this.#at?.iteration ?? null;
  }

  clear(): void {
    clearTimeout(this.#speak);
    setText(this.#live, "");
    this.#goTo(null);
  }

  /** The picture was painted anew. */
  update(): void {
    const { plot, lens } = this;
    const end = this.runs().end;
    if (this.#at && (!end || !plot.rows.length)) this.#at = null;
    const at = this.#at;
    if (at) {
      at.row = Math.min(at.row, plot.rows.length - 1);
      at.iteration = Math.min(at.iteration, end - 1);
    }
    plot.mark(at?.by === "keys" ? at.row : null);
    if (at?.by === "keys") this.grid.setAttribute("aria-activedescendant", plot.idOf(at.row));
    else this.grid.removeAttribute("aria-activedescendant");
    const x = at ? ((at.iteration + 0.5 - lens.extent.start) * lens.width) / lens.extent.span : -1;
    this.#line.hidden = !at || x < 0 || x > lens.width;
    if (!at || this.#line.hidden) {
      this.#tooltip.hide();
      return;
    }
    this.#line.style.cssText = `left:${x}px;top:${at.row * PITCH}px;height:${PITCH}px`;
    const [cells, root] = [plot.cells.getBoundingClientRect(), this.root.getBoundingClientRect()];
    const description = this.describe(at.row, at.iteration);
    this.#tooltip.show(description, cells.left - root.left + x, cells.top - root.top + (at.row + 0.5) * PITCH, this.root);
    if (at.by === "keys") this.#say(description);
  }

  #point({ clientX, clientY }: PointerEvent): void {
    const box = this.plot.cells.getBoundingClientRect();
    const row = Math.floor((clientY - box.top) / PITCH);
    const iteration = Math.floor(this.lens.at(clientX - box.left));
    const isThere = row >= 0 && row < this.plot.rows.length && iteration >= 0 && iteration < this.runs().end;
    this.#goTo(isThere ? { row, iteration, by: "pointer" } : null);
  }

  #goTo(there: At | null): void {
    this.#at = there;
    this.update();
    this.commands.point(this.iteration);
  }

  #onKey(event: KeyboardEvent): void {
    if (event.target !== this.grid || event.ctrlKey || event.metaKey || event.altKey) return;
    const { key } = event;
    const at = this.#at;
    if (key === "Escape") this.clear();
    else if (key === " " && at) this.commands.fold(at.row);
    else if (key === "Enter" && at) this.commands.act(at.row);
    else if (!this.#step(key)) return;
    event.preventDefault();
    event.stopPropagation();
  }

  /** Up and down by rows, left and right from change to change. */
  #step(key: string): boolean {
    const moves: Record<string, number> = { ArrowUp: -1, ArrowDown: 1, PageUp: -10, PageDown: 10, Home: -Infinity, End: Infinity, ArrowLeft: 0, ArrowRight: 0 };
    const by = moves[key];
    const { rows } = this.plot;
    const { end } = this.runs();
    if (by === undefined || !rows.length || !end) return false;
    const last = rows.length - 1;
    // The first key brings the cursor to what is now.
    const at = this.#at;
    const row = at ? Math.max(0, Math.min(last, at.row + by)) : 0;
    const iteration = !at ? end - 1 : by ? at.iteration : this.#turn(row, at.iteration, key === "ArrowLeft");
    this.plot.reveal(row);
    this.#goTo({ row, iteration, by: "keys" });
    return true;
  }

  /** Where the state of a row changes next, or did last. */
  #turn(row: number, iteration: number, isBack: boolean): number {
    const { start } = this.runs().of(this.plot.rows[row]!.members);
    if (isBack) return start.findLast((at) => at < iteration) ?? 0;
    return start.find((at) => at > iteration) ?? this.runs().end - 1;
  }

  /** Once the keys rest. */
  #say(description: Description): void {
    clearTimeout(this.#speak);
    this.#speak = setTimeout(() => setText(this.#live, sentence(description)), 150);
  }
}
