// One view of a panel: the head line, the curves, and at the end what went wrong. The last is a box of its own, so that
// a page can place it elsewhere.
import { element, setLine, setText, UNSPOKEN } from "../kit/element";
import { messageOf } from "../kit/errors";
import { framesOf } from "../kit/frames";
import { listen } from "../kit/listen";
import type { Theme } from "../kit/theme";
import { readTheme } from "../kit/theme";
import { tooltip } from "../kit/tooltip";
import { Flag } from "../data/wire";
import { Marks } from "../heatmap/marks";
import * as format from "../kit/format";
import { statusLine } from "../run/status";
import type { Pointed, Series } from "./curve";
import { Curve } from "./curve";
import { Steer } from "./steer";
import type { PanelStore } from "./store";
import { verdictText } from "./verdict";

export function view(store: PanelStore, host: HTMLElement, signal: AbortSignal): void {
  let theme: Theme | null = null;
  let marks: Marks | null = null;
  const curves = new Map<string, Curve>();

  const line = statusLine();
  const steer = new Steer(store);
  const said = element("div", "gv-panel-said", { role: "status" });
  const alert = element("div", "gv-error", { role: "alert" });
  const grid = element("div", "gv-curves");
  const words = tooltip();
  const probe = element("span", "gv-probe", UNSPOKEN);
  const head = element("div", "gv-head", {}, ...line.parts, steer.element);
  const root = element("div", "gv gv-panel", { "data-lm-suppress-shortcuts": "true" }, head, line.progress, said, line.message, alert, grid, probe, words.element);

  const name = element("b", "");
  const text = element("span", "");
  const show = element("button", "gv-show", { type: "button" }, "Show");
  const verdict = element("div", "gv gv-verdict", { role: "status" }, element("p", "", {}, name, text, " ", show));
  host.append(root, verdict);

  const link = store.link((what, isOwn) => !isOwn && what === "cursor" && frames.schedule(), signal);
  const frames = framesOf(root, paint, () => frames.schedule(), () => retheme(), signal);
  const unsubscribe = store.subscribe(() => frames.schedule());
  listen(show, "click", () => {
    const { verdict: found } = store;
    if (found) link.tell("focus", { of: "parameters", name: found.parameter, iteration: found.iteration });
  });
  listen(signal, "abort", () => {
    unsubscribe();
    root.remove();
    verdict.remove();
  });
  retheme();

  function retheme(): void {
    theme = marks = null;
    verdict.dataset.gvTheme = root.dataset.gvTheme;
    frames.schedule();
  }

  function paint(): void {
    try {
      update();
    } catch (error) {
      setLine(alert, `gradviz could not draw: ${messageOf(error)}`);
    }
  }

  function update(): void {
    const dpr = devicePixelRatio || 1;
    theme ??= readTheme(probe);
    if (!marks || marks.dpr !== dpr) marks = new Marks(theme, dpr);
    line.update(store.run, store.catchingUp, store.newest ? null : store.run.nothing);
    steer.update();
    setLine(said, store.said?.text ?? null);
    said.classList.toggle("gv-bad-news", store.said?.isError ?? false);
    setLine(alert, store.error && `gradviz could not draw: ${store.error}`);
    updateVerdict();
    const all = series();
    arrange(all);
    for (const each of all) {
      const curve = curves.get(key(each))!;
      curve.update(each, { theme, marks, dpr });
      curve.showCursor(link.shared.cursor?.iteration ?? null);
    }
  }

  function updateVerdict(): void {
    const { verdict: found } = store;
    verdict.hidden = !found;
    if (!found) return;
    setText(name, found.parameter === "loss" ? "The loss" : found.parameter);
    setText(text, verdictText(found));
    // The loss has no row to be shown.
    show.hidden = found.parameter === "loss";
  }

  /** What there is to show: the loss first, and what is known by epoch last. */
  function series(): Series[] {
    const { overview, byEpoch, metrics, epochMetrics, own, means, end } = store;
    const lossAt = overview.rows - 1;
    const all: Series[] = [];
    const add = (name: string, row: number): void => {
      const mean = means.get(name);
      const beside = mean === undefined ? "" : `mean ${format.glance(mean)}`;
      if (has(row)) all.push({ name, newest: newestOf(own[row], row), beside, columns: overview, row, extent: { start: 0, span: Math.max(end, 1) }, of: "iteration" });
    };
    const has = (row: number): boolean => {
      for (let c = 0; c < overview.count; c++) if (overview.flags[c * overview.rows + row] !== Flag.not_recorded) return true;
      return false;
    };
    if (lossAt >= 0) add("loss", lossAt);
    metrics.forEach((each, row) => row < lossAt && add(each, row));
    const epochs = byEpoch.count ? byEpoch.stop[byEpoch.count - 1]! : 0;
    epochMetrics.forEach((each, row) => {
      if (epochs && row < byEpoch.rows - 1) all.push({ name: each, newest: newestEpoch(row) ?? means.get(each) ?? null, beside: "by epoch", columns: byEpoch, row, extent: { start: 0, span: epochs }, of: "epoch" });
    });
    return all;
  }

  /** Of an epoch that was merged with others nobody knows. */
  function newestEpoch(row: number): number | null {
    const { count, rows, max, flags, level } = store.byEpoch;
    for (let at = (count - 1) * rows + row; at >= 0 && !level; at -= rows) {
      if (flags[at]! & Flag.nan) return NaN;
      if (flags[at]! & Flag.posinf) return Infinity;
      if (flags[at]! & Flag.neginf) return -Infinity;
      if (!Number.isNaN(max[at]!)) return max[at]!;
    }
    return null;
  }

  /** NaN is a value only if the newest column says so. */
  function newestOf(value: number | undefined, row: number): number | null {
    const { count, rows, flags } = store.overview;
    if (value === undefined || !count) return null;
    return Number.isNaN(value) && !(flags[(count - 1) * rows + row]! & Flag.nan) ? null : value;
  }

  function arrange(all: readonly Series[]): void {
    const wanted = all.map(key);
    if ([...curves.keys()].join("\n") === wanted.join("\n")) return;
    const before = new Map(curves);
    curves.clear();
    for (const each of wanted) curves.set(each, before.get(each) ?? new Curve(point));
    grid.replaceChildren(...[...curves.values()].map((curve) => curve.element));
    grid.dataset.count = String(wanted.length);
  }

  function point(at: Pointed | null): void {
    link.tell("cursor", at && at.series.of === "iteration" ? { iteration: at.step } : null);
    if (!at) return words.hide();
    const box = root.getBoundingClientRect();
    words.show(at.description, at.x - box.left, at.y - box.top, root);
  }
}

const key = ({ of, name }: Series): string => `${of} ${name}`;
