import { useEffect } from "react";
import type { Schemas } from "../api/client";
import { meQuery, nodeQuery, nodesQuery, queryClient } from "../api/queries";
import { applyExperimentUpdate } from "../experiments/queries";
import { applyClassReport, refetchPolicies } from "../policies/queries";
import { applyChangeUpdate } from "./changes";
import { liveConnection, useLive } from "./socket";

const BATCH_MS = 200;

const pending = new Map<number, Schemas["NodeSummary"]>();

/** Writes the pending node updates to the cache in one batch: a fleet that connects sends one per node. */
function applyNodeUpdates(): void {
  const updates = new Map(pending);
  pending.clear();
  queryClient.setQueryData(nodesQuery.queryKey, (nodes) => {
    if (nodes === undefined) return nodes;
    const known = new Set(nodes.map((node) => node.id));
    return [
      ...nodes.map((node) => updates.get(node.id) ?? node),
      ...[...updates.values()].filter(({ id }) => !known.has(id)),
    ];
  });
  for (const node of updates.values())
    queryClient.setQueryData(nodeQuery(node.id).queryKey, (full) => full && { ...full, ...node });
}

/** Applies live events to the query cache, and refetches after a reconnect. Mounted once, in the shell. */
export function useLiveCache(): void {
  useLive("node", (node) => {
    if (pending.size === 0) setTimeout(applyNodeUpdates, BATCH_MS);
    pending.set(node.id, node);
  });
  useLive("deleted-nodes", (ids) => {
    for (const id of ids) pending.delete(id);
    const deleted = new Set(ids);
    queryClient.setQueryData(nodesQuery.queryKey, (nodes) => nodes?.filter(({ id }) => !deleted.has(id)));
  });
  useLive("inventory", (nodeId) => {
    void queryClient.invalidateQueries({ queryKey: nodeQuery(nodeId).queryKey });
    void queryClient.invalidateQueries({ queryKey: ["coalescing", nodeId] });
  });
  useLive("policies", refetchPolicies);
  useLive("classes", applyClassReport);
  useLive("change", applyChangeUpdate);
  useLive("experiment", applyExperimentUpdate);
  useEffect(() => {
    liveConnection.start();
    let missed = false;
    const stop = liveConnection.onState(() => {
      const { status } = liveConnection.state();
      if (status === "retrying") {
        missed = true;
        // Distinguishes an unreachable backend from an expired session.
        void queryClient.invalidateQueries({ queryKey: ["health"] });
        void queryClient.invalidateQueries({ queryKey: meQuery.queryKey });
      } else if (status === "connected" && missed) {
        missed = false;
        void queryClient.invalidateQueries();
      }
    });
    return () => {
      stop();
      liveConnection.stop();
    };
  }, []);
}
