import { expect, test } from "vitest";
import type { Approval } from "../types";
import { isWaiting, shownApprovals } from "./shown";

const NOW = Date.parse("2026-11-24T12:00:00Z");

const approval = (id: number, state: Approval["state"], hours = 1, policy_id = 1) =>
  ({
    ...{ id, state, policy_id, requested_by: "ada" },
    decided_at: state === "waiting" || state === "expired" ? null : new Date(NOW - hours * 3_600_000).toISOString(),
    expires_at: new Date(NOW - hours * 3_600_000).toISOString(),
  }) as Approval;

test.each([
  ["what waits", [approval(1, "waiting")], [1]],
  ["the last one that was rejected", [approval(2, "rejected"), approval(1, "rejected")], [2]],
  ["that nobody decided", [approval(1, "expired")], [1]],
  ["not what was approved, nor what came before it", [approval(2, "approved"), approval(1, "rejected")], []],
  ["nothing older than a day", [approval(1, "outdated", 25)], []],
  ["nothing of other policies", [approval(1, "waiting", 1, 2)], []],
])("a policy's page shows %s", (_, approvals, ids) => {
  expect(shownApprovals(approvals, 1, NOW).map(({ id }) => id)).toEqual(ids);
});

test("the list of policies shows only what waits", () => {
  const approvals = [approval(3, "waiting", 1, 2), approval(2, "rejected"), approval(1, "waiting")];
  expect(shownApprovals(approvals, undefined, NOW).map(({ id }) => id)).toEqual([3, 1]);
});

test("a request is no outcome", () => {
  expect([isWaiting(approval(1, "waiting")), isWaiting({ id: 1 }), isWaiting(undefined)]).toEqual([true, false, false]);
});
