import type { Verdict } from "../types";

/** A verdict's icon and tone. */
export function verdictMark({ is_reproduced }: Pick<Verdict, "is_reproduced">): {
  icon: string;
  tone: "ok" | "warn" | "muted";
} {
  if (is_reproduced === null) return { icon: "?", tone: "muted" };
  return is_reproduced ? { icon: "✓", tone: "ok" } : { icon: "✗", tone: "warn" };
}
