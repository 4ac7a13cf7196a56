import { ObservedTable } from "../../changes/Observed";
import { clock, dateTime } from "../../lib/time";
import type { Change } from "../types";
import styles from "./changes.module.css";

/** The last change of a setting with the steps that the node reported. */
export function ChangeSteps({ change }: { change: Change }) {
  return (
    <section className={styles.steps} aria-label="Last change" aria-live="polite">
      <h3>
        Last change{" "}
        <span className="muted">
          by {change.created_by}, {dateTime(Date.parse(change.created_at))}
        </span>
      </h3>
      <ol>
        {change.steps.map((step) => (
          <li key={`${step.at} ${step.state}`}>
            <span className="mono muted">{clock(Date.parse(step.at))}</span>{" "}
            <b className={step.state === "failed" ? "bad" : "change"}>{step.state.replace("_", " ")}</b> {step.sentence}
          </li>
        ))}
      </ol>
      {change.results
        .filter((result) => result.outcome !== "applied")
        .map((result) => (
          <p key={result.key} className={result.outcome === "unchanged" ? "muted" : "bad"}>
            {result.outcome}: {result.sentence}
          </p>
        ))}
      <ObservedTable change={change} />
    </section>
  );
}
