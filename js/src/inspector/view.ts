// One view: what is looked into in words, the chart, and what Python said of it; and what to do over when something changes.
import { Axis } from "../time/axis";
import { describeLoss, describeParameter } from "../heatmap/describe";
import { Marks } from "../heatmap/marks";
import type { Shared } from "../data/link";
import { laneOf, lossLane, mergeCell } from "../data/lanes";
import { isNonFinite, LEGEND, lookOf, wordOf } from "../data/looks";
import { columnsIn } from "../data/pixels";
import { element, setLine, setText, UNSPOKEN } from "../kit/element";
import { messageOf } from "../kit/errors";
import { onDrag } from "../kit/drag";
import * as format from "../kit/format";
import { framesOf } from "../kit/frames";
import { listen } from "../kit/listen";
import { Ruler } from "../kit/measure";
import { resize } from "../kit/surface";
import { readTheme } from "../kit/theme";
import type { Theme } from "../kit/theme";
import type { Description } from "../kit/tooltip";
import { Lens } from "../time/lens";
import { Rangebar } from "../time/rangebar";
import { Chart } from "./chart";
import { examplesOf, howToBin, stagesOf } from "./details";
import { Histogram } from "./histogram";
import { pickerOf } from "./picker";
import type { InspectorStore } from "./store";

/** Css pixels of a swatch in the legend. */
const KEY = { width: 20, height: 12 };

