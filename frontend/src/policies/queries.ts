import { keepPreviousData, queryOptions } from "@tanstack/react-query";
import { api, unwrap } from "../api/client";
import { queryClient } from "../api/queries";
import type { ClassesEvent } from "../live/socket";
import type { Decision, Policy } from "./types";

export const policiesQuery = queryOptions({
  queryKey: ["policies"],
  queryFn: ({ signal }) => unwrap(api.GET("/api/v1/policies", { signal })),
});

/** Requests for approval; those that wait first. */
export const approvalsQuery = queryOptions({
  queryKey: ["policies", "approvals"],
  queryFn: ({ signal }) => unwrap(api.GET("/api/v1/approvals", { signal })),
});

const ROLLING_MS = 2_000;

/** Whether a rollout still advances to further nodes. */
export const isRolling = (rollout: Policy["rollout"]): boolean =>
  rollout?.state === "canary" || rollout?.state === "batches";

export const policyQuery = (policyId: number) =>
  queryOptions({
    queryKey: ["policies", policyId],
    queryFn: ({ signal }) =>
      unwrap(api.GET("/api/v1/policies/{policy_id}", { params: { path: { policy_id: policyId } }, signal })),
    refetchInterval: ({ state }) => (isRolling(state.data?.rollout ?? null) ? ROLLING_MS : false),
  });

const PROOF_MS = 10_000;

/** The evidence about a policy's effect; label: by whose values nodes are grouped. */
export const proofQuery = (policyId: number, label: string | undefined) =>
  queryOptions({
    queryKey: ["policies", policyId, "proof", label],
    placeholderData: keepPreviousData,
    queryFn: ({ signal }) =>
      unwrap(
        api.GET("/api/v1/policies/{policy_id}/proof", {
          params: { path: { policy_id: policyId }, query: { ...(label !== undefined && { label }) } },
          signal,
        }),
      ),
    refetchInterval: PROOF_MS,
  });

/** What all policies in force together save. */
export const fleetProofQuery = queryOptions({
  queryKey: ["policies", "proof"],
  queryFn: ({ signal }) => unwrap(api.GET("/api/v1/proof", { signal })),
  refetchInterval: PROOF_MS,
});

const OVERVIEW_MS = 5_000;
const RESTORING_MS = 1_000;

/** What the policy does on its nodes now and did in 24 hours; soon: while settings are restored. */
export const overviewQuery = (policyId: number, soon = false) =>
  queryOptions({
    queryKey: ["policies", policyId, "overview"],
    queryFn: ({ signal }) =>
      unwrap(api.GET("/api/v1/policies/{policy_id}/overview", { params: { path: { policy_id: policyId } }, signal })),
    refetchInterval: soon ? RESTORING_MS : OVERVIEW_MS,
  });

/** From when until when there are samples of a node. */
export const samplesSpanQuery = (nodeId: number | undefined) =>
  queryOptions({
    queryKey: ["samples-span", nodeId],
    enabled: nodeId !== undefined,
    queryFn: ({ signal }) =>
      unwrap(api.GET("/api/v1/nodes/{node_id}/samples-span", { params: { path: { node_id: nodeId ?? 0 } }, signal })),
  });

export const versionsQuery = (policyId: number) =>
  queryOptions({
    queryKey: ["policies", policyId, "versions"],
    queryFn: ({ signal }) =>
      unwrap(api.GET("/api/v1/policies/{policy_id}/versions", { params: { path: { policy_id: policyId } }, signal })),
  });

export const diffQuery = (policyId: number, from: number, to: number) =>
  queryOptions({
    queryKey: ["policies", policyId, "diff", from, to],
    enabled: from !== to && from > 0,
    staleTime: Number.POSITIVE_INFINITY, // versions never change
    queryFn: ({ signal }) =>
      unwrap(
        api.GET("/api/v1/policies/{policy_id}/diff", {
          params: { path: { policy_id: policyId }, query: { from_version: from, to_version: to } },
          signal,
        }),
      ),
  });

export const rolloutQuery = (rolloutId: number | null) =>
  queryOptions({
    queryKey: ["policies", "rollout", rolloutId],
    enabled: rolloutId !== null,
    queryFn: ({ signal }) =>
      unwrap(api.GET("/api/v1/rollouts/{rollout_id}", { params: { path: { rollout_id: rolloutId ?? 0 } }, signal })),
    refetchInterval: ({ state }) => (isRolling(state.data ?? null) ? ROLLING_MS : false),
  });

