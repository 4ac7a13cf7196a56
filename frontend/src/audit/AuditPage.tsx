import { Button, NativeSelect, TextInput } from "@mantine/core";
import { useQueries, useQuery } from "@tanstack/react-query";
import { useNavigate, useSearch } from "@tanstack/react-router";
import { type FormEvent, useState } from "react";
import { api, errorMessage, unwrap } from "../api/client";
import { nodeSummaryQuery } from "../api/queries";
import { NodeSelect } from "../components/NodePicker";
import { PageTop } from "../components/PageTop";
import { RangePicker } from "../components/RangePicker";
import { zoneName } from "../lib/time";
import styles from "./audit.module.css";
import { EntryTable } from "./EntryTable";

const PAGE = 300; // an experiment makes five entries per run, which are one row
const DAY_MS = 86_400_000;

/** Kinds of actions: the part of their names before the point. */
const ACTIONS = [
  ["change", "changes"],
  ["policy", "policies"],
  ["rollout", "rollouts"],
  ["experiment", "experiments"],
  ["node", "nodes"],
  ["login", "sign-ins"],
  ["logout", "sign-outs"],
  ["user", "users"],
  ["token", "API tokens"],
] as const;

/** The audit log: who did what to which node and when, one row per change or other action. */
export function AuditPage() {
  const { older, ...filters } = useSearch({ from: "/shell/audit" });
  const { node, actor, action, q, from, to } = filters;
  const navigate = useNavigate({ from: "/audit" });
  const [typed, setTyped] = useState({ actor: actor ?? "", q: q ?? "" });
  const inForce = JSON.stringify([actor, q]);
  const [shown, setShown] = useState(inForce);
  if (shown !== inForce) {
    setShown(inForce);
    setTyped({ actor: actor ?? "", q: q ?? "" });
  }
  const audit = useQuery({
    queryKey: ["audit", filters, older],
    queryFn: ({ signal }) =>
      unwrap(
        api.GET("/api/v1/audit", {
          params: {
            query: {
              node_id: node,
              actor,
              action,
              text: q,
              from_time: from === undefined ? undefined : new Date(from).toISOString(),
              to_time: to === undefined ? undefined : new Date(to).toISOString(),
              older_than: older,
              limit: PAGE,
            },
          },
          signal,
        }),
      ),
    staleTime: 0,
    placeholderData: (before) => before,
  });
  // Rows that gain a node's name after they are shown would move those below them.
  const ids = [...new Set(audit.data?.entries.flatMap(({ node_id }) => node_id ?? []))];
  const nodes = useQueries({ queries: ids.map(nodeSummaryQuery) });
  const names = new Map(nodes.flatMap(({ data }) => (data ? [[data.id, data.name] as const] : [])));
  const complete = audit.data !== undefined && nodes.every(({ isPending }) => !isPending);
  const submit = (event: FormEvent) => {
    event.preventDefault();
    void navigate({ search: { ...filters, actor: typed.actor || undefined, q: typed.q || undefined } });
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
          value={typed.actor}
          onChange={(event) => setTyped({ ...typed, actor: event.currentTarget.value })}
        />
        <TextInput
          label="Text"
          placeholder="any"
          maxLength={200}
          value={typed.q}
          onChange={(event) => setTyped({ ...typed, q: event.currentTarget.value })}
        />
        <NativeSelect
          label="Action"
          value={action ?? ""}
          data={[{ value: "", label: "all" }, ...ACTIONS.map(([value, label]) => ({ value, label }))]}
          onChange={(event) =>
            void navigate({ search: { ...filters, action: event.currentTarget.value || undefined } })
          }
        />
        <NodeSelect
          label="Node"
          none="all"
          nodeId={node}
          onChange={(chosen) => void navigate({ search: { ...filters, node: chosen } })}
        />
        <RangePicker
          past={from === undefined || to === undefined ? null : { from, to }}
          proposed={() => ({ from: Date.now() - DAY_MS, to: Date.now() })}
          onChange={(range) => void navigate({ search: { ...filters, ...range } })}
        />
        <Button type="submit">Show</Button>
        <Button
          onClick={() => {
            setTyped({ actor: "", q: "" });
            void navigate({ search: {} });
          }}
        >
          All entries
        </Button>
      </form>
      <section className="card" aria-busy={audit.isFetching}>
        <h2>
          Entries <small>newest first, times in {zoneName(Date.now())}; entries are never changed or removed</small>
        </h2>
        {audit.isError && (
          <p className="body bad" role="alert">
            {errorMessage(audit.error)}
          </p>
        )}
        {complete && (
          <>
            {audit.data.entries.length === 0 ? (
              <p className="body muted">No entries match.</p>
            ) : (
              <EntryTable
                entries={audit.data.entries}
                changes={audit.data.changes}
                names={nodes.some(({ isError }) => isError) ? undefined : names}
              />
            )}
            <div className={styles.pager}>
              <Button disabled={older === undefined} onClick={() => void navigate({ search: filters })}>
                Newest
              </Button>
              <Button
                disabled={!audit.data.older}
                onClick={() => void navigate({ search: { ...filters, older: audit.data.older ?? undefined } })}
              >
                Older
              </Button>
            </div>
          </>
        )}
      </section>
    </>
  );
}