export function view(store: InspectorStore, host: HTMLElement, signal: AbortSignal): void {
  const { questions, of } = store;
  const lens = new Lens(() => frames.schedule());
  const ruler = new Ruler();
  const link = store.link(onTold, signal);
  let theme: Theme | null = null;
  let marks: Marks | null = null;
  const stale = { layout: true, theme: true };
  /** What the lists were made of. */
  let listed: unknown = null;
  let late: ReturnType<typeof setTimeout> | undefined;

  const picker = pickerOf((name) => link.look(of, name));
  const [name, about, state] = [element("div", "gv-inspected"), element("div", "gv-quiet"), element("div", "gv-state")];
  const newest = element("button", "gv-button gv-newest", { type: "button" }, "follow the newest");
  const waiting = element("div", "gv-waiting-line", { role: "status" });
  const alert = element("div", "gv-error", { role: "alert" });
  const quiet = (): HTMLElement => element("span", "gv-quiet");
  const [lossText, lossEnds, normText, normEnds, binsText, stagesText, examplesText] = [element("span", ""), quiet(), element("span", ""), quiet(), quiet(), quiet(), quiet()];
  const heading = (word: string, ...beside: HTMLElement[]): HTMLElement => element("div", "gv-heading", {}, element("b", "", {}, word), " ", ...beside);
  const root = element("div", "gv gv-inspector", { "data-lm-suppress-shortcuts": "true" });
  const commands = { point: (iteration: number | null) => link.tell("cursor", iteration === null ? null : { iteration }), choose: (iteration: number) => look(iteration) };
  const chart = new Chart(lens, root, commands, heading("loss", lossText, lossEnds), heading(store.quantity.noun, normText, normEnds), signal);
  const axis = new Axis();
  const range = new Rangebar(lens, signal);
  const keys = element("div", "gv-foot", UNSPOKEN);
  const histogram = new Histogram(signal);
  const [bins, stages, examples] = [element("div", ""), element("div", ""), element("div", "")];
  const section = (title: string, beside: HTMLElement, ...parts: HTMLElement[]): HTMLElement => element("section", "gv-section", { "aria-label": title }, heading(title, beside), ...parts);
  const over = element("div", "gv-section", {}, chart.element, axis.element, range.element, keys);
  const asked = element("div", "gv-asked", {}, section("values, log₂ size", binsText, histogram.element, bins), section("stage", stagesText, stages), section("examples that pull hardest", examplesText, examples));
  const probe = element("span", "gv-probe", UNSPOKEN);
  root.append(element("div", "gv-inspector-head", {}, element("div", "", {}, name, about, state), element("div", "gv-inspector-tools", {}, newest, picker.element)), alert, over, waiting, asked, probe);

  const frames = framesOf(root, act, () => refresh("layout"), () => refresh("theme"), signal);
  host.append(root);
  const follow = (down: PointerEvent): { move(event: PointerEvent): void } => {
    const from = lens.extent;
    return { move: (event) => lens.pan(down.clientX - event.clientX, from) };
  };
  onDrag(axis.element, follow, signal);
  listen(newest, "click", () => look(null));
  const unsubscribe = store.subscribe((change) => {
    // Python, or another view, looks into something else.
    if (change.kind === "selection") tellWish();
    frames.schedule();
  });
  listen(signal, "abort", () => {
    unsubscribe();
    clearTimeout(late);
    root.remove();
  });
  if (store.wish.name || store.wish.iteration !== null) tellWish();
  else onTold("focus");
  frames.schedule();

  function refresh(what: keyof typeof stale): void {
    stale[what] = true;
    frames.schedule();
  }

  /** The name that is looked into: the first one, until another is chosen. */
  function chosen(): string {
    return link.focused(of) || store.wish.name || (store.names[0] ?? "");
  }

  function look(iteration: number | null): void {
    link.tell("focus", { of, name: chosen(), iteration });
  }

  function tellWish(): void {
    const { wish } = store;
    link.tell("focus", { of, name: wish.name || chosen(), iteration: wish.iteration });
  }

  function onTold(what: keyof Shared): void {
    const { focus } = link.shared;
    if (what === "focus" && focus?.of === of) store.choose(focus);
    frames.schedule();
  }

  function act(): void {
    try {
      paint();
    } catch (error) {
      setLine(alert, `gradviz could not draw: ${messageOf(error)}`);
    }
  }

  function paint(): void {
    const dpr = devicePixelRatio || 1;
    if (stale.theme || marks?.dpr !== dpr) {
      theme = readTheme(probe);
      marks = new Marks(theme, dpr);
    }
    if (stale.layout || stale.theme) {
      ruler.follow(root);
      chart.resize(Math.max(1, Math.floor(chart.element.clientWidth * dpr)), dpr);
    }
    stale.layout = stale.theme = false;
    const label = chosen();
    const place = store.names.indexOf(label);
    const { focus, cursor, selection } = link.shared;
    const iteration = focus?.of === of ? focus.iteration : null;
    const at = cursor?.iteration ?? iteration ?? Math.max(0, store.end - 1);
    lens.update(store.end, store.run.iterations, chart.element.clientWidth);
    const shown = store.columnsFor(lens.extent);
    const painted = chart.paint(shown.columns, Math.max(0, place), store.survey.hasLoss, theme!, marks!);
    chart.mark(cursor?.iteration ?? null, iteration, selection?.of === of ? selection.iterations : null);
    axis.element.style.visibility = store.end ? "" : "hidden";
    axis.update(store.epochs, store.firstEpoch, lens.extent, chart.element.clientWidth, (text) => ruler.measure(text, "axis"));
    range.update();
    picker.update(store.names);
    newest.hidden = iteration === null;

    const cell = place < 0 ? null : cellAt(at, place);
    sayHead(label, place, cell);
    sayChart(painted, cell);
    chart.tell(cell?.description ?? null, at, store.end);
    paintKeys(painted.norm.looks, dpr);
    // Of several iterations only one may be recorded, and that is the one to ask about.
    const wish = { name: label, iteration: cursor || iteration !== null ? (cell?.first ?? at) : null };
    if (place >= 0) ask(wish);
    paintAnswer(wish, place, dpr);
    setLine(alert, store.error && `gradviz could not draw: ${store.error}`);
  }

  /** What the columns know of an iteration, and the first one of its column. */
  function cellAt(iteration: number, place: number): { description: Description; look: number; loss: string; first: number } | null {
    const { columns, exact } = store.columnsFor({ start: iteration, span: 1 });
    const [column] = columnsIn(columns, { start: iteration, span: 1 });
    if (!(column < columns.count) || columns.start[column]! > iteration) return null;
    const [start, stop] = [columns.start[column]!, columns.stop[column]!];
    const when = { start, stop, isOne: exact, firstEpoch: store.epochOf(start), lastEpoch: store.epochOf(exact ? start : stop - 1) };
    const cell = mergeCell(laneOf(columns, place), column, column);
    const loss = describeLoss(mergeCell(lossLane(columns), column, column), when);
    return { look: lookOf(cell.max, cell.flags), description: describeParameter(store.parameters[place]!, cell, when, store.quantity), loss: [loss.value.replace("loss ", ""), ...loss.flags].filter(Boolean).join(", "), first: exact ? start : iteration };
  }

  function sayHead(label: string, place: number, cell: ReturnType<typeof cellAt>): void {
    setText(name, label || "nothing to look into yet");
    const parameter = store.parameters[place];
    const gradient = questions.answer?.name === label && questions.answer.gradient_dtype !== parameter?.dtype ? questions.answer.gradient_dtype : null;
    const dtypes = parameter?.dtype ? `${format.shape(parameter.shape)} · ${parameter.dtype}${gradient ? `, gradient ${gradient}` : ""}` : "";
    setText(about, [cell?.description.when, dtypes].filter(Boolean).join(" · "));
    setLine(state, store.run.nothing ?? (place < 0 && label ? `the run has no ${store.quantity.of} of this name` : (cell?.description.flags.join(", ") ?? null)));
    state.classList.toggle("gv-bad", /NaN|inf/.test(state.textContent ?? ""));
  }

  function sayChart({ loss, norm }: ReturnType<Chart["paint"]>, cell: ReturnType<typeof cellAt>): void {
    const { noun } = store.quantity;
    const between = (low: number, high: number): string => `${format.glance(low)} to ${format.glance(high)}`;
    setText(lossText, cell?.loss ?? "–");
    setText(lossEnds, loss ? between(loss.min, loss.max) + (loss.log ? ", log" : "") : "");
    setText(normText, cell?.description.value.replace(`${noun} `, "") || (cell ? wordOf(cell.look) : "–"));
    setText(normEnds, norm.ends ? `${between(...norm.ends)}, log` : "");
    chart.element.setAttribute("aria-label", `iteration of ${chosen()}: arrow keys move, Enter stays`);
    chart.say(loss ? `loss ${between(loss.min, loss.max)}` : "no loss", norm.ends ? `${noun} ${between(...norm.ends)}, logarithmic` : `${noun}: none above 0`);
  }

  function paintKeys(looks: ReadonlySet<number>, dpr: number): void {
    const seen = LEGEND.filter(({ look }) => looks.has(look));
    const made = seen.map(({ word }) => word).join() + root.dataset.gvTheme + dpr;
    if (keys.dataset.made === made) return;
    keys.dataset.made = made;
    keys.replaceChildren(
      ...seen.map(({ look, word }) => {
        const swatch = element("canvas", "gv-swatch");
        const [width, height] = [Math.round(KEY.width * dpr), Math.round(KEY.height * dpr)];
        resize(swatch, width, height, dpr);
        const x = swatch.getContext("2d")!;
        marks!.run(x, look, 0, width, 0, height);
        if (isNonFinite(look)) marks!.chip(x, { look, from: 0, to: width, left: 0, right: width, glyph: true }, 0, height);
        return element("span", "gv-key", {}, swatch, word);
      }),
    );
    keys.hidden = !seen.length;
  }

  function ask(wish: { name: string; iteration: number | null }): void {
    const wait = questions.want(wish, store.end, performance.now());
    clearTimeout(late);
    if (wait !== null) late = setTimeout(() => frames.schedule(), wait);
  }

  function paintAnswer(wish: { name: string; iteration: number | null }, place: number, dpr: number): void {
    const { answer, error } = questions;
    const isLate = place >= 0 && store.end > 0 && questions.isWaitingFor(wish);
    setText(waiting, isLate ? "waiting for the kernel …" : error);
    waiting.classList.toggle("gv-bad", !isLate && !!error);
    asked.classList.toggle("gv-old", isLate || !!error);
    asked.hidden = !answer;
    if (!answer) return;
    const told = (what: number | null): string => (what === null ? "" : what === answer.iteration && !isLate ? `of iteration ${format.count(what)}` : `of iteration ${format.count(what)}, the nearest ${store.isOffline ? "in this page" : "recorded"}`);
    setText(stagesText, wish.iteration === null || wish.iteration === answer.iteration ? "" : told(answer.iteration));
    setText(binsText, told(answer.bins_iteration));
    setText(examplesText, told(answer.examples_iteration));
    histogram.element.hidden = answer.bins_iteration === null;
    if (!histogram.element.hidden) histogram.paint(answer.bins, histogram.element.clientWidth, theme!, marks!, dpr);
    if (listed === answer) return;
    listed = answer;
    bins.replaceChildren(...(answer.bins_iteration === null ? [howToBin()] : []));
    stages.replaceChildren(...stagesOf(answer));
    examples.replaceChildren(...examplesOf(answer));
  }
}
