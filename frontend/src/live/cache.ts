import { useEffect } from "react";
import { meQuery, nodeQuery, nodesQuery, queryClient } from "../api/queries";
import { takeChange } from "./changes";
import { live, useLive } from "./socket";

/** Keeps fetched data as new as what the live connection tells; mounted once, in the shell. */
export function useLiveCache(): void {
  useLive("node", (node) => {
    queryClient.setQueryData(nodesQuery.queryKey, (nodes) => {
      if (nodes === undefined) return nodes;
      const known = nodes.some((other) => other.id === node.id);
      return known ? nodes.map((other) => (other.id === node.id ? node : other)) : [...nodes, node];
    });
    queryClient.setQueryData(nodeQuery(node.id).queryKey, (full) => full && { ...full, ...node });
  });
  useLive("inventory", (nodeId) => void queryClient.invalidateQueries({ queryKey: nodeQuery(nodeId).queryKey }));
  useLive("change", takeChange);
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
