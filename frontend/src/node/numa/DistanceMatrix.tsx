import { useId } from "react";
import { Unknown } from "../../components/Unknown";
import type { Topology } from "../types";
import { NodeLabel } from "./MemoryBar";
import styles from "./numa.module.css";
import { distanceRows } from "./numaTasks";

const LOCAL = 10;
/** The strongest tint, for text on it to stay readable. */
const MAX_TINT_PERCENT = 42;

/** The distances between NUMA nodes as a matrix, darker for longer ones. */
export function DistanceMatrix({ nodes }: { nodes: Topology["numa_nodes"] }) {
  const heading = useId();
  const rows = distanceRows(nodes);
  if (rows === null)
    return (
      <div className={styles.matrix}>
        <p className="muted">Distance between nodes</p>
        <Unknown why="The kernel does not report the distances of all nodes." />
      </div>
    );
  const longest = Math.max(LOCAL + 1, ...rows.flat());
  const tint = (distance: number) => Math.round((MAX_TINT_PERCENT * (distance - LOCAL)) / (longest - LOCAL));
  return (
    <div className={styles.matrix}>
      <p id={heading} className="muted" title="ACPI SLIT: relative latency of memory accesses">
        Distance between nodes ({LOCAL} = local)
      </p>
      <table aria-labelledby={heading}>
        <thead>
          <tr>
            <td>
              <span className="visually-hidden">from, to</span>
            </td>
            {nodes.map(({ id }) => (
              <th key={id} scope="col">
                <NodeLabel node={id} />
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {rows.map((row, from) => (
            <tr key={nodes[from]?.id}>
              <th scope="row">
                <NodeLabel node={nodes[from]?.id ?? from} />
              </th>
              {row.map((distance, to) => (
                <td
                  key={nodes[to]?.id}
                  title={`From CPUs of node ${nodes[from]?.id} to memory of node ${nodes[to]?.id}: ${distance / LOCAL} times the local latency`}
                  style={{ background: `color-mix(in srgb, var(--user) ${tint(distance)}%, var(--panel))` }}
                >
                  {distance}
                </td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}
