import { useQuery } from "@tanstack/react-query";
import { errorMessage } from "../../api/client";
import { clock } from "../../lib/time";
import nodeStyles from "../node.module.css";
import type { NodeView } from "../nodeView";
import { numaQuery } from "../queries";
import { DistanceMatrix } from "./DistanceMatrix";
import { NodeMemoryTable } from "./NodeMemoryTable";
import { NumaTaskTable } from "./NumaTaskTable";
import styles from "./numa.module.css";
import { TrafficMatrix } from "./TrafficMatrix";

/** NUMA nodes with their memory and distances, and processes with their memory by NUMA node. */
export function Numa({ view }: { view: NodeView }) {
  const isSingle = view.topology.numa_nodes.length < 2;
  return (
    <section className="card" aria-labelledby="numa-heading">
      <h2 className={nodeStyles.wrap}>
        <span id="numa-heading">NUMA</span>
        <small>memory of nodes and processes</small>
        {!isSingle && <At view={view} />}
      </h2>
      {isSingle ? <p className={nodeStyles.note}>This node has a single NUMA node.</p> : <Loaded view={view} />}
    </section>
  );
}

function At({ view }: { view: NodeView }) {
  const at = useQuery(numaQuery(view.node.id)).data?.at ?? null;
  return <small>{at === null ? "no data yet" : `as of ${clock(Date.parse(at))}`}</small>;
}

function Loaded({ view }: { view: NodeView }) {
  const numa = useQuery(numaQuery(view.node.id));
  const { numa_nodes: nodes } = view.topology;
  if (numa.isError)
    return (
      <p className={`bad ${nodeStyles.note}`} role="alert">
        {errorMessage(numa.error)}
      </p>
    );
  if (numa.data === undefined)
    return (
      <div className={`hatched ${styles.nothing}`}>
        <span>Loading the memory of nodes and processes.</span>
      </div>
    );
  const { at, nodes: memory, tasks, traffic, bandwidth_unknown: why, traffic_unknown: trafficUnknown } = numa.data;
  return (
    <>
      <div className={styles.nodes}>
        <NodeMemoryTable nodes={nodes} memory={memory} traffic={traffic} trafficUnknown={trafficUnknown} />
        <div className={styles.matrices}>
          <DistanceMatrix nodes={nodes} />
          <TrafficMatrix nodes={nodes} traffic={traffic} entries={tasks} trafficUnknown={trafficUnknown} />
        </div>
      </div>
      {why !== null && (
        <p className={styles.reason}>
          <b>Contention is unknown:</b> {why} Predictions leave it out.
        </p>
      )}
      {at !== null ? (
        <NumaTaskTable view={view} entries={tasks} bandwidthUnknown={why} />
      ) : (
        <div className={`hatched ${styles.nothing}`}>
          <span>The agent has not reported the memory of processes yet.</span>
        </div>
      )}
    </>
  );
}
