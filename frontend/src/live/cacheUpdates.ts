import { useEffect } from "react";
import type { Schemas } from "../api/client";
import { meQuery, nodeQuery, nodesQuery, queryClient } from "../api/queries";
import { applyExperimentUpdate } from "../experiments/queries";
import { applyClassReport, refetchPolicies } from "../policies/queries";
import { applyChangeUpdate } from "./changes";
import { live, useLive } from "./socket";

const BATCH_MS = 200;

const waiting = new Map<number, Schemas["NodeSummary"]>();

/** Takes many nodes over at once: when a fleet connects, each of its nodes has something to tell. */
function applyNodeUpdates(): void {
  const news = new Map(waiting);
  waiting.clear();
  queryClient.setQueryData(nodesQuery.queryKey, (nodes) => {
    if (nodes === undefined) return nodes;
    const known = new Set(nodes.map((node) => node.id));
    return [
      ...nodes.map((node) => news.get(node.id) ?? node),
      ...[...news.values()].filter(({ id }) => !known.has(id)),
    ];
  });
  for (const node of news.values())
    queryClient.setQueryData(nodeQuery(node.id).queryKey, (full) => full && { ...full, ...node });
}

/** Keeps fetched data as new as what the live connection tells; mounted once, in the shell. */
export function useLiveCache(): void {
  useLive("node", (node) => {
    if (waiting.size === 0) setTimeout(applyNodeUpdates, BATCH_MS);
    waiting.set(node.id, node);
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
    live.start();
    let missed = false;
    const stop = live.onState(() => {
      const { status } = live.state();
      if (status === "retrying") {
        missed = true;
        // Tells a backend that is away from a session that has ended.
        void queryClient.invalidateQueries({ queryKey: ["health"] });
        void queryClient.invalidateQueries({ queryKey: meQuery.queryKey });
      } else if (status === "connected" && missed) {
        missed = false;
        void queryClient.invalidateQueries();
      }
    });
    return () => {
      stop();
      live.stop();
    };
  }, []);
}
