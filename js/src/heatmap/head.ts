// The head line: how the run stands, its metrics, and what went wrong.
import { element, setLine, setText } from "../kit/element";
import * as format from "../kit/format";
import { statusLine } from "../run/status";
import type { Store } from "../data/store";

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
  const line = statusLine();
  const metrics = element("span", "gv-metrics");
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
    parts: [element("div", "gv-head", {}, ...line.parts, metrics), line.progress, line.message, alert],
    showError,

    update({ run, metrics: values, catchingUp, error, quantity: { runs } }) {
      line.update(run, catchingUp, runs && runs.join(" ÷ "));
      updateMetrics(run.metric_names, values);
      showError(error);
    },
  };
}
