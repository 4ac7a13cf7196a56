import type { Kind, State, Summary } from "./types";

export const KINDS: Record<Kind, { label: string; about: string }> = {
  aa: { label: "A/A", about: "The node against itself: how large a difference chance alone makes here." },
  ab: { label: "A/B", about: "Two settings of the node against each other, in the order ABBA or BAAB." },
  sweep: { label: "Sweep", about: "One or two things in several steps, each step against the first." },
};

export const STATE_TONES: Record<State, string> = {
  queued: "",
  running: "warn",
  done: "ok",
  stopped: "bad",
  cancelled: "",
  failed: "bad",
};

/** State of an experiment for a reader: `running`, `queued, position 2`. */
export function experimentState({ state, queue_position }: Pick<Summary, "state" | "queue_position">): string {
  if (state !== "queued") return state === "stopped" ? "stopped by a guardrail" : state;
  return queue_position === null ? "queued" : `queued, position ${queue_position}`;
}
