import type { Mark } from "../../charts/TimeOverlay";
import { formatCount } from "../../lib/format";
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

/** `IRQ 38 → 0 +2`: the first of several texts, and how many more there are. */
const first = (texts: string[]): string => `${texts[0] ?? ""}${texts.length > 1 ? ` +${texts.length - 1}` : ""}`;

/**
 * Marks of changes on the time axis, in the node's clock: when applied and when rolled back. Those of an experiment have
 * none: it switches many times, and is a bar.
 */
export function changeMarks(changes: Change[], skewMs: number): Mark[] {
  return changes.flatMap((change) => {
    if (change.experiment_id !== null) return [];
    const actions = change.plan.actions.map((action) => {
      return { name: settingName(action.key), was: action.was, becomes: action.becomes };
    });
    const mark = (at: string | null, kind: string, label: string): Mark[] =>
      at === null ? [] : [{ key: `${change.id} ${kind}`, timeMs: Date.parse(at) + skewMs, label }];
    const forth = first(actions.map(({ name, becomes }) => `${name} → ${becomes}`));
    const back = first(actions.map(({ name, was }) => `${name} ↶ ${was}`));
    return [
      ...mark(change.applied_at, "applied", `${SYMBOL[change.state]} ${forth}`),
      ...(change.state === "rolled_back" ? mark(change.ended_at, "rolled back", back) : []),
    ];
  });
}

const VERBS = { observe: "would change", recommend: "recommends", enforce: "changes" } as const;

/**
 * Marks of decisions on the time axis, in the node's clock: those with actions, without repetitions of the policy's
 * previous decision, and without those that became changes, which have marks of their own.
 */
export function decisionMarks(decisions: Decision[], skewMs: number): Mark[] {
  const previous = new Map<number, string>();
  return decisions
    .toSorted((a, b) => Date.parse(a.at) - Date.parse(b.at))
    .filter(({ policy_id, evaluation, change_id }) => {
      const keys = evaluation.actions
        .map(({ key }) => key)
        .sort()
        .join();
      const same = previous.get(policy_id) === keys;
      previous.set(policy_id, keys);
      return !same && evaluation.actions.length > 0 && change_id === null;
    })
    .map(({ id, at, policy_name, version, mode, evaluation }) => ({
      key: `decision ${id}`,
      timeMs: Date.parse(at) + skewMs,
      kind: "decision",
      label: `◇ ${policy_name} v${version} ${VERBS[mode]} ${formatCount(evaluation.actions.length, "setting")}`,
    }));
}
