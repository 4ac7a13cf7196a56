import { Button } from "@mantine/core";
import { useMutation } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { useState } from "react";
import { api, unwrap } from "../api/client";
import { handleSignedOut } from "../api/queries";
import { useHasRole } from "../auth/me";
import { ConfirmDialog } from "../components/ConfirmDialog";
import { Moment } from "../components/Moment";
import experimentsStyles from "../experiments/experiments.module.css";
import { useRemaining } from "../shell/ChangeBanner";
import { remainingText } from "./format";
import { applyStudy } from "./queries";
import { STATE_TONES } from "./states";
import type { Study } from "./types";

/** State and remaining time of a study, with its cancel button. */
export function StudyProgress({ study }: { study: Study }) {
  const { id, state, runs_done, runs_planned } = study;
  const remaining = useRemaining(study);
  const isOperator = useHasRole("operator");
  const [asking, setAsking] = useState(false);
  const cancel = useMutation({
    mutationFn: () =>
      unwrap(api.POST("/api/simulations/{simulation_id}/cancel", { params: { path: { simulation_id: id } } })),
    onError: handleSignedOut,
    onSuccess: (after) => {
      applyStudy(after);
      setAsking(false);
    },
  });
  const runs = state === "running";
  return (
    <section className={`card ${experimentsStyles.progress}`} aria-label="State">
      <span className={experimentsStyles.state}>
        <span className={`dot ${STATE_TONES[state]}`} aria-hidden="true" />
        <b>{state}</b>
      </span>
      <progress aria-label="Runs done" max={Math.max(1, runs_planned)} value={runs_done} />
      <span className={experimentsStyles.runs}>
        {runs_done} of {runs_planned} runs
      </span>
      <span className={experimentsStyles.left}>
        {runs ? (
          remainingText(remaining)
        ) : (
          <>
            ended <Moment at={study.ended_at} />
          </>
        )}
      </span>
      <span className={experimentsStyles.now} aria-live="polite">
        {study.sentence}
      </span>
      {runs ? (
        <Button
          disabled={!isOperator}
          title={isOperator ? undefined : "Cancelling requires the operator role."}
          onClick={() => {
            cancel.reset();
            setAsking(true);
          }}
        >
          Cancel study
        </Button>
      ) : (
        <Button renderRoot={(props) => <Link {...props} to="/simulations/new" search={{ from: id }} />}>
          Run again
        </Button>
      )}
      {asking && runs && (
        <ConfirmDialog
          title="Cancel this study?"
          action="Cancel the study"
          pending={cancel.isPending}
          error={cancel.error}
          onConfirm={() => cancel.mutate()}
          onClose={() => setAsking(false)}
        >
          <p>Unfinished runs are abandoned. The results of completed runs are stored.</p>
        </ConfirmDialog>
      )}
    </section>
  );
}
