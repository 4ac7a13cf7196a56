import { useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { useState } from "react";
import { api, type Schemas, unwrap } from "../api/client";
import { statusWords } from "../changes/state";
import { titleWords } from "../changes/words";
import { LogRow, LogTable } from "../components/LogTable";
import { SimulatedTagOf } from "../components/NodeTags";
import { formatCount } from "../lib/format";
import { clock, dateTime } from "../lib/time";
import styles from "./audit.module.css";
import { type Row, rowsOf } from "./rows";
import { entryWords, rowWords } from "./words";

type Entry = Schemas["AuditEntry"];
type Change = Schemas["Change"];

/** Node names by id, without deleted nodes; undefined if they could not be loaded. */
type Names = Map<number, string> | undefined;

const COLUMNS = 4;
const TONES: Record<string, string> = { ok: "", requested: "change" };

/** Entries of the audit log, a row for each action, change, or hour of a policy's or an experiment's moves. */
export function EntryTable({ entries, changes, names }: { entries: Entry[]; changes: Change[]; names: Names }) {
  return (
    <LogTable
      label="Entries"
      className={styles.entries}
      columns={COLUMNS}
      head={
        <>
          <th>time</th>
          <th className={styles.node}>node</th>
          <th>what</th>
          <th className={styles.by}>by</th>
        </>
      }
      rows={rowsOf(entries, changes).map((row) => ({
        key: row.key,
        ms: Date.parse(row.entries[0].at),
        row: <EntryRow row={row} names={names} />,
      }))}
    />
  );
}

function EntryRow({ row, names }: { row: Row<Entry, Change>; names: Names }) {
  const [isOpen, setOpen] = useState(false);
  const [newest] = row.entries;
  const { said, of, tone } = rowWords(row);
  const by = row.changes[0]?.created_by ?? (row.entries.at(-1) ?? newest).actor; // agents enter the result
  return (
    <LogRow
      data-entry={newest.id}
      ms={Date.parse(newest.at)}
      name={`${said} ${of}`}
      isOpen={isOpen}
      onToggle={() => setOpen(!isOpen)}
      columns={COLUMNS}
      details={<Details row={row} />}
    >
      <td className={styles.node}>
        <Nodes ids={[...new Set(row.entries.flatMap(({ node_id }) => node_id ?? []))]} names={names} />
      </td>
      <td className={styles.what} title={`${said} ${of}`}>
        <b className={tone}>{said}</b> {of}
      </td>
      <td className={styles.by} title={by}>
        {by}
      </td>
    </LogRow>
  );
}

function Nodes({ ids, names }: { ids: number[]; names: Names }) {
  const [id] = ids;
  if (id === undefined) return null;
  if (ids.length > 1) return formatCount(ids.length, "node");
  return (
    <>
      {names?.get(id) ?? `node ${id}${names ? ", deleted" : ""}`} <SimulatedTagOf nodeId={id} />
    </>
  );
}

function Details({ row: { entries, changes } }: { row: Row<Entry, Change> }) {
  const [newest] = entries;
  if (changes.length > 1) return <Moves changes={changes} />;
  return newest.change === null ? <Single entry={newest} /> : <OfChange id={newest.change} entries={entries} />;
}

/** The moves of a policy or an experiment that the entries of this page are about. */
function Moves({ changes }: { changes: Change[] }) {
  const by = changes[0]?.created_by;
  return (
    <div className={styles.detail}>
      <ol className={`${styles.steps} ${styles.moves}`}>
        {changes.map((change) => {
          const { what, values } = titleWords(change);
          const { text, tone } = statusWords(change);
          return (
            <li key={change.id}>
              <span>{clock(Date.parse(change.created_at))}</span>
              <span>
                {change.node_name}{" "}
                <Link to="/changes" search={{ change: change.id, span: "7d" }}>
                  {what} {values}
                </Link>{" "}
                <span className={tone}>{text}</span>
              </span>
            </li>
          );
        })}
      </ol>
      <Link to="/changes" search={{ by, span: "7d", moves: "each" }}>
        All moves of {by}
      </Link>
    </div>
  );
}

function Single({ entry: { action, target, result, detail, at } }: { entry: Entry }) {
  return (
    <p className={styles.detail}>
      {new Date(at).toISOString()}: <span className="mono">{action}</span>, {result}: {target}{" "}
      <span className="muted">{detailText(detail)}</span>
    </p>
  );
}

/** Every entry of a change, also those that the filters or the page leave out, oldest first. */
function OfChange({ id, entries }: { id: string; entries: [Entry, ...Entry[]] }) {
  const { data } = useQuery({
    queryKey: ["audit", "change", id, entries[0].id],
    queryFn: ({ signal }) =>
      unwrap(api.GET("/api/v1/audit", { params: { query: { text: id, action: "change", limit: 500 } }, signal })),
  });
  return (
    <div className={styles.detail}>
      <ol className={styles.steps}>
        {(data?.entries ?? entries).toReversed().map((entry) => (
          <li key={entry.id}>
            <time dateTime={entry.at}>{dateTime(Date.parse(entry.at))}</time>
            <span>
              <b className={TONES[entry.result] ?? "bad"}>{entryWords(entry).said}</b> by {entry.actor}{" "}
              <span className="muted">{detailText(entry.detail)}</span>
            </span>
          </li>
        ))}
      </ol>
      <span className="mono">{entries[0].target}</span>{" "}
      <Link to="/changes" search={{ change: id }}>
        Change
      </Link>
      {" · "}
      <ReportLinks change={id} />
    </div>
  );
}

/** Links to the report on a change: the page, and Markdown for a ticket. */
function ReportLinks({ change }: { change: string }) {
  const address = (format: string) => `/api/v1/changes/${change}/report?format=${format}&language=en`;
  return (
    <>
      <a href={address("html")} target="_blank" rel="noreferrer" aria-label={`Report of change ${change}`}>
        Report
      </a>
      {" · "}
      <a href={address("md")} download aria-label={`Report of change ${change} in Markdown`}>
        Markdown
      </a>
    </>
  );
}

/** An action's details in one line: `key: value · key: value`; a sentence needs no key. */
function detailText(detail: Record<string, unknown>): string {
  return Object.entries(detail)
    .filter(([, value]) => value !== null && value !== "")
    .map(([key, value]) => {
      const text = typeof value === "string" ? value : JSON.stringify(value);
      return key === "sentence" ? text : `${key}: ${text}`;
    })
    .join(" · ");
}
