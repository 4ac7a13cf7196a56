import { clock } from "../../lib/time";
import type { Decision } from "../../policies/types";

const RESTORED = "Its settings are restored for a short time, to measure what it changes.";

/** What a node does now to measure a policy's effect; null while the policy is in force as usual. */
export function holdoutText({ holdout }: Pick<Decision, "holdout">): { words: string; help: string } | null {
  if (holdout === null || holdout.state === "in_force") return null;
  const since = `since ${clock(holdout.since_ms)}`;
  const kept =
    holdout.excepted.length === 0 ? "" : ` Not restored: ${holdout.excepted.map(({ subject }) => subject).join(", ")}.`;
  switch (holdout.state) {
    case "entering":
      return { words: "being held out", help: RESTORED };
    case "held_out":
      return { words: `held out ${since}`, help: RESTORED + kept };
    case "leaving":
      return { words: "coming into force again", help: "Its settings are being written again." };
    case "refused":
      return { words: "never held out", help: holdout.why };
  }
}
