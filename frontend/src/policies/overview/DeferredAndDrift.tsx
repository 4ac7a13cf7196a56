import { DEFERRED } from "../decisions/EvaluationResult";
import type { Overview } from "../types";
import styles from "./overview.module.css";

/** Moves that wait, by reason, and drifts, by cause. */
export function DeferredAndDrift({ overview }: { overview: Overview }) {
  const most = Math.max(
    1,
    ...overview.deferred.map(({ moves }) => moves),
    ...overview.drifts.map(({ drifts }) => drifts),
  );
  return (
    <section className="card" aria-label="Deferred moves and drift">
      <h2>Deferred moves and drift</h2>
      <div className={`body ${styles.bars}`}>
        <h3>
          Deferred now{" "}
          <span className={overview.deferred.length > 0 ? "warn" : ""}>
            {sum(overview.deferred.map(({ moves }) => moves))}
          </span>
        </h3>
        {overview.deferred.length === 0 && <p className="muted">No move waits.</p>}
        {overview.deferred.map(({ code, moves }) => (
          <Bar key={code} name={DEFERRED[code] ?? code.replaceAll("_", " ")} value={moves} most={most} tone="warn" />
        ))}
        <h3>
          Drift, 24 h <span>{sum(overview.drifts.map(({ drifts }) => drifts))}</span>
          <small>{sum(overview.drifts.map(({ restored }) => restored))} written again by the policy</small>
        </h3>
        {overview.drifts.length === 0 && <p className="muted">Nothing else has changed its settings.</p>}
        {overview.drifts.map(({ cause, drifts }) => (
          <Bar key={cause} name={cause ?? "cause unknown"} value={drifts} most={most} tone="" />
        ))}
      </div>
    </section>
  );
}

const sum = (values: number[]): string => values.reduce((total, value) => total + value, 0).toLocaleString("en");

function Bar({ name, value, most, tone }: { name: string; value: number; most: number; tone: "warn" | "" }) {
  return (
    <div className={styles.bar}>
      <span>{name}</span>
      <span className={styles.track}>
        <i data-tone={tone} style={{ width: `${(100 * value) / most}%` }} />
      </span>
      <span>{value.toLocaleString("en")}</span>
    </div>
  );
}
