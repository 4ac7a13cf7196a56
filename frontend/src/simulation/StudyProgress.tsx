import { Button } from "@mantine/core";
import { useMutation } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { api, unwrap } from "../api/client";
import { handleSignedOut } from "../api/queries";
import { RunProgress } from "../components/RunProgress";
import { applyStudy } from "./queries";
import { STATE_TONES } from "./states";
import type { Study } from "./types";

/** State and remaining time of a study, with its cancel button. */
export function StudyProgress({ study }: { study: Study }) {
  const { id, state, sentence } = study;
  const cancel = useMutation({
    mutationFn: () =>
      unwrap(api.POST("/api/v1/simulations/{simulation_id}/cancel", { params: { path: { simulation_id: id } } })),
    onError: handleSignedOut,
    onSuccess: applyStudy,
  });
  return (
    <RunProgress
      runs={study}
      state={state}
      tone={STATE_TONES[state]}
      ended={state !== "running"}
      activity={sentence}
      cancel={{
        noun: "study",
        consequence: "Unfinished runs are abandoned. The results of completed runs are stored.",
        pending: cancel.isPending,
        error: cancel.error,
        run: (done) => cancel.mutate(undefined, { onSuccess: done }),
        reset: cancel.reset,
      }}
      again={
        <Button renderRoot={(props) => <Link {...props} to="/simulations/new" search={{ from: id }} />}>
          Run again
        </Button>
      }
    />
  );
}
