import { useEffect } from "react";
import { meQuery, nodeQuery, queryClient } from "../api/queries";
import { applyExperimentUpdate } from "../experiments/queries";
import { applyClassReport, refetchPolicies } from "../policies/queries";
import { applyChangeUpdate } from "./changes";
import { liveConnection, useLive } from "./socket";

/** Least time between two refreshes of lists of nodes: a fleet that connects changes each second. */
const LISTS_MS = 3_000;

let listsDue = 0;
let listsTimer: ReturnType<typeof setTimeout> | undefined;

/** Fetches the shown nodes again, at once or as soon as the last time is long enough ago. */
function refreshLists(): void {
  if (listsTimer !== undefined) return;
  listsTimer = setTimeout(
    () => {
      listsTimer = undefined;
      listsDue = Date.now() + LISTS_MS;
      void queryClient.invalidateQueries({ queryKey: ["fleet"] });
      void queryClient.invalidateQueries({ queryKey: ["node-summary"], refetchType: "none" });
    },
    Math.max(0, listsDue - Date.now()),
  );
}

/** Applies live events to the query cache, and refetches after a reconnect. Mounted once, in the shell. */
export function useLiveCache(): void {
  useLive("nodes", refreshLists);
  useLive("node", (node) => {
    const { queryKey } = nodeQuery(node.id);
    if (queryClient.getQueryData(queryKey)?.health !== node.health)
      void queryClient.invalidateQueries({ queryKey: ["preview", node.id] });
    queryClient.setQueryData(queryKey, (full) => full && { ...full, ...node });
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
