import { Button } from "@mantine/core";
import { type ReactNode, useState } from "react";
import { useIsSomeOperator } from "../auth/me";
import { formatCount, remainingText } from "../lib/format";
import { useRemaining } from "../shell/ChangeBanner";
import { ConfirmDialog } from "./ConfirmDialog";
import { Moment } from "./Moment";
import styles from "./runProgress.module.css";

interface Runs {
  runs_done: number;
  runs_planned: number;
  runs_discarded?: number;
  remaining_s: number | null;
  ended_at: string | null;
}

interface Cancellation {
  /** What is cancelled, for buttons and questions: `experiment`. */
  noun: string;
  /** What becomes of completed and unfinished runs. */
  consequence: string;
  pending: boolean;
  error: unknown;
  run: (done: () => void) => void;
  reset: () => void;
}

interface Props {
  runs: Runs;
  state: string;
  tone: string;
  ended: boolean;
  activity: string;
  cancel: Cancellation;
  /** The button that replaces Cancel once it has ended. */
  again: ReactNode;
}

/** State, runs and remaining time of an experiment or a study, with its cancel button. */
export function RunProgress({ runs, state, tone, ended, activity, cancel, again }: Props) {
  const { runs_done, runs_planned, runs_discarded = 0 } = runs;
  const remaining = useRemaining(runs);
  const isOperator = useIsSomeOperator();
  const [asking, setAsking] = useState(false);
  const [hasRun] = useState(!ended);
  return (
    <section className={`card ${styles.progress}`} aria-label="State">
      <span className={styles.state}>
        <span className={`dot ${tone}`} aria-hidden="true" />
        <b>{state}</b>
      </span>
      <progress aria-label="Runs done" max={Math.max(1, runs_planned)} value={runs_done} />
      <span className={styles.runs}>
        {runs_done.toLocaleString("en")} of {formatCount(runs_planned, "run")}
        {runs_discarded > 0 && <span className="muted">, {runs_discarded} discarded</span>}
      </span>
      <span className={styles.left}>
        {ended ? (
          <>
            ended <Moment at={runs.ended_at} />
          </>
        ) : (
          remainingText(remaining)
        )}
      </span>
      <span className={`${styles.now} ${hasRun ? styles.kept : ""}`} aria-live="polite">
        {activity}
      </span>
      {ended ? (
        again
      ) : (
        <Button
          disabled={!isOperator}
          title={isOperator ? undefined : "Cancelling requires the operator role."}
          onClick={() => {
            cancel.reset();
            setAsking(true);
          }}
        >
          Cancel {cancel.noun}
        </Button>
      )}
      {asking && !ended && (
        <ConfirmDialog
          title={`Cancel this ${cancel.noun}?`}
          action={`Cancel the ${cancel.noun}`}
          pending={cancel.pending}
          error={cancel.error}
          onConfirm={() => cancel.run(() => setAsking(false))}
          onClose={() => setAsking(false)}
        >
          <p>{cancel.consequence}</p>
        </ConfirmDialog>
      )}
    </section>
  );
}
