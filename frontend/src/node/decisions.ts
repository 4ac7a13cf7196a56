import type { Mark } from "../charts/TimeOverlay";
import { count } from "../lib/format";
import type { Decision } from "../policies/types";

/** The newest decision of each policy, the policies in the order of their names. */
export function latestOfEach(decisions: Decision[]): Decision[] {
  const latest = new Map<number, Decision>();
  for (const decision of decisions) {
    const known = latest.get(decision.policy_id);
    if (known === undefined || Date.parse(decision.at) > Date.parse(known.at)) latest.set(decision.policy_id, decision);
  }
  return [...latest.values()].sort((a, b) => a.policy_name.localeCompare(b.policy_name, "en", { numeric: true }));
}

const WOULD = { observe: "would move", recommend: "recommends", enforce: "moves" } as const;

/**
 * Where decisions stand on the time axis, in the node's clock: those with something to move, unless the policy wanted to move the same
 * already the time before. One that was carried out is a change, which has a mark of its own.
 */
export function decisionMarks(decisions: Decision[], skewMs: number): Mark[] {
  const before = new Map<number, string>();
  return decisions
    .toSorted((a, b) => Date.parse(a.at) - Date.parse(b.at))
    .filter(({ policy_id, evaluation, change_id }) => {
      const what = evaluation.actions
        .map(({ key }) => key)
        .sort()
        .join();
      const same = before.get(policy_id) === what;
      before.set(policy_id, what);
      return !same && evaluation.actions.length > 0 && change_id === null;
    })
    .map(({ id, at, policy_name, version, mode, evaluation }) => ({
      key: `decision ${id}`,
      timeMs: Date.parse(at) + skewMs,
      kind: "decision",
      label: `◇ ${policy_name} v${version} ${WOULD[mode]} ${count(evaluation.actions.length, "setting")}`,
    }));
}
