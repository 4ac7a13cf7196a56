import type { Topology } from "../types";
import { NodeMatrix } from "./NodeMatrix";
import styles from "./numa.module.css";
import type { NumaEntry } from "./numaTasks";
import { missing, type NodeTraffic, short, trafficMatrix } from "./traffic";

const FORMULA = "Σ over processes of CPU time on a node × share of their memory on the other node";
const SOURCES = {
  measured: ["Measured by resctrl", "Where several nodes are remote, the remote traffic is split by derived accesses"],
  processes: [
    "Derived from the traffic of processes",
    "Σ of each process's traffic × its shares of CPU time and memory",
  ],
  cpus: ["Derived: CPU time × share of memory", FORMULA],
} as const;

type Props = {
  nodes: Topology["numa_nodes"];
  traffic: NodeTraffic[];
  entries: NumaEntry[];
  trafficUnknown: string | null;
};

/** The memory accesses between NUMA nodes as a matrix: bytes where known, else derived. */
export function TrafficMatrix({ nodes, traffic, entries, trafficUnknown }: Props) {
  const matrix = trafficMatrix(traffic, nodes);
  const [source, formula] = SOURCES[!matrix?.isBytes ? "cpus" : trafficUnknown === null ? "measured" : "processes"];
  const largest = Math.max(0, ...(matrix?.values ?? []).flat().map((value) => value ?? 0));
  const without = missing(entries);
  const unknown =
    matrix === null
      ? "The memory of no busy process is known yet."
      : (trafficUnknown ?? "resctrl does not state it at the moment.");
  const values = matrix?.values ?? nodes.map(() => nodes.map(() => null));
  return (
    <NodeMatrix
      heading={`Traffic between nodes${matrix === null ? "" : ` (${matrix.unit})`}`}
      title={`Memory accesses from the CPUs of a node (row) to the memory of a node (column). ${formula}.`}
      nodes={nodes}
      rows={values.map((row) =>
        row.map((value) =>
          value === null || matrix === null
            ? null
            : { text: short(value), title: matrix.title(value), strength: largest === 0 ? 0 : value / largest },
        ),
      )}
      unknown={unknown}
    >
      {matrix === null && <p className={styles.source}>{unknown}</p>}
      {matrix !== null && (
        <p className={styles.source} title={`${formula}.`}>
          {source}
          {source !== SOURCES.measured[0] &&
            without > 0 &&
            `, without ${without.toLocaleString("en")} ${without === 1 ? "process" : "processes"} of unknown memory`}
        </p>
      )}
    </NodeMatrix>
  );
}
