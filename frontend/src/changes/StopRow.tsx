import { useState } from "react";
import { LogRow } from "../components/LogTable";
import { Chip } from "./Chip";
import styles from "./changes.module.css";
import { type StopEvent, scopeText, stopState, stopWords, timeOf } from "./stopRows";

/** The beginning or the end of a stop of enforcement in the log of changes. */
export function StopRow({ event }: { event: StopEvent }) {
  const [isOpen, setOpen] = useState(false);
  const { what, values } = stopWords(event);
  const scope = scopeText(event);
  const reason = event.reason === "" ? "" : `“${event.reason}”`;
  const facts = [
    ["what", [what, values].filter(Boolean).join(": ")],
    ["where", scope],
    ["by", event.by],
    ["reason", reason || "none given"],
  ];
  return (
    <LogRow
      data-stop-row={event.action}
      ms={timeOf(event)}
      name={what}
      isOpen={isOpen}
      onToggle={() => setOpen(!isOpen)}
      columns={7}
      details={
        <div className={styles.details}>
          <dl className={styles.steps}>
            {facts.map(([name, value]) => (
              <div key={name}>
                <dt>{name}</dt>
                <dd>{value}</dd>
              </div>
            ))}
          </dl>
        </div>
      }
    >
      <td className={styles.node} title={scope}>
        <b>{scope}</b>
      </td>
      <td className={styles.what} title={values}>
        {what} <span className="muted">{values}</span>
      </td>
      <td className={styles.by} title={event.by}>
        {event.by}
      </td>
      <td>
        <Chip {...stopState(event)} />
      </td>
      <td className={`${styles.after} muted`} title={reason}>
        {reason}
      </td>
      <td />
    </LogRow>
  );
}
