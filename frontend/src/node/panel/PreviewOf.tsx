import { ApiProblem, type Schemas, sentenceOf } from "../../api/client";
import { duration, micros, text } from "../../lib/format";
import { settingName } from "../../lib/settings";
import classes from "../node.module.css";

type Props = {
  answer: Schemas["PreviewAnswer"] | undefined;
  error: unknown;
  confirmS: number;
  limitUs: number | null;
};

/** What a plan would do: was and becomes, what speaks against it, its effect, the same by hand, and its end. */
export function PreviewOf({ answer, error, confirmS, limitUs }: Props) {
  if (answer === undefined) {
    const said = error instanceof ApiProblem && error.field("value") !== undefined;
    return (
      <div className={classes.preview} aria-busy={error === null}>
        {error === null ? (
          <p className="muted">Looking at what would change…</p>
        ) : (
          !said && (
            <p className="bad" role="alert">
              {sentenceOf(error)}
            </p>
          )
        )}
      </div>
    );
  }
  const returns = [...new Set(answer.plan.actions.map((action) => action.was))].join(", ");
  return (
    <section className={classes.preview} aria-label="Preview" aria-live="polite">
      {answer.plan.actions.length > 0 && answer.refused.length === 0 && <p>{answer.sentence}</p>}
      {answer.plan.actions.length > 0 && (
        <table className="table">
          <thead>
            <tr>
              <th>setting</th>
              <th>was</th>
              <th>becomes</th>
            </tr>
          </thead>
          <tbody>
            {answer.plan.actions.map((action) => (
              <tr key={action.key}>
                <td className="wrap" title={action.key}>
                  {settingName(action.key)}
                </td>
                <td>
                  <code>{action.was}</code>
                </td>
                <td>
                  <code>{action.becomes}</code>
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      )}
      {answer.refused.map((refusal) => (
        <p key={refusal.code + refusal.key} className={classes.refusal} role="alert">
          <b>Refused.</b> {refusal.sentence}
        </p>
      ))}
      {answer.warnings.map((warning) => (
        <p key={warning.code + warning.key} className={classes.warnbox}>
          {warning.sentence}
        </p>
      ))}
      <dl className={classes.kv}>
        {answer.expected.length > 0 && (
          <div>
            <dt>expected</dt>
            <dd>
              {answer.expected.map((sentence) => (
                <div key={sentence}>{sentence}</div>
              ))}
            </dd>
          </div>
        )}
        {answer.commands.length > 0 && (
          <div>
            <dt>same by hand</dt>
            <dd>
              {answer.commands.map((command) => (
                <code key={command} className={classes.command}>
                  {command}
                </code>
              ))}
            </dd>
          </div>
        )}
        {answer.plan.actions.length > 0 && (
          <div>
            <dt>if not kept</dt>
            <dd>
              returns to {returns} after {duration(confirmS)}
              {limitUs !== null && `, or at once if p99 exceeds ${text(micros(limitUs))}`}
            </dd>
          </div>
        )}
      </dl>
    </section>
  );
}
