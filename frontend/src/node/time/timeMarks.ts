import type { Mark } from "../../charts/TimeOverlay";
import { count } from "../../lib/format";
import { settingName } from "../../lib/settingKeys";
import type { Decision } from "../../policies/types";
import type { Change } from "../types";

const SYMBOL: Record<Change["state"], string> = {
  applying: "▲",
  unconfirmed: "▲",
  confirmed: "✓",
  rolled_back: "↶",
  failed: "✕",
};

/** Where changes stand on the time axis, in the node's clock: when they were applied and when they were undone. */
export function changeMarks(changes: Change[], skewMs: number): Mark[] {
  return changes.flatMap((change) => {
    const moves = change.plan.actions.map((action) => {
      return { name: settingName(action.key), was: action.was, becomes: action.becomes };
    });
    const mark = (at: string | null, kind: string, label: string): Mark[] =>
      at === null ? [] : [{ key: `${change.id} ${kind}`, timeMs: Date.parse(at) + skewMs, label }];
    const forth = moves.map(({ name, becomes }) => `${name} → ${becomes}`).join(", ");
    const back = moves.map(({ name, was }) => `${name} ↶ ${was}`).join(", ");
    return [
      ...mark(change.applied_at, "applied", `${SYMBOL[change.state]} ${forth}`),
      ...(change.state === "rolled_back" ? mark(change.ended_at, "undone", back) : []),
    ];
  });
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
