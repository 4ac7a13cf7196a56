import type { State, Summary } from "./types";

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
