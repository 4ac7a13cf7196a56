import { Button, NativeSelect, Radio } from "@mantine/core";
import { useMutation, useQuery } from "@tanstack/react-query";
import { Link, useNavigate } from "@tanstack/react-router";
import { type ReactNode, useEffect, useState } from "react";
import { api, errorMessage, type Schemas, unwrap } from "../api/client";
import { changeQuery, handleSignedOut, nodeQuery, nodeSummaryQuery } from "../api/queries";
import { useRefusal } from "../auth/me";
import { NodeSelect } from "../components/NodePicker";
import { formatCount } from "../lib/format";
import { dateTime } from "../lib/time";
import { applyChangeUpdate } from "../live/changes";
import { ApplyPlan } from "../node/changes/ApplyPlan";
import { usePreview } from "../node/changes/applyChange";
import { policiesQuery } from "../policies/queries";
import styles from "./changes.module.css";
import { PolicyResponses } from "./PolicyResponses";
import { type Change, writtenSettingsQuery } from "./queries";
import { isPending, isRedoable } from "./state";
import { asFound, undoTargets, valuesBefore } from "./undoTargets";
import { changeWords } from "./words";

type Desired = Schemas["DesiredValueIn"];

/** The panel of `undo` in the URL: a change by its id, `node:5`, or `choose`. It writes only when its button is pressed. */
export function UndoPanel({ undo, onClose }: { undo: string; onClose: () => void }) {
  useEffect(() => {
    const close = (event: KeyboardEvent) => {
      const above = event.target instanceof Element && event.target.closest("[role=dialog], [role=menu]") !== null;
      if (event.key === "Escape" && !event.defaultPrevented && !above) onClose();
    };
    document.addEventListener("keydown", close);
    return () => document.removeEventListener("keydown", close);
  }, [onClose]);
  if (undo === "choose" || undo.startsWith("node:"))
    return <Restore nodeId={Number(undo.slice(5)) || null} onClose={onClose} />;
  return <UndoOf key={undo} id={undo} onClose={onClose} />;
}

function Frame({
  title,
  of,
  onClose,
  children,
}: {
  title: string;
  of: string;
  onClose: () => void;
  children: ReactNode;
}) {
  return (
    <aside className={`card ${styles.panel}`} aria-label={title}>
      <h2>
        {title} <small>{of}</small>
        <span className="grow" />
        <Button onClick={onClose}>Close</Button>
      </h2>
      <div className="body">{children}</div>
    </aside>
  );
}

function UndoOf({ id, onClose }: { id: string; onClose: () => void }) {
  const { data: change, error } = useQuery(changeQuery(id));
  const title = change !== undefined && isRedoable(change) ? "Redo" : "Undo";
  const of = change === undefined ? "" : `${changeWords(change.plan.actions).what} on ${change.node_name}`;
  return (
    <Frame title={title} of={of} onClose={onClose}>
      {error !== null && <p className="bad">{errorMessage(error)}</p>}
      {change !== undefined &&
        (isPending(change) ? <RollBack change={change} /> : <Choose change={change} title={title} />)}
    </Frame>
  );
}

/** An unconfirmed change needs no new plan: the agent rolls it back. */
function RollBack({ change }: { change: Change }) {
  const refusal = useRefusal("Changing nodes", useQuery(nodeSummaryQuery(change.node_id)).data?.labels);
  const undo = useMutation({
    mutationFn: () =>
      unwrap(api.POST("/api/v1/changes/{change_id}/rollback", { params: { path: { change_id: change.id } } })),
    onSuccess: applyChangeUpdate,
    onError: handleSignedOut,
  });
  return (
    <>
      <p>This change is not confirmed: an undo rolls it back at once.</p>
      {change.policy_id !== null && (
        <PolicyResponses nodeId={change.node_id} desired={valuesBefore(change)} title="Undo" rolledBack />
      )}
      <Button variant="filled" disabled={refusal !== null} loading={undo.isPending} onClick={() => undo.mutate()}>
        Undo now
      </Button>
      {refusal !== null && <p className="muted">{refusal}</p>}
      {undo.isError && (
        <p className="bad" role="alert">
          {errorMessage(undo.error)}
        </p>
      )}
    </>
  );
}

