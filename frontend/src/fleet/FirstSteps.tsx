import { Button } from "@mantine/core";
import { useLocalStorage } from "@mantine/hooks";
import { useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { useEffect, useMemo } from "react";
import { api, type Schemas, unwrap } from "../api/client";
import { fleetQuery, nodeQuery, queryClient } from "../api/queries";
import { useHasRole, useMe } from "../auth/me";
import { useLive } from "../live/socket";
import { EnrolCommand } from "../settings/EnrolNode";
import { useEnrolment } from "../settings/enrolment";
import { SimulatedNodes } from "../settings/SimulatedNodes";
import { simulatedNodesQuery } from "../settings/simulatedNodes";
import { doneSteps, factsOf, isNewFleet, STEPS, type StepId } from "./firstSteps";
import styles from "./firstSteps.module.css";
import { FleetFigures, frameOfNodes } from "./fleetStore";
import { hottestCpu } from "./hotspots";

type NodeSummary = Schemas["NodeSummary"];
/** What this browser remembers for a user: steps that stay done although the fleet no longer shows it. */
type Memory = { done: StepId[]; hidden: boolean };

const RECENT = { queryKey: ["changes", "first-steps"] };

/** Whether some change of the fleet was rolled back: by its timeout, by a guardrail or a person. Undefined while loading. */
export function useUndone(enabled: boolean): boolean | undefined {
  const recent = useQuery({
    ...RECENT,
    queryFn: ({ signal }) => unwrap(api.GET("/api/v1/changes", { params: { query: { limit: 100 } }, signal })),
    enabled,
    staleTime: 0, // changes end while another page is open
  });
  useLive("change", () => void queryClient.invalidateQueries(RECENT));
  return recent.isLoading ? undefined : (recent.data?.changes.some(({ state }) => state === "rolled_back") ?? false);
}

/** The machines, live ones first, with which the first steps are made. */
export const machinesQuery = fleetQuery({ q: "simulated:no", sort: "health", limit: 1 });

type Props = { machines: Schemas["FleetAnswer"]; undone: boolean; onRemoveSimulated: () => void };

/** The first steps of a new fleet; nothing once all are done, hidden, or the fleet has grown. undone: see useUndone. */
export function FirstSteps({ machines, undone, onRemoveSimulated }: Props) {
  const me = useMe();
  const roles = { viewer: true, operator: useHasRole("operator"), admin: useHasRole("admin") };
  const [memory, setMemory] = useLocalStorage<Memory>({
    key: `coresteer-first-steps-${me?.username}`,
    defaultValue: { done: [], hidden: false },
    getInitialValueInEffect: false,
  });
  const enrol = useEnrolment();
  const fleet = factsOf(machines);
  const isShown = !memory.hidden && isNewFleet(fleet);
  const facts = [...doneSteps(fleet, undone)];
  const done = new Set([...memory.done, ...facts]);
  const steps = STEPS.filter(({ needs }) => roles[needs]);
  const isComplete = steps.every(({ id }) => done.has(id));
  const forgotten = isShown && facts.some((id) => !memory.done.includes(id));
  useEffect(() => {
    if (forgotten) setMemory({ ...memory, done: [...new Set([...memory.done, ...facts])] });
  });
  if (!isShown || isComplete) return null;
  const node = machines.rows.find(({ health }) => health !== "new");
  const remember = (id: StepId) => setMemory({ ...memory, done: [...new Set([...memory.done, id])] });
  return (
    <section className={`card ${styles.card}`} aria-label="First steps">
      <h2>
        First steps{" "}
        <small>
          {steps.filter(({ id }) => done.has(id)).length} of {steps.length} done
        </small>
        <span className="grow" />
        <Button variant="subtle" onClick={() => setMemory({ ...memory, hidden: true })}>
          Hide
        </Button>
      </h2>
      <ol className={styles.steps}>
        {steps.map(({ id, title }, index) => (
          <li key={id} data-done={done.has(id) || undefined}>
            <span className={styles.mark} aria-hidden="true">
              {done.has(id) ? "✓" : index + 1}
            </span>
            <div>
              <b>{title}</b>
              {done.has(id) ? (
                <span className="visually-hidden"> (done)</span>
              ) : id === "live" ? (
                <p>A node is live once its agent connects; the agent's log says why it does not.</p>
              ) : id === "hottest" ? (
                <Hottest node={node} onLook={() => remember("hottest")} />
              ) : id === "move" ? (
                <TryMove node={node} />
              ) : id === "add" ? (
                <>
                  <p>Copy one command and run it on the other machine.</p>
                  <Button loading={enrol.isPending} onClick={() => enrol.mutate({})}>
                    Show the command
                  </Button>
                </>
              ) : (
                <Simulate onRemove={onRemoveSimulated} />
              )}
            </div>
          </li>
        ))}
      </ol>
      {!enrol.isIdle && (
        <div className={styles.opened}>
          <EnrolCommand enrol={enrol} />
        </div>
      )}
    </section>
  );
}

function Simulate({ onRemove }: { onRemove: () => void }) {
  const unavailable = useQuery(simulatedNodesQuery).data?.unavailable_because;
  if (unavailable)
    return (
      <p>
        <Link to="/settings/nodes">Settings: nodes</Link> has the command that simulates nodes.
      </p>
    );
  return <SimulatedNodes onRemove={onRemove} />;
}

function Hottest({ node, onLook }: { node: NodeSummary | undefined; onLook: () => void }) {
  const figures = useMemo(() => new FleetFigures(frameOfNodes(node === undefined ? [] : [node])), [node]);
  const cpu = node === undefined ? Number.NaN : hottestCpu(node.id, figures).cpu;
  if (node === undefined) return <p>The load of each CPU follows with the first samples.</p>;
  // The words are the same before the first samples, and nothing moves when they arrive.
  const search = Number.isNaN(cpu) ? {} : { sel: `cpu:${cpu}` };
  return (
    <p>
      <Link to="/nodes/$nodeId" params={{ nodeId: node.id }} search={search} onClick={onLook}>
        Open the hottest CPU of {node.name}
      </Link>{" "}
      and see which interrupts and processes load it.
    </p>
  );
}

/** A link to an interrupt that may be moved: of the machine, or of a simulated node where the agent only observes. */
function TryMove({ node }: { node: NodeSummary | undefined }) {
  const observes = node?.mode !== "control";
  const simulated = useQuery({ ...fleetQuery({ q: "simulated:yes health:live", limit: 1 }), enabled: observes }).data;
  const target = observes ? simulated?.rows[0] : node;
  const details = useQuery({ ...nodeQuery(target?.id ?? 0), enabled: target !== undefined }).data;
  const irq = details?.inventory?.irqs.find(({ movable }) => movable)?.irq;
  const search = irq === undefined ? {} : { sel: `irq:${irq}` };
  return (
    <>
      {node !== undefined && observes && (
        <p>
          {node.name} only observes{node.observe_reason === null ? "" : `: ${node.observe_reason}`}.{" "}
          {target === undefined && "Simulate a fleet and try it there."}
        </p>
      )}
      {target !== undefined && (
        <p>
          {details !== undefined && irq === undefined ? (
            <>No interrupt of {target.name} can be moved.</>
          ) : (
            <>
              <Link to="/nodes/$nodeId" params={{ nodeId: target.id }} search={search}>
                Open an interrupt of {target.name}
              </Link>
              , choose another CPU and apply. Without your confirmation the agent restores the old value.
            </>
          )}
        </p>
      )}
      {node === undefined && target === undefined && <p>Any change that you do not confirm is undone by the agent.</p>}
    </>
  );
}
