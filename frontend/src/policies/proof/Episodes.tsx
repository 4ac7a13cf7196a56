import { Unknown } from "../../components/Unknown";
import { effectText } from "../../experiments/format";
import { duration, formatCount } from "../../lib/format";
import { dateTime } from "../../lib/time";
import type { PolicyBody } from "../types";
import { firstEvidence, rhythm } from "./findings";
import styles from "./proof.module.css";
import type { MetricProof, VersionProof } from "./types";

type Props = { version: VersionProof; settings: PolicyBody["proof"] | undefined; paused: boolean };

/** How a version is compared: its episodes, those that do not count with reasons, wash-out, and what is expected. */
export function Episodes({ version, settings, paused }: Props) {
  const excluded = version.excluded.reduce((sum, { episodes }) => sum + episodes, 0);
  const primary = version.metrics.find((metric) => metric.primary);
  const first = settings === undefined || paused ? null : firstEvidence(version, settings, Date.now());
  return (
    <section className="card" aria-label="Episodes">
      <h2 className={styles.wrapping}>
        Episodes of v{version.version} <small>a held out block and an enforced one next to it, in random order</small>
      </h2>
      <div className={`body ${styles.halves}`}>
        <dl className={styles.facts}>
          <dt>Count</dt>
          <dd>
            <b>{version.episodes.toLocaleString("en")}</b> on {formatCount(version.nodes, "node")}
          </dd>
          <dt>In progress</dt>
          <dd>
            {version.running.toLocaleString("en")} running, {version.waiting.toLocaleString("en")} waiting for their
            samples
          </dd>
          <dt>Wash-out</dt>
          <dd>
            the first {duration(version.washout_s)} of each block of {duration(version.block_s)}{" "}
            {version.washout_s === 1 ? "is" : "are"} left out: the metric still follows the switch before
          </dd>
          {settings !== undefined && settings.holdout_percent > 0 && (
            <>
              <dt>Rhythm</dt>
              <dd>{rhythm(settings)}</dd>
            </>
          )}
          <dt>Detection</dt>
          <dd>{first ?? <Detection metric={primary} paused={paused} />}</dd>
        </dl>
        <div>
          <h3 className={styles.small}>Do not count: {excluded.toLocaleString("en")}</h3>
          {excluded > 0 && <p className={version.balance.biased ? "warn" : "muted"}>{version.balance.sentence}</p>}
          {version.excluded.length === 0 ? (
            <p className="muted">None was left out.</p>
          ) : (
            <ul className={styles.excluded}>
              {version.excluded.map(({ reason, sentence, episodes, enforced, holdout }) => (
                <li key={reason}>
                  <b>{episodes.toLocaleString("en")}</b>{" "}
                  <span>
                    {sentence}
                    {enforced + holdout > 0 && (
                      <span className="muted">
                        {" "}
                        {enforced.toLocaleString("en")} in the enforced block, {holdout.toLocaleString("en")} in the
                        holdout.
                      </span>
                    )}
                  </span>
                  <i style={{ width: `${(100 * episodes) / excluded}%` }} aria-hidden="true" />
                </li>
              ))}
            </ul>
          )}
        </div>
      </div>
      <Factors factors={version.factors} />
    </section>
  );
}

function Detection({ metric, paused }: { metric: MetricProof | undefined; paused: boolean }) {
  if (metric === undefined) return <Unknown why="There is no primary metric." />;
  if (paused) return <>Nothing is detected while all holdouts are paused.</>;
  const size = (share: number) => effectText(share).replace("+", "");
  return (
    <>
      {metric.detectable === null
        ? `No effect on ${metric.label} could have been detected yet.`
        : `An effect of ${size(metric.detectable)} would have been detected by now.`}
      {metric.expected !== null &&
        ` One of ${size(metric.expected.effect)} will have been by ${dateTime(Date.parse(metric.expected.at))}, if it is there.`}
    </>
  );
}

/** What else was recorded with the blocks: more than one value could explain a difference. */
function Factors({ factors }: { factors: VersionProof["factors"] }) {
  const known = Object.entries(factors);
  if (known.length === 0) return null;
  return (
    <details className={styles.factors}>
      <summary>What else was recorded with the blocks</summary>
      <table className="table">
        <thead>
          <tr>
            <th>factor</th>
            <th>values, with their episodes</th>
          </tr>
        </thead>
        <tbody>
          {known.map(([name, values]) => (
            <tr key={name}>
              <td>{name}</td>
              <td className="wrap">
                {Object.entries(values)
                  .map(([value, episodes]) => `${value} (${episodes.toLocaleString("en")})`)
                  .join(", ")}
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </details>
  );
}
