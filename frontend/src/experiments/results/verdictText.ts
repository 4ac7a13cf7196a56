import type { Metric, Verdict } from "../types";

export type VerdictWords = { icon: string; words: string; tone: "ok" | "bad" | "warn" | "muted" | "" };

/** A verdict as text with an icon. better: the direction that is an improvement. */
export function verdictWords(verdict: Verdict, better: Metric["better"]): VerdictWords {
  if (verdict === "no-difference") return { icon: "=", words: "no difference found", tone: "muted" };
  if (verdict === "unsteady") return { icon: "≈", words: "inconclusive: the A/A difference is as large", tone: "warn" };
  if (verdict === "too-few") return { icon: "?", words: "too few runs", tone: "muted" };
  const icon = verdict === "higher" ? "▲" : "▼";
  if (better === "") return { icon, words: verdict, tone: "" };
  const good = (verdict === "higher") === (better === "more");
  return { icon, words: `${verdict}, ${good ? "better" : "worse"}`, tone: good ? "ok" : "bad" };
}