function Choose({ change, title }: { change: Change; title: string }) {
  const { data: node } = useQuery(nodeQuery(change.node_id));
  const { data: written, error } = useQuery(writtenSettingsQuery(change.node_id));
  const targets = undoTargets(change, written ?? []);
  const [chosen, setChosen] = useState(targets[0]?.id);
  const target = targets.find(({ id }) => id === chosen) ?? targets[0];
  if (error !== null) return <p className="bad">{errorMessage(error)}</p>;
  if (written === undefined || node === undefined || target === undefined) return <p className="muted">Loading.</p>;
  const keys = new Set(change.plan.actions.map(({ key }) => key));
  const last = written.filter(({ key }) => keys.has(key)).map(({ values }) => values[0]);
  const { what, values } = changeWords(change.plan.actions);
  const earlier = targets.filter(({ id }) => id.startsWith("value "));
  return (
    <>
      <Radio.Group
        value={earlier.includes(target) ? "earlier" : target.id}
        onChange={setChosen}
        aria-label="To which values"
      >
        {targets
          .filter((one) => !earlier.includes(one))
          .map(({ id, label, desired }) => (
            <Radio
              key={id}
              size="xs"
              value={id}
              label={`${label}${id === "node" ? ` (${formatCount(desired.length, "setting")})` : ""}`}
            />
          ))}
      </Radio.Group>
      {earlier.length > 1 && (
        <NativeSelect
          aria-label="An earlier value"
          value={earlier.includes(target) ? target.id : ""}
          data={[{ value: "", label: "an earlier value…" }, ...earlier.map(({ id, label }) => ({ value: id, label }))]}
          onChange={(event) => setChosen(event.currentTarget.value || targets[0]?.id)}
        />
      )}
      <Apply
        key={target.id}
        node={node}
        desired={target.desired}
        reason={`${title} of ${what} ${values}, ${dateTime(Date.parse(change.created_at))}`}
        title={title}
        undoes={isRedoable(change) ? undefined : change.id}
        restores={target.id === "found" || target.id === "node"}
        {...(target.id === "node" && { all: written.length })}
      />
      {last.length === 1 && last[0]?.at != null && (
        <p className="muted">
          Last written by {last[0].by}, {dateTime(Date.parse(last[0].at))}.
        </p>
      )}
    </>
  );
}

type ApplyProps = {
  node: Schemas["Node"];
  desired: Desired[];
  reason: string;
  title: string;
  undoes?: string | undefined;
  /** Whether the values are those found before the first change. */
  restores?: boolean;
  /** How many settings are to be restored; one plan may have room for fewer. */
  all?: number;
};

/** Preview and application of an undo; refused settings, such as those of processes that ended, can be left out. */
function Apply({ node, desired, reason, title, undoes, restores = false, all = 0 }: ApplyProps) {
  const [without, setWithout] = useState<string[]>([]);
  const wanted = desired.filter(({ key }) => !without.includes(key));
  const { data } = usePreview(node.id, { desired: wanted, allow_isolated: true }, wanted.length > 0);
  const refused = [...new Set(data?.refused.map(({ key }) => key))].filter((key) =>
    wanted.some((one) => one.key === key),
  );
  if (wanted.length === 0) return <p>No setting can be restored.</p>;
  return (
    <>
      {desired.length < all && (
        <p>
          The first {desired.length} of {formatCount(all, "setting")}; open this again for the others.
        </p>
      )}
      <PolicyResponses nodeId={node.id} desired={wanted} title={title} />
      {refused.length > 0 && desired.length > 1 && (
        <Button onClick={() => setWithout([...without, ...refused])}>
          Leave out {refused.length === 1 ? "the refused setting" : `${refused.length} refused settings`}
        </Button>
      )}
      <ApplyPlan
        key={wanted.length}
        node={node}
        desired={wanted}
        reason={reason}
        action={title}
        undoes={undoes}
        restores={restores}
        allowIsolated
        canConfirmAtOnce
      />
      <p className="muted">
        Nothing is written until you press a button. The undo is a change of its own in this list.
      </p>
    </>
  );
}

/** Restores everything on a node; what a policy wrote is restored by disabling the policy. */
function Restore({ nodeId, onClose }: { nodeId: number | null; onClose: () => void }) {
  const navigate = useNavigate({ from: "/changes" });
  const policies = useQuery(policiesQuery).data ?? [];
  return (
    <Frame title="Restore" of="the values as found" onClose={onClose}>
      <NodeSelect
        label="Every change on a node"
        none="choose a node"
        nodeId={nodeId ?? undefined}
        onChange={(id) => {
          const undo = id === undefined ? "choose" : `node:${id}`;
          void navigate({ search: (before) => ({ ...before, undo }), resetScroll: false });
        }}
      />
      {nodeId === null ? (
        <>
          <h3>Every change of a policy</h3>
          <p className="muted">Disabling a policy restores every setting that it wrote, on all of its nodes.</p>
          {policies.length === 0 && <p className="muted">There are no policies.</p>}
          <ul className={styles.moves}>
            {policies.map(({ id, name }) => (
              <li key={id}>
                <Link to="/policies/$policyId" params={{ policyId: id }}>
                  {name}
                </Link>
              </li>
            ))}
          </ul>
        </>
      ) : (
        <RestoreNode key={nodeId} nodeId={nodeId} />
      )}
    </Frame>
  );
}

function RestoreNode({ nodeId }: { nodeId: number }) {
  const { data: node } = useQuery(nodeQuery(nodeId));
  const { data: written, error } = useQuery(writtenSettingsQuery(nodeId));
  if (error !== null) return <p className="bad">{errorMessage(error)}</p>;
  if (written === undefined || node === undefined) return <p className="muted">Loading.</p>;
  if (written.length === 0) return <p className="muted">No change on record wrote a setting of {node.name}.</p>;
  const desired = asFound(written);
  const restored = desired.length < written.length ? `${desired.length} of ${written.length} settings` : "everything";
  return (
    <Apply
      node={node}
      desired={desired}
      reason={`Restore of ${restored} on ${node.name}`}
      title="Restore"
      restores
      all={written.length}
    />
  );
}
