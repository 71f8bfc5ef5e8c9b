// How a run stands, in a line: what it does, its epoch and iteration, and a bar of how far it is.
import { element, setLine, setText, UNSPOKEN } from "../kit/element";
import * as format from "../kit/format";
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

export function statusLine() {
  const word = element("span", "gv-word");
  const dot = element("i", "gv-dot", UNSPOKEN);
  const status = element("span", "gv-status", {}, dot, word);
  const epoch = element("span", "gv-epoch");
  const iteration = element("span", "gv-iteration");
  const catching = element("span", "gv-catching", { role: "status" });
  const bar = element("i", "");
  const progress = element(
    "div",
    "gv-progress",
    { role: "progressbar", "aria-label": "how far the run is", "aria-valuemin": "0", "aria-valuemax": "100" },
    bar,
  );
  const message = element("div", "gv-message", { role: "status" });

  return {
    parts: [status, epoch, iteration, catching],
    progress,
    message,

    /** `compared`: two runs are, by their names. They are no run that has got somewhere. */
    update(run: Run, catchingUp: boolean, compared: string | null = null): void {
      setText(word, compared ?? WORDS[run.status] ?? run.status);
      setLine(epoch, compared ? "gradient norms" : epochText(run));
      setLine(iteration, compared ? format.many(run.iteration, "iteration") : iterationText(run));
      progress.hidden = dot.hidden = compared !== null;
      setLine(catching, catchingUp ? "catching up …" : null);
      const done = fraction(run);
      bar.style.width = `${100 * (done ?? 0)}%`;
      if (done === null) progress.removeAttribute("aria-valuenow");
      else progress.setAttribute("aria-valuenow", String(Math.round(100 * done)));
      for (const each of [status, progress, message]) each.dataset.status = run.status;
      setLine(message, run.message);
    },
  };
}
