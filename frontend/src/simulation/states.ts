import type { State } from "./types";

export const STATE_TONES: Record<State, string> = { running: "warn", done: "ok", cancelled: "", failed: "bad" };
