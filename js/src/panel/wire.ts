// What a message brings beside the metrics' columns (gradviz/widgets/panel.py).
import type { ColumnsMessage } from "../data/wire";

/** The first NaN or infinity of a run. */
export interface Verdict {
  iteration: number;
  /** Whose gradient it was in; "loss" for the loss. */
  parameter: string;
  kind: "nan" | "posinf" | "neginf";
  /** Over so many iterations before, as far as that is known. */
  growth: number | null;
  before: number;
}

/** What the buttons act on: a run by its number, which may keep the kernel from hearing anything. */
export interface Controls {
  run: number;
  blocks: boolean;
}

export interface PanelMessage extends ColumnsMessage {
  /** The rows of the columns, without the loss. */
  metrics: string[];
  /** The rows of those by epoch, without the mean loss. */
  epoch_metrics: string[];
  /** How many metrics are not shown. */
  more_metrics: number;
  /** What recording costs, as a share of the iteration without it. */
  overhead: number | null;
  verdict: Verdict | null;
  controls: Controls | null;
}

export type Verb = "pause" | "unpause" | "step" | "stop";

export interface AnsweredMessage {
  kind: "answered";
  id: string;
  said: string;
  error: string;
}
