import { queryOptions, useMutation } from "@tanstack/react-query";
import { api, type Schemas, unwrap } from "../api/client";
import { handleSignedOut, queryClient } from "../api/queries";

type SimulatedNodes = Schemas["SimulatedNodes"];

const POLL_MS = 5_000;

/** The simulated fleet: whether it runs, and whether this backend can start it. */
export const simulatedNodesQuery = queryOptions({
  queryKey: ["simulated-nodes"],
  queryFn: ({ signal }) => unwrap(api.GET("/api/v1/simulated-nodes", { signal })),
  refetchInterval: ({ state }) => (state.data?.running ? POLL_MS : false), // its process may end by itself
});

const change = (data: Partial<SimulatedNodes>) =>
  queryClient.setQueryData(simulatedNodesQuery.queryKey, (before) => before && { ...before, ...data });

/** Starts the simulated fleet; its nodes appear in the fleet as they connect. */
export const useStartSimulation = () =>
  useMutation({
    mutationFn: () => unwrap(api.POST("/api/v1/simulated-nodes")),
    onError: handleSignedOut,
    onSuccess: change,
  });

/** Ends the simulation and deletes all simulated nodes. */
export const useRemoveSimulation = () =>
  useMutation({
    mutationFn: () => unwrap(api.DELETE("/api/v1/simulated-nodes")),
    onError: handleSignedOut,
    onSuccess: () => {
      change({ nodes: 0, running: false, failure: null });
      return queryClient.invalidateQueries({ queryKey: ["fleet"] });
    },
  });
