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

export class Head {
  readonly parts: HTMLElement[];
  readonly #word = element("span", "gv-word");
  readonly #dot = element("i", "gv-dot", UNSPOKEN);
  readonly #status = element("span", "gv-status", {}, this.#dot, this.#word);
  readonly #epoch = element("span", "gv-epoch");
  readonly #iteration = element("span", "gv-iteration");
  readonly #catching = element("span", "gv-catching", { role: "status" });
  readonly #metrics = element("span", "gv-metrics");
  readonly #bar = element("i", "");
  readonly #progress = element(
    "div",
    "gv-progress",
    { role: "progressbar", "aria-label": "how far the run is", "aria-valuemin": "0", "aria-valuemax": "100" },
    this.#bar,
  );
  readonly #message = element("div", "gv-message", { role: "status" });
  readonly #error = element("div", "gv-error", { role: "alert" });

  constructor() {
    const line = element("div", "gv-head", {}, this.#status, this.#epoch, this.#iteration, this.#catching, this.#metrics);
    this.parts = [line, this.#progress, this.#message, this.#error];
  }

  update({ run, metrics, catchingUp, error, quantity: { runs } }: Store): void {
    // Two runs that are compared are no run that has got somewhere.
    setText(this.#word, runs ? runs.join(" ÷ ") : (WORDS[run.status] ?? run.status));
    this.#status.dataset.status = run.status;
    setLine(this.#epoch, runs ? "gradient norms" : epochText(run));
    setLine(this.#iteration, runs ? format.many(run.iteration, "iteration") : iterationText(run));
    this.#progress.hidden = this.#dot.hidden = runs !== null;
    setLine(this.#catching, catchingUp ? "catching up …" : null);
    this.#updateMetrics(run.metric_names, metrics);
    const done = fraction(run);
    this.#progress.dataset.status = run.status;
    this.#bar.style.width = `${100 * (done ?? 0)}%`;
    if (done === null) this.#progress.removeAttribute("aria-valuenow");
    else this.#progress.setAttribute("aria-valuenow", String(Math.round(100 * done)));
    this.#message.dataset.status = run.status;
    setLine(this.#message, run.message);
    this.showError(error);
  }

  showError(error: string | null): void {
    setLine(this.#error, error && `gradviz could not draw: ${error}`);
  }

  #updateMetrics(names: string[], values: Float64Array): void {
    while (this.#metrics.children.length > names.length) this.#metrics.lastChild!.remove();
    names.forEach((name, i) => {
      let metric = this.#metrics.children[i] as HTMLElement | undefined;
      if (!metric) {
        metric = element("span", "gv-metric", {}, element("span", ""), " ", element("b", ""));
        this.#metrics.append(metric);
      }
      const [label, number] = metric.children as unknown as [HTMLElement, HTMLElement];
      const value = values[i];
      setText(label, metricName(name));
      setText(number, value === undefined ? "–" : format.glance(value));
      number.classList.toggle("gv-bad", value !== undefined && !Number.isFinite(value));
    });
  }
}
