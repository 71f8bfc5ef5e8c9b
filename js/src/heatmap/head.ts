// The head line: how the run stands, its metrics, and what went wrong.
import { element, setLine, setText, UNSPOKEN } from "../kit/element";
import * as format from "../kit/format";
import type { Store } from "../data/store";
import type { Run, Status } from "../data/wire";

const WORDS: Record<Status, string> = {
  idle: "Waiting",
  training: "Training",
  paused: "Paused",
  completed: "Completed",
  interrupted: "Interrupted",
  halted: "Halted",
  failed: "Failed",
};

export function epochText({ status, epoch, epochs, iteration }: Run): string {
  if (status === "idle" && iteration === 0) return "";
  return `epoch ${format.count(epoch + 1)}${epochs === null ? "" : ` of ${format.count(epochs)}`}`;
}

export function iterationText({ status, iteration, iterations, left_s }: Run): string {
  if (status === "idle" && iteration === 0) return "";
  const planned = iterations === null ? "" : ` of ${format.count(iterations)}`;
  const left = status === "training" && left_s !== null ? ` · ${format.duration(left_s)} left` : "";
  return `iteration ${format.count(iteration)}${planned}${left}`;
}

/** The share of the run that is done; null where no plan is known. */
export function fraction({ status, epoch, epochs, iteration, iterations }: Run): number | null {
  if (status === "completed") return 1;
  if (iterations) return Math.min(1, iteration / iterations);
  if (epochs) return Math.min(1, epoch / epochs);
  return null;
}

/** Metrics are running means; the loss lane shows the batch's own loss, so the mean says what it is. */
export function metricName(name: string): string {
  return name === "loss" ? "mean loss" : name;
}

export interface Head {
  parts: HTMLElement[];
  update(store: Store): void;
  showError(error: string | null): void;
}

export function headLine(): Head {
  const word = element("span", "gv-word");
  const dot = element("i", "gv-dot", UNSPOKEN);
  const status = element("span", "gv-status", {}, dot, word);
  const epoch = element("span", "gv-epoch");
  const iteration = element("span", "gv-iteration");
  const catching = element("span", "gv-catching", { role: "status" });
  const metrics = element("span", "gv-metrics");
  const bar = element("i", "");
  const progress = element(
    "div",
    "gv-progress",
    { role: "progressbar", "aria-label": "how far the run is", "aria-valuemin": "0", "aria-valuemax": "100" },
    bar,
  );
  const message = element("div", "gv-message", { role: "status" });
  const alert = element("div", "gv-error", { role: "alert" });

  const showError = (error: string | null): void => setLine(alert, error && `gradviz could not draw: ${error}`);

  function updateMetrics(names: string[], values: Float64Array): void {
    while (metrics.children.length > names.length) metrics.lastChild!.remove();
    names.forEach((name, i) => {
      let metric = metrics.children[i] as HTMLElement | undefined;
      if (!metric) {
        metric = element("span", "gv-metric", {}, element("span", ""), " ", element("b", ""));
        metrics.append(metric);
      }
      const [label, number] = metric.children as unknown as [HTMLElement, HTMLElement];
      const value = values[i];
      setText(label, metricName(name));
      setText(number, value === undefined ? "–" : format.glance(value));
      number.classList.toggle("gv-bad", value !== undefined && !Number.isFinite(value));
    });
  }

  return {
    parts: [element("div", "gv-head", {}, status, epoch, iteration, catching, metrics), progress, message, alert],
    showError,

    update({ run, metrics: values, catchingUp, error, quantity: { runs } }) {
      // Two runs that are compared are no run that has got somewhere.
      setText(word, runs ? runs.join(" ÷ ") : (WORDS[run.status] ?? run.status));
      setLine(epoch, runs ? "gradient norms" : epochText(run));
      setLine(iteration, runs ? format.many(run.iteration, "iteration") : iterationText(run));
      progress.hidden = dot.hidden = runs !== null;
      setLine(catching, catchingUp ? "catching up …" : null);
      updateMetrics(run.metric_names, values);
      const done = fraction(run);
      bar.style.width = `${100 * (done ?? 0)}%`;
      if (done === null) progress.removeAttribute("aria-valuenow");
      else progress.setAttribute("aria-valuenow", String(Math.round(100 * done)));
      for (const each of [status, progress, message]) each.dataset.status = run.status;
      setLine(message, run.message);
      showError(error);
    },
  };
}
