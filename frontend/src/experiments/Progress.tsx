import { Button } from "@mantine/core";
import { useMutation } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { api, unwrap } from "../api/client";
import { handleSignedOut } from "../api/queries";
import { RunProgress } from "../components/RunProgress";
import { applyExperimentUpdate, hasEnded } from "./queries";
import { experimentState, STATE_TONES } from "./states";
import type { Experiment } from "./types";

/** State and remaining time of an experiment, with its cancel button. */
export function Progress({ experiment }: { experiment: Experiment }) {
  const { id, state } = experiment;
  const cancel = useMutation({
    mutationFn: () =>
      unwrap(api.POST("/api/v1/experiments/{experiment_id}/cancel", { params: { path: { experiment_id: id } } })),
    onError: handleSignedOut,
    onSuccess: applyExperimentUpdate,
  });
  const ended = hasEnded(experiment);
  return (
    <RunProgress
      runs={experiment}
      state={experimentState(experiment)}
      tone={STATE_TONES[state]}
      ended={ended}
      activity={ended ? "" : experiment.activity}
      cancel={{
        noun: "experiment",
        consequence:
          state === "queued"
            ? "It is removed from the queue. Nothing was changed on the node."
            : "The current run stops at once and the node's settings are restored. Completed runs are stored, but may be too few for a result.",
        pending: cancel.isPending,
        error: cancel.error,
        run: (done) => cancel.mutate(undefined, { onSuccess: done }),
        reset: cancel.reset,
      }}
      again={
        <Button renderRoot={(props) => <Link {...props} to="/experiments/new" search={{ from: id }} />}>
          Run again
        </Button>
      }
    />
  );
}
