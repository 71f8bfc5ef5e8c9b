// What Python says of one parameter at one iteration (gradviz/widgets/inspection.py).
import type { Of } from "../data/link";
import type { Buffer } from "../data/wire";
import { decodeMetrics } from "../data/wire";

export const STAGES = ["backward", "clipped", "update", "weight"] as const;
export type Stage = (typeof STAGES)[number];

export interface InspectedMessage {
  kind: "answer";
  id: string;
  error?: string;
  of: Of;
  name: string;
  /** The iteration that was asked for; null: the newest. */
  asked: number | null;
  /** The recorded one that was nearest to it. */
  iteration: number | null;
  skipped: boolean;
  states: Record<Stage, string>;
  /** Whether the optimizer received what the backward pass gave. */
  unclipped: boolean;
  gradient_dtype: string | null;
  bins_iteration: number | null;
  examples_iteration: number | null;
  /** Call, place in the batch, and id if one was told. */
  examples: readonly (readonly [number, number, string | null])[];
}

export interface Answer extends InspectedMessage {
  norms: Record<Stage, number>;
  /** The norm of the update divided by that of the weight. */
  ratio: number;
  /** Both ends of a bin and its number of entries, one after the other. */
  bins: Float64Array;
  pulls: Float64Array;
}

export function answerOf(message: InspectedMessage, buffers: readonly Buffer[]): Answer {
  if (buffers.length !== 3) throw new Error(`${buffers.length} buffers instead of 3`);
  const [norms, bins, pulls] = buffers.map(decodeMetrics) as [Float64Array, Float64Array, Float64Array];
  const [backward, clipped, update, weight, ratio] = norms as unknown as [number, number, number, number, number];
  return { ...message, norms: { backward, clipped, update, weight }, ratio, bins, pulls };
}