const path = (nodeId: number) => ({ path: { node_id: nodeId } });

/** A decision lists every skipped interrupt with its reason, so only a few are fetched at once. */
const FIRST_FETCH = 20;
const RANGE_FETCH = 60;
const MAX_CACHED = 200;

/** Known and new decisions merged, newest first. */
export function mergeDecisions(known: Decision[], received: Decision[]): Decision[] {
  const byId = new Map([...known, ...received].map((decision) => [decision.id, decision]));
  return [...byId.values()].sort((a, b) => b.id - a.id).slice(0, MAX_CACHED);
}

/** Decisions of policies on a node, newest first: those of a past range, or the newest; refetches add only new ones. */
export const decisionsQuery = (nodeId: number, range: { from: number; to: number } | null) =>
  queryOptions({
    queryKey: ["node-policies", nodeId, "decisions", range],
    queryFn: async ({ signal, queryKey }) => {
      const known = queryClient.getQueryData<Decision[]>(queryKey) ?? [];
      const since = range === null ? known[0]?.at : new Date(range.from).toISOString();
      const received = await unwrap(
        api.GET("/api/v1/nodes/{node_id}/decisions", {
          params: {
            ...path(nodeId),
            query: {
              ...(since !== undefined && { from_time: since }),
              ...(range !== null && { to_time: new Date(range.to).toISOString() }),
              limit: range === null ? FIRST_FETCH : RANGE_FETCH,
            },
          },
          signal,
        }),
      );
      return mergeDecisions(range === null ? known : [], received);
    },
  });

/** The latest decision of each policy in force on a node and of its persisted settings, in any order. */
export const latestDecisionsQuery = (nodeId: number) =>
  queryOptions({
    queryKey: ["node-policies", nodeId, "decisions", "latest"],
    queryFn: ({ signal }) =>
      unwrap(api.GET("/api/v1/nodes/{node_id}/decisions/latest", { params: path(nodeId), signal })),
  });

export const recommendationsQuery = (nodeId: number) =>
  queryOptions({
    queryKey: ["node-policies", nodeId, "recommendations"],
    queryFn: ({ signal }) =>
      unwrap(api.GET("/api/v1/nodes/{node_id}/recommendations", { params: path(nodeId), signal })),
  });

export const driftsQuery = (nodeId: number) =>
  queryOptions({
    queryKey: ["node-policies", nodeId, "drifts"],
    queryFn: ({ signal }) => unwrap(api.GET("/api/v1/nodes/{node_id}/drifts", { params: path(nodeId), signal })),
  });

export const flowsQuery = (nodeId: number) =>
  queryOptions({
    queryKey: ["node-policies", nodeId, "flows"],
    queryFn: ({ signal }) => unwrap(api.GET("/api/v1/nodes/{node_id}/flows", { params: path(nodeId), signal })),
  });

/** The service-class policies in force on a node with the last report; live frames update it. */
export const classesQuery = (nodeId: number) =>
  queryOptions({
    queryKey: ["node-policies", nodeId, "classes"],
    queryFn: ({ signal }) => unwrap(api.GET("/api/v1/nodes/{node_id}/classes", { params: path(nodeId), signal })),
  });

/** Applies a report of a policy's classes, if the policy is known to be in force. */
export function applyClassReport({ node_id, policy_id, time_ms, reported }: ClassesEvent): void {
  queryClient.setQueryData(classesQuery(node_id).queryKey, (known) => {
    if (known === undefined) return known;
    const at = new Date(time_ms).toISOString();
    return { policies: known.policies.map((one) => (one.policy_id === policy_id ? { ...one, at, reported } : one)) };
  });
}

/** Refetches policies and rollouts (null), or the evaluations and flows of a node, after a live event reported a change. */
export function refetchPolicies(nodeId: number | null): void {
  if (nodeId === null) void queryClient.invalidateQueries({ queryKey: ["policies"] });
  void queryClient.invalidateQueries({ queryKey: nodeId === null ? ["node-policies"] : ["node-policies", nodeId] });
}
