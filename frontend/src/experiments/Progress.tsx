import { Button } from "@mantine/core";
import { useMutation } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { useState } from "react";
import { api, unwrap } from "../api/client";
import { handleSignedOut } from "../api/queries";
import { useHasRole } from "../auth/me";
import { ConfirmDialog } from "../components/ConfirmDialog";
import { Moment } from "../components/Moment";
import { duration } from "../lib/format";
import { useRemaining } from "../shell/ChangeBanner";
import styles from "./experiments.module.css";
import { applyExperimentUpdate, hasEnded } from "./queries";
import { experimentState, STATE_TONES } from "./states";
import type { Experiment } from "./types";

/** State and remaining time of an experiment, with its cancel button. */
export function Progress({ experiment }: { experiment: Experiment }) {
  const { state, runs_done, runs_planned, runs_discarded } = experiment;
  const remaining = useRemaining(experiment);
  const isOperator = useHasRole("operator");
  const [asking, setAsking] = useState(false);
  const cancel = useMutation({
    mutationFn: () =>
      unwrap(
        api.POST("/api/experiments/{experiment_id}/cancel", { params: { path: { experiment_id: experiment.id } } }),
      ),
    onError: handleSignedOut,
    onSuccess: (after) => {
      applyExperimentUpdate(after);
      setAsking(false);
    },
  });
  const over = hasEnded(experiment);
  return (
    <section className={`card ${styles.progress}`} aria-label="State">
      <span className={styles.state}>
        <span className={`dot ${STATE_TONES[state]}`} aria-hidden="true" />
        <b>{experimentState(experiment)}</b>
      </span>
      <progress aria-label="Runs done" max={Math.max(1, runs_planned)} value={runs_done} />
      <span className={styles.runs}>
        {runs_done} of {runs_planned} runs
        {runs_discarded > 0 && <span className="muted">, {runs_discarded} discarded</span>}
      </span>
      <span className={styles.left}>
        {over ? (
          <>
            ended <Moment at={experiment.ended_at} />
          </>
        ) : remaining === null ? (
          "remaining time unknown"
        ) : (
          `about ${duration(remaining)} left`
        )}
      </span>
      <span className={styles.now} aria-live="polite">
        {over ? "" : experiment.activity}
      </span>
      {over ? (
        <Button renderRoot={(props) => <Link {...props} to="/experiments/new" search={{ from: experiment.id }} />}>
          Run again
        </Button>
      ) : (
        <Button
          disabled={!isOperator}
          title={isOperator ? undefined : "Cancelling requires the operator role."}
          onClick={() => {
            cancel.reset();
            setAsking(true);
          }}
        >
          Cancel experiment
        </Button>
      )}
      {asking && !over && (
        <ConfirmDialog
          title="Cancel this experiment?"
          action="Cancel the experiment"
          pending={cancel.isPending}
          error={cancel.error}
          onConfirm={() => cancel.mutate()}
          onClose={() => setAsking(false)}
        >
          <p>
            {state === "queued"
              ? "It is removed from the queue. Nothing was changed on the node."
              : "The current run stops at once and the node's settings are restored. Completed runs are stored, but may be too few for a result."}
          </p>
        </ConfirmDialog>
      )}
    </section>
  );
}
