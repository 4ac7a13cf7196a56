import { ApiProblem, errorMessage, type Schemas } from "../../api/client";
import { VIOLATION_PERIOD } from "../../api/metrics";
import { duration, formatFigure, micros } from "../../lib/format";
import { settingName, settingValue } from "../../lib/settingKeys";
import nodeStyles from "../node.module.css";
import styles from "./changes.module.css";

type Props = {
  preview: Schemas["PreviewResponse"] | undefined;
  error: unknown;
  confirmS: number;
  limitUs: number | null;
};

/** A plan's preview: was → becomes, refusals, warnings, expected effect, equivalent commands, and the rollback. */
export function ChangePreview({ preview, error, confirmS, limitUs }: Props) {
  if (preview === undefined) {
    const isShownAtField = error instanceof ApiProblem && error.field("value") !== undefined;
    return (
      <div className={styles.preview} aria-busy={error === null}>
        {error === null ? (
          <p className="muted">Computing the preview…</p>
        ) : (
          !isShownAtField && (
            <p className="bad" role="alert">
              {errorMessage(error)}
            </p>
          )
        )}
      </div>
    );
  }
  const originals = [...new Set(preview.plan.actions.map(({ key, was }) => settingValue(key, was)))].join(", ");
  return (
    <section className={styles.preview} aria-label="Preview" aria-live="polite">
      {preview.plan.actions.length > 0 && preview.refused.length === 0 && <p>{preview.sentence}</p>}
      {preview.plan.actions.length > 0 && (
        <table className="table">
          <thead>
            <tr>
              <th>setting</th>
              <th>was</th>
              <th>becomes</th>
            </tr>
          </thead>
          <tbody>
            {preview.plan.actions.map((action) => (
              <tr key={action.key}>
                <td className="wrap" title={action.key}>
                  {settingName(action.key)}
                </td>
                <td className="wrap">
                  <code>{settingValue(action.key, action.was)}</code>
                </td>
                <td className="wrap">
                  <code>{settingValue(action.key, action.becomes)}</code>
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      )}
      {preview.refused.map((refusal) => (
        <p key={refusal.code + refusal.key} className={styles.refusal} role="alert">
          <b>Refused.</b> {refusal.sentence}
        </p>
      ))}
      {preview.warnings.map((warning) => (
        <p key={warning.code + warning.key} className={nodeStyles.warnbox}>
          {warning.sentence}
        </p>
      ))}
      <dl className={nodeStyles.kv}>
        {preview.expected.length > 0 && (
          <div>
            <dt>expected</dt>
            <dd>
              {preview.expected.map((sentence) => (
                <div key={sentence}>{sentence}</div>
              ))}
            </dd>
          </div>
        )}
        {preview.commands.length > 0 && (
          <div>
            <dt>equivalent commands</dt>
            <dd>
              {preview.commands.map((command) => (
                <code key={command} className={styles.command}>
                  {command}
                </code>
              ))}
            </dd>
          </div>
        )}
        {preview.plan.actions.length > 0 && (
          <div>
            <dt>if not confirmed</dt>
            <dd>
              rolls back to {originals} after {duration(confirmS)}
              {limitUs !== null && `, or when RTT p99 exceeds ${formatFigure(micros(limitUs))} ${VIOLATION_PERIOD}`}
            </dd>
          </div>
        )}
      </dl>
    </section>
  );
}
