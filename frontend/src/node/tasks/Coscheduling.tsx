import { Unknown } from "../../components/Unknown";
import { bytes, formatCount, formatFigure, micros } from "../../lib/format";
import type { NetTask } from "./rxPath";
import styles from "./tasks.module.css";

const US_PER_S = 1_000_000;

/** Headers of what the policy coscheduling did with each process. */
export function CoschedulingHeaders() {
  return (
    <>
      <th className="n" title="Received and not read yet by the process">
        pending
      </th>
      <th
        className="n"
        title="Expected run time: when the first of the peers is expected to run; negative: it is overdue"
      >
        ERT
      </th>
      <th title="By a policy that is not enforced: would have been">boosted</th>
    </>
  );
}

/** What the policy coscheduling did with a process since the last report; empty for a process of no such policy. */
export function CoschedulingCells({ of }: { of: NetTask["coscheduled"] }) {
  if (of === null)
    return (
      <>
        <td />
        <td />
        <td />
      </>
    );
  return (
    <>
      <td className="n">{formatFigure(bytes(of.pending_bytes))}</td>
      <td className="n" title={of.pending_bytes === 0 ? "No message is pending." : undefined}>
        <Ert of={of} />
      </td>
      <td title={of.why}>
        {of.boosts.toLocaleString("en")} of {formatCount(of.periods, "period")}
      </td>
    </>
  );
}

function Ert({ of }: { of: NonNullable<NetTask["coscheduled"]> }) {
  if (of.ert_s !== null) return formatErt(of.ert_s);
  return of.pending_bytes === 0 ? "none" : <Unknown why={of.why} />;
}

/** Why each boosted process was boosted last. */
export function CoschedulingReasons({ tasks }: { tasks: NetTask[] }) {
  const boosted = [...new Map(tasks.map((task) => [task.pid, task])).values()].filter(
    ({ coscheduled }) => coscheduled !== null && coscheduled.boosts > 0,
  );
  if (boosted.length === 0) return null;
  return (
    <ul className={styles.reasons} aria-label="Reasons of boosts">
      {boosted.map(({ pid, name, coscheduled }) => (
        <li key={pid}>
          {name} ({pid}): {coscheduled?.why}
        </li>
      ))}
    </ul>
  );
}

function formatErt(seconds: number): string {
  const text = formatFigure(micros(Math.abs(seconds) * US_PER_S));
  return seconds < 0 ? `−${text}` : text;
}
