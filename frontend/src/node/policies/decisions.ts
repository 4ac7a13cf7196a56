import type { Decision } from "../../policies/types";

/** The latest decision of each policy, sorted by policy name. */
export function latestOfEach(decisions: Decision[]): Decision[] {
  const latest = new Map<number, Decision>();
  for (const decision of decisions) {
    const known = latest.get(decision.policy_id);
    if (known === undefined || Date.parse(decision.at) > Date.parse(known.at)) latest.set(decision.policy_id, decision);
  }
  return [...latest.values()].sort((a, b) => a.policy_name.localeCompare(b.policy_name, "en", { numeric: true }));
}
