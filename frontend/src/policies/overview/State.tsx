import { Button } from "@mantine/core";
import { useMutation, useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { type ReactNode, useState } from "react";
import { api, errorMessage, unwrap } from "../../api/client";
import { ROUND_PERIOD_S } from "../../api/constants";
import { handleSignedOut, queryClient } from "../../api/queries";
import { useRefusal } from "../../auth/me";
import { ConfirmDialog } from "../../components/ConfirmDialog";
import { Moment } from "../../components/Moment";
import { formSchemas } from "../../forms/formSchemas";
import { SchemaInput } from "../../forms/SchemaField";
import { formatCount } from "../../lib/format";
import { isWaiting } from "../approvals/shown";
import { describeDisabling, describeEnabling, movesMemory, policyState, policyTone } from "../policyState";
import { overviewQuery, policiesQuery } from "../queries";
import type { Overview, Policy } from "../types";
import { endingOf, evaluated, unrestored, writes } from "./ending";
import styles from "./overview.module.css";

type Watched =
  | { what: "enable"; before: ReadonlyMap<number, string | null> }
  | { what: "disable"; nodes: number; settings: number };

type Verb = "enable" | "disable";

const VERBS = { enable: "Enable", disable: "Disable" } as const;

/** The policy's effect, its state, and how to enable or disable it: with numbers first, and progress after. */
export function State({ policy, children }: { policy: Policy; children: ReactNode }) {
  const isOperator = useRefusal("", policy.body.selector.labels) === null;
  // Somebody else may enable or disable the policy while the dialog is open: it keeps to what was asked.
  const [asking, setAsking] = useState<Verb | null>(null);
  const [watched, setWatched] = useState<Watched | null>(null);
  const [leavePages, setLeavePages] = useState("");
  const overview = useQuery(overviewQuery(policy.id, watched !== null)).data;
  const path = { policy_id: policy.id };
  const toggle = useMutation({
    mutationFn: (wanted: Verb) =>
      wanted === "disable"
        ? unwrap(
            api.POST("/api/v1/policies/{policy_id}/disable", {
              params: { path, query: { leave_pages: leavePages === "true" } },
            }),
          )
        : unwrap(api.POST("/api/v1/policies/{policy_id}/enable", { params: { path } })),
    onMutate: (wanted) => {
      const nodes = overview?.nodes ?? [];
      const ending = endingOf({ nodes });
      setWatched(
        !writes(policy)
          ? null
          : wanted === "disable"
            ? { what: "disable", nodes: ending.now + ending.later, settings: ending.settings }
            : { what: "enable", before: new Map(nodes.map(({ node_id, at }) => [node_id, at])) },
      );
    },
    onError: (error) => {
      setWatched(null);
      handleSignedOut(error);
    },
    onSuccess: (outcome) => {
      if (isWaiting(outcome)) setWatched(null);
      setAsking(null);
      return queryClient.invalidateQueries({ queryKey: policiesQuery.queryKey });
    },
  });
  const schema = formSchemas().rollout.properties?.leave_pages;
  const verb: Verb = policy.enabled ? "disable" : "enable";
  return (
    <>
      <section className={`card ${styles.state}`} aria-label="State">
        {children}
        <div className={styles.actions}>
          <b>
            <span className={`dot ${policyTone(policy)}`} />
            {policyState(policy)}
          </b>
          {isOperator && (
            <Button
              variant={policy.enabled ? "default" : "filled"}
              {...(policy.enabled && writes(policy) && { className: styles.dangerous })}
              loading={toggle.isPending}
              onClick={() => (writes(policy) ? setAsking(verb) : toggle.mutate(verb))}
            >
              {VERBS[verb]}
            </Button>
          )}
        </div>
        {!writes(policy) && (
          <p className={styles.what}>{policy.enabled ? describeDisabling(policy) : describeEnabling(policy)}</p>
        )}
        {overview?.closed != null && <Closed {...overview.closed} />}
        {toggle.isError && asking === null && (
          <p className="bad" role="alert">
            {errorMessage(toggle.error)}
          </p>
        )}
      </section>
      {overview !== undefined && (
        <Progress policy={policy} overview={overview} watched={watched} onHide={() => setWatched(null)} />
      )}
      {asking !== null && (
        <ConfirmDialog
          title={`${VERBS[asking]} ${policy.name}?`}
          action={`${VERBS[asking]} on ${formatCount(concerned(asking, policy, overview), "node")}`}
          harmless={asking === "enable"}
          pending={toggle.isPending}
          error={toggle.error}
          onConfirm={() => toggle.mutate(asking)}
          onClose={() => {
            toggle.reset();
            setAsking(null);
          }}
        >
          {asking === "disable" ? <Disabling policy={policy} overview={overview} /> : <Enabling policy={policy} />}
          {asking === "disable" && movesMemory(policy) && schema !== undefined && (
            <SchemaInput schema={schema} value={leavePages} onChange={setLeavePages} />
          )}
        </ConfirmDialog>
      )}
    </>
  );
}

/** That the policy writes nothing on some nodes, because no change window of theirs is open. */
function Closed({ nodes, opens_at }: NonNullable<Overview["closed"]>) {
  return (
    <p className={styles.what}>
      Outside the change windows of {formatCount(nodes, "node")}: it writes nothing there
      {opens_at === null ? (
        "."
      ) : (
        <>
          ; the first window opens <Moment at={opens_at} />.
        </>
      )}
    </p>
  );
}

function concerned(verb: Verb, policy: Policy, overview: Overview | undefined): number {
  if (verb === "enable" || overview === undefined) return policy.nodes;
  const { now, later } = endingOf(overview);
  return now + later;
}

function Disabling({ policy, overview }: { policy: Policy; overview: Overview | undefined }) {
  const { rollout } = policy;
  const ending = overview === undefined ? null : endingOf(overview);
  const updated = rollout === null ? 0 : rollout.stages.slice(0, rollout.stage + 1).flat().length;
  return (
    <>
      <p className="muted">
        Each setting gets back the value that it had before the policy, later where a change window is closed or
        enforcement is stopped.
      </p>
      <Numbers
        rows={[
          ["Nodes connected now", ending?.now],
          ["Disconnected nodes, on reconnect", ending?.later],
          ["Settings to restore", ending?.settings],
          ["Changed by others, skipped", ending?.foreign],
        ]}
      >
        {rollout !== null && (
          <div>
            <dt>Rollout of v{rollout.to_version}</dt>
            <dd className="warn">canceled, {formatCount(updated, "node")}</dd>
          </div>
        )}
      </Numbers>
    </>
  );
}

function Enabling({ policy }: { policy: Policy }) {
  return (
    <>
      <p className="muted">{describeEnabling(policy)}</p>
      <Numbers
        rows={[
          ["Nodes, at once or on reconnect", policy.nodes],
          [`Changes per node every ${ROUND_PERIOD_S} s, at most`, policy.body.damping.moves_per_step],
          ["Guardrails that undo a change", policy.body.guardrails.length],
        ]}
      />
    </>
  );
}

function Numbers({ rows, children }: { rows: [label: string, value: number | undefined][]; children?: ReactNode }) {
  return (
    <dl className={styles.numbers}>
      {rows.map(([label, value]) => (
        <div key={label}>
          <dt>{label}</dt>
          <dd>{value === undefined ? "counting…" : value.toLocaleString("en")}</dd>
        </div>
      ))}
      {children}
    </dl>
  );
}

type ProgressProps = { policy: Policy; overview: Overview; watched: Watched | null; onHide: () => void };

/** How far nodes are after the policy was enabled or disabled; also for settings that a disabled policy still has. */
function Progress({ policy, overview, watched, onHide }: ProgressProps) {
  const left = unrestored(overview);
  const disconnected = left.filter(({ connected }) => !connected);
  if (watched?.what === "enable" && policy.enabled) {
    const done = evaluated(overview, watched.before).length;
    const all = overview.nodes.filter(({ version }) => version !== null).length;
    return (
      <Bar done={done} all={all} label="Nodes that have evaluated the policy" onHide={onHide}>
        {done < all ? `${done} of ${formatCount(all, "node")} have` : `All ${formatCount(all, "node")} have`} evaluated
        the policy.
      </Bar>
    );
  }
  if (policy.enabled || (left.length === 0 && watched?.what !== "disable")) return null;
  const all = Math.max(left.length, watched?.what === "disable" ? watched.nodes : 0);
  const done = all - left.length;
  return (
    <Bar done={done} all={all} label="Nodes that are restored" {...(left.length === 0 && { onHide })}>
      {left.length === 0
        ? `Restored on all ${formatCount(all, "node")}${watched?.what === "disable" ? `: ${formatCount(watched.settings, "setting")}` : ""}.`
        : `Restored on ${done} of ${formatCount(all, "node")}.`}
      {disconnected.length > 0 &&
        ` ${formatCount(disconnected.length, "disconnected node")} will be restored on reconnect.`}
      {left.length > disconnected.length && left.length - disconnected.length <= 3 && (
        <>
          {" "}
          Not yet:{" "}
          {left
            .filter(({ connected }) => connected)
            .map(({ node_id, node_name }) => (
              <Link key={node_id} to="/nodes/$nodeId" params={{ nodeId: node_id }}>
                {node_name}{" "}
              </Link>
            ))}
        </>
      )}
    </Bar>
  );
}

type BarProps = { done: number; all: number; label: string; onHide?: () => void; children: ReactNode };

function Bar({ done, all, label, onHide, children }: BarProps) {
  return (
    <section className={`card ${styles.progress}`} aria-label="Progress">
      <progress max={Math.max(1, all)} value={all === 0 ? 1 : done} aria-label={label} />
      <span role="status">{children}</span>
      {onHide !== undefined && (
        <button type="button" className="link" onClick={onHide}>
          Hide
        </button>
      )}
    </section>
  );
}
