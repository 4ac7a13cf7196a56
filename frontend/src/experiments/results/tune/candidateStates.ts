import type { Candidate } from "./tuneActions";

type Group = "eliminated" | "open" | "baseline" | "best";

/** The groups of candidates in a chart, the most important drawn last. */
export const GROUPS: { name: Group; label: string; colour: string; hollow: boolean; radius: number }[] = [
  { name: "eliminated", label: "eliminated", colour: "var(--muted)", hollow: true, radius: 4 },
  { name: "open", label: "not eliminated", colour: "var(--softirq)", hollow: false, radius: 4.5 },
  { name: "baseline", label: "baseline", colour: "var(--user)", hollow: false, radius: 5.5 },
  { name: "best", label: "best", colour: "var(--ok)", hollow: false, radius: 6.5 },
];

/** The group of a candidate; the baseline stays the baseline until it is the best. */
export function groupOf({ state }: Pick<Candidate, "state">): Group {
  return state === "worse" || state === "limit" || state === "failed" ? "eliminated" : state;
}

/** Candidates with the best primary metric first, then those without an estimate of it; eliminated ones at the end. */
export function ordered<T extends Pick<Candidate, "state" | "cost">>(candidates: T[], isMoreBetter: boolean): T[] {
  const isOut = (one: T) => Number(groupOf(one) === "eliminated");
  const rank = ({ cost }: T) => (cost === null ? Number.POSITIVE_INFINITY : isMoreBetter ? -cost.value : cost.value);
  return candidates.toSorted((a, b) => isOut(a) - isOut(b) || rank(a) - rank(b) || 0); // || 0: not NaN for two unknown
}

const LABELS: Record<Candidate["state"], string> = {
  baseline: "baseline",
  best: "best",
  open: "not eliminated",
  worse: "eliminated",
  limit: "eliminated",
  failed: "eliminated",
};

/** A candidate's state with its reason: `eliminated: 12 % more CPU per gigabit than the best.` */
export function stateText({ state, why }: Pick<Candidate, "state" | "why">): string {
  return why === "" ? LABELS[state] : `${LABELS[state]}: ${why}`;
}
