import type { Approval } from "../types";

const RECENT_MS = 24 * 3_600_000;

/** Whether an action on a policy has not been carried out, because it waits for approval. */
export const isWaiting = (outcome: object | undefined): outcome is Approval =>
  outcome !== undefined && "requested_by" in outcome;

/** Requests that wait; of one policy also its last one, if it came to nothing within a day. Sorted the newest first. */
export function shownApprovals(approvals: Approval[], policyId: number | undefined, nowMs: number): Approval[] {
  const own = approvals.filter(({ policy_id }) => policyId === undefined || policy_id === policyId);
  const last = own.reduce((newest, one) => Math.max(newest, one.id), 0);
  return own.filter(({ id, state, decided_at, expires_at }) => {
    if (state === "waiting") return true;
    const ended = Date.parse(decided_at ?? expires_at);
    const came = state === "approved" || state === "withdrawn";
    return policyId !== undefined && id === last && !came && nowMs - ended < RECENT_MS;
  });
}
