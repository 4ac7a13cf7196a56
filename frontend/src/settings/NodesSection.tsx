import { Button, Modal, TextInput } from "@mantine/core";
import { useDebouncedValue } from "@mantine/hooks";
import { keepPreviousData, useMutation, useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { useState } from "react";
import { api, errorMessage, type Schemas, unwrap } from "../api/client";
import { fleetQuery, handleSignedOut, queryClient } from "../api/queries";
import { refusalFor, useHasRole, useIsSomeOperator, useMe } from "../auth/me";
import { ConfirmDialog } from "../components/ConfirmDialog";
import { CopyField, Secret } from "../components/CopyField";
import dialogStyles from "../components/dialog.module.css";
import { Moment } from "../components/Moment";
import { HealthDot, SimulatedTag } from "../components/NodeTags";
import { Pager } from "../components/Pager";
import { ActionsHeading } from "../components/RowsTable";
import { Scroll } from "../components/Scroll";
import { useFocusReturn } from "../components/useFocusReturn";
import { clockOffsetMs } from "../lib/clock";
import { duration } from "../lib/format";
import { EditLabels } from "./EditLabels";
import { AddNodes, EnrolmentTokens } from "./EnrolmentTokens";
import { ENROLMENT_TOKENS } from "./enrolment";
import { RemoveSimulated } from "./RemoveSimulated";
import { SimulatedNodes } from "./SimulatedNodes";
import styles from "./settings.module.css";

type NodeSummary = Schemas["NodeSummary"];
type NodeAction = { kind: "readmit" | "revoke" | "delete" | "labels"; node: NodeSummary };

const PAGE = 50;
const TYPING_MS = 250;
const SKEW_WARN_MS = 1_000;

function Skew({ ms }: { ms: number | null }) {
  if (ms === null) return <span className="muted">–</span>;
  if (Math.abs(ms) < SKEW_WARN_MS) return <>{`${Math.round(ms)} ms`.replace("-", "−")}</>;
  return (
    <span className="warn" title="Set the node's clock: up to a day, samples are stored with the node's time">
      {ms > 0 ? "ahead by " : "behind by "}
      {duration(Math.abs(ms) / 1000)}
    </span>
  );
}

function ConfirmAction({ node, kind, onClose }: { node: NodeSummary; kind: "revoke" | "delete"; onClose: () => void }) {
  const params = { path: { node_id: node.id } };
  const act = useMutation({
    mutationFn: () =>
      kind === "revoke"
        ? unwrap(api.POST("/api/v1/nodes/{node_id}/revoke-key", { params }))
        : unwrap(api.DELETE("/api/v1/nodes/{node_id}", { params })),
    onError: handleSignedOut,
    onSuccess: () => {
      onClose();
      return queryClient.invalidateQueries({ queryKey: ["fleet"] });
    },
  });
  const common = { pending: act.isPending, error: act.error, onConfirm: () => act.mutate(), onClose };
  return kind === "revoke" ? (
    <ConfirmDialog title={`Revoke the key of ${node.name}`} action="Revoke" {...common}>
      <p>
        Its agent is disconnected until an administrator readmits it. Until it is stopped on the machine, it goes on
        with the policies that it has, and no stop of enforcement reaches it. If the machine has an enrolment token that
        others use as well, revoke that too. The node's history is retained.
      </p>
    </ConfirmDialog>
  ) : (
    <ConfirmDialog title={`Delete ${node.name}`} action="Delete" typed={node.name} {...common}>
      <p>
        The node, its key and its whole history are removed from Coresteer. On the machine nothing changes: its agent
        goes on with the policies that it has, and no stop of enforcement reaches it. Remove the agent there first.
      </p>
    </ConfirmDialog>
  );
}

/** Dialog that creates the command with which a node that was installed anew enrols again. */
function Readmit({ node, onClose }: { node: NodeSummary; onClose: () => void }) {
  useFocusReturn();
  const readmit = useMutation({
    mutationFn: () => unwrap(api.POST("/api/v1/nodes/{node_id}/readmit", { params: { path: { node_id: node.id } } })),
    onError: handleSignedOut,
    onSuccess: () => queryClient.invalidateQueries({ queryKey: ENROLMENT_TOKENS }),
  });
  return (
    <Modal opened onClose={onClose} title={`Readmit ${node.name}`} closeButtonProps={{ "aria-label": "Close" }}>
      <div className={dialogStyles.dialog}>
        <p>
          For a machine that lost its key, such as one that was installed anew. It keeps its history; its key so far
          ends when it enrols.
        </p>
        {readmit.isError && (
          <p className="bad" role="alert">
            {errorMessage(readmit.error)}
          </p>
        )}
        {readmit.isSuccess ? (
          <Secret>
            <p>Run this on {node.name}, as root:</p>
            <CopyField text={readmit.data.command} label="command" />
            <p className="muted">
              The token works once, until <Moment at={readmit.data.expires_at} />, and is not shown again.
            </p>
          </Secret>
        ) : (
          <div className={dialogStyles.buttons}>
            <Button onClick={onClose}>Cancel</Button>
            <Button variant="filled" loading={readmit.isPending} onClick={() => readmit.mutate()}>
              Create the command
            </Button>
          </div>
        )}
      </div>
    </Modal>
  );
}

/** Settings section of nodes and agents: enrolment, health, clocks, labels and keys. */
export function NodesSection() {
  const [typed, setTyped] = useState("");
  const [q] = useDebouncedValue(typed.trim(), TYPING_MS);
  const isAdmin = useHasRole("admin");
  const me = useMe();
  const isOperator = useIsSomeOperator();
  const isUnlimited = useHasRole("operator");
  const [action, setAction] = useState<NodeAction | null>(null);
  const [isRemoving, setRemoving] = useState(false);
  const [page, setPage] = useState(0);
  const nodes = useQuery({ ...fleetQuery({ q, offset: page * PAGE, limit: PAGE }), placeholderData: keepPreviousData });
  const sorted = nodes.data?.rows ?? [];
  const matching = nodes.data?.totals.nodes ?? 0;
  // Its only row was deleted.
  if (page > 0 && matching <= page * PAGE && nodes.isSuccess && !nodes.isPlaceholderData) setPage(page - 1);
  return (
    <>
      <section className="card">
        <h2>Add nodes</h2>
        <div className="body">
          <AddNodes />
        </div>
      </section>
      {isAdmin && <EnrolmentTokens />}
      <section className="card">
        <h2>Simulated nodes</h2>
        <div className="body">
          <SimulatedNodes onRemove={() => setRemoving(true)} />
        </div>
      </section>
      {isRemoving && <RemoveSimulated onClose={() => setRemoving(false)} />}
      <section className="card">
        <h2>
          Nodes and agents <small>{nodes.data?.nodes.toLocaleString("en") ?? ""}</small>
          <span className="grow" />
          <TextInput
            data-filter
            w={260}
            aria-label="Filter nodes"
            placeholder="name, label:role=db, health:away"
            value={typed}
            error={nodes.data?.problems[0]}
            onChange={(event) => {
              setTyped(event.currentTarget.value);
              setPage(0);
            }}
          />
        </h2>
        {nodes.isError && (
          <p className="body bad" role="alert">
            {errorMessage(nodes.error)}
          </p>
        )}
        {nodes.data?.nodes === 0 && <p className="body muted">No node has been added yet.</p>}
        {matching === 0 && q !== "" && <p className="body muted">No node matches the filter.</p>}
        {sorted.length > 0 && (
          <Scroll label="Nodes and agents">
            <table className="table">
              <thead>
                <tr>
                  <th>node</th>
                  <th>health</th>
                  <th>agent</th>
                  <th>mode</th>
                  <th className="n">clock offset</th>
                  <th>last seen</th>
                  <th>labels</th>
                  {isOperator && <ActionsHeading />}
                </tr>
              </thead>
              <tbody>
                {sorted.map((node) => (
                  <tr key={node.id}>
                    <td>
                      <HealthDot health={node.health} />
                      <Link to="/nodes/$nodeId" params={{ nodeId: node.id }}>
                        {node.name}
                      </Link>{" "}
                      {node.simulated && <SimulatedTag />}
                    </td>
                    <td>{node.health}</td>
                    <td>{node.agent_version ?? "–"}</td>
                    <td className="wrap">
                      {node.mode ?? "–"}
                      {node.observe_reason !== null && <span className="muted">: {node.observe_reason}</span>}
                    </td>
                    <td className="n">
                      <Skew ms={clockOffsetMs(node)} />
                    </td>
                    <td>{node.health === "live" ? "now" : <Moment at={node.last_seen_at} />}</td>
                    <td className={styles.labels}>
                      {Object.entries(node.labels).map(([key, value]) => (
                        <span key={key} className="tag">
                          {key}={value}
                        </span>
                      ))}
                      {isUnlimited && (
                        <Button
                          variant="subtle"
                          onClick={() => setAction({ kind: "labels", node })}
                          aria-label={`Edit labels of ${node.name}`}
                        >
                          Edit
                        </Button>
                      )}
                    </td>
                    {isOperator && (
                      <td>
                        <span className={styles.actions}>
                          {!node.simulated && (
                            <Button
                              onClick={() => setAction({ kind: "readmit", node })}
                              aria-label={`Readmit ${node.name}`}
                              disabled={refusalFor(me, "Readmitting", node.labels) !== null}
                              title={
                                refusalFor(me, "Readmitting", node.labels) ??
                                "For a machine that lost its key, such as one that was installed anew"
                              }
                            >
                              Readmit
                            </Button>
                          )}
                          {isAdmin && (
                            <>
                              <Button
                                onClick={() => setAction({ kind: "revoke", node })}
                                aria-label={`Revoke key of ${node.name}`}
                              >
                                Revoke key
                              </Button>
                              <Button
                                onClick={() => setAction({ kind: "delete", node })}
                                aria-label={`Delete ${node.name}`}
                              >
                                Delete
                              </Button>
                            </>
                          )}
                        </span>
                      </td>
                    )}
                  </tr>
                ))}
              </tbody>
            </table>
          </Scroll>
        )}
        <Pager page={page} size={PAGE} total={matching} onPage={setPage} />
        {!isAdmin && <p className="body muted">Revoking a key or deleting a node needs the admin role.</p>}
      </section>
      {action?.kind === "labels" && <EditLabels node={action.node} onClose={() => setAction(null)} />}
      {action?.kind === "readmit" && <Readmit node={action.node} onClose={() => setAction(null)} />}
      {(action?.kind === "revoke" || action?.kind === "delete") && (
        <ConfirmAction node={action.node} kind={action.kind} onClose={() => setAction(null)} />
      )}
    </>
  );
}
