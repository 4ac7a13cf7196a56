import { Button, NativeSelect, TextInput } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { useNavigate, useSearch } from "@tanstack/react-router";
import { type FormEvent, useState } from "react";
import { api, errorMessage, type Schemas, unwrap } from "../api/client";
import { nodesQuery } from "../api/queries";
import { Moment } from "../components/Moment";
import { SimulatedTagOf } from "../components/NodeTags";
import { PageTop } from "../components/PageTop";
import { Scroll } from "../components/Scroll";
import styles from "./audit.module.css";

const PAGE = 100;

/** An action's details in one line: `key: value · key: value`. */
export function detailText(detail: Record<string, unknown>): string {
  return Object.entries(detail)
    .filter(([, value]) => value !== null && value !== "")
    .map(([key, value]) => `${key}: ${typeof value === "string" ? value : JSON.stringify(value)}`)
    .join(" · ");
}

/** Id of the change that an entry started; null for other entries. */
export function startedChange({ action, target }: { action: string; target: string }): string | null {
  return action === "change.apply" ? (target.match(/^change ([0-9a-f-]{36})\b/)?.[1] ?? null) : null;
}

const TONES: Record<string, string> = { ok: "ok", requested: "muted" };

/** Links to the report on a change: the page, and Markdown for a ticket. */
function ReportLinks({ change }: { change: string | null }) {
  if (change === null) return null;
  const address = (format: string) => `/api/changes/${change}/report?format=${format}&language=en`;
  return (
    <>
      <a href={address("html")} target="_blank" rel="noreferrer" aria-label={`Report of change ${change}`}>
        Report
      </a>{" "}
      <a href={address("md")} download aria-label={`Report of change ${change} in Markdown`}>
        Markdown
      </a>
    </>
  );
}

/** The audit log: time, actor, action, target, node, result and details of each entry. */
export function AuditPage() {
  const { node, actor, older } = useSearch({ from: "/shell/audit" });
  const navigate = useNavigate({ from: "/audit" });
  const [typed, setTyped] = useState(actor ?? "");
  const nodes = useQuery(nodesQuery).data ?? [];
  const audit = useQuery({
    queryKey: ["audit", node, actor, older],
    queryFn: ({ signal }) =>
      unwrap(
        api.GET("/api/audit", { params: { query: { node_id: node, actor, older_than: older, limit: PAGE } }, signal }),
      ),
    staleTime: 0,
    placeholderData: (before) => before,
  });
  const names = new Map(nodes.map((one) => [one.id, one.name]));
  const submit = (event: FormEvent) => {
    event.preventDefault();
    void navigate({ search: { node, actor: typed || undefined } });
  };
  return (
    <>
      <PageTop title="Audit">
        <h1>Audit</h1>
      </PageTop>
      <form className={styles.filter} onSubmit={submit}>
        <TextInput
          data-filter
          label="Actor"
          placeholder="all"
          value={typed}
          onChange={(event) => setTyped(event.currentTarget.value)}
        />
        <NativeSelect
          label="Node"
          value={node ?? ""}
          data={[
            { value: "", label: "all" },
            ...nodes
              .toSorted((a, b) => a.name.localeCompare(b.name, "en", { numeric: true }))
              .map((one) => ({ value: String(one.id), label: one.name })),
          ]}
          onChange={(event) =>
            void navigate({ search: { actor, node: Number(event.currentTarget.value) || undefined } })
          }
        />
        <Button type="submit">Show</Button>
      </form>
      <section className="card" aria-busy={audit.isFetching}>
        <h2>
          Entries <small>newest first; entries are never changed or removed</small>
        </h2>
        {audit.isError && (
          <p className="body bad" role="alert">
            {errorMessage(audit.error)}
          </p>
        )}
        {audit.data?.entries.length === 0 && <p className="body muted">No entries match.</p>}
        {audit.data !== undefined && audit.data.entries.length > 0 && (
          <EntryTable entries={audit.data.entries} names={names} />
        )}
        <div className={styles.pager}>
          <Button disabled={older === undefined} onClick={() => void navigate({ search: { node, actor } })}>
            Newest
          </Button>
          <Button
            disabled={!audit.data?.older}
            onClick={() => void navigate({ search: { node, actor, older: audit.data?.older ?? undefined } })}
          >
            Older
          </Button>
        </div>
      </section>
    </>
  );
}

type TableProps = { entries: Schemas["AuditEntry"][]; names: Map<number, string> };

/** names: node names by id, without deleted nodes. */
function EntryTable({ entries, names }: TableProps) {
  return (
    <Scroll label="Entries">
      <table className="table">
        <thead>
          <tr>
            <th>time</th>
            <th>actor</th>
            <th>action</th>
            <th>target</th>
            <th>node</th>
            <th>result</th>
            <th>details</th>
            <th>
              <span className="visually-hidden">report</span>
            </th>
          </tr>
        </thead>
        <tbody>
          {entries.map((entry) => (
            <tr key={entry.id}>
              <td>
                <Moment at={entry.at} />
              </td>
              <td>{entry.actor}</td>
              <td>{entry.action}</td>
              <td className={`wrap mono ${styles.target}`} title={entry.target}>
                <span>{entry.target}</span>
              </td>
              <td>
                {entry.node_id !== null && (
                  <>
                    {names.get(entry.node_id) ?? `node ${entry.node_id}, deleted`}{" "}
                    <SimulatedTagOf nodeId={entry.node_id} />
                  </>
                )}
              </td>
              <td className={TONES[entry.result] ?? "bad"}>{entry.result}</td>
              <td className={`muted wrap ${styles.detail}`}>{detailText(entry.detail)}</td>
              <td>
                <ReportLinks change={startedChange(entry)} />
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </Scroll>
  );
}
