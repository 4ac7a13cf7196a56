import { type ReactNode, useId } from "react";
import { Unknown } from "../../components/Unknown";
import type { Topology } from "../types";
import { NodeLabel } from "./MemoryBar";
import styles from "./numa.module.css";

/** The strongest tint, for text on it to stay readable. */
const MAX_TINT_PERCENT = 42;

/** A value for a pair of NUMA nodes. strength: of its tint, 0 to 1. */
export type Cell = { text: string; title: string; strength: number };

type Props = {
  heading: string;
  title: string;
  nodes: Topology["numa_nodes"];
  /** By row: from the CPUs of a node to the memory of each; null where unknown. */
  rows: (Cell | null)[][] | null;
  unknown: string;
  children?: ReactNode;
};

/** A matrix of the pairs of NUMA nodes, darker for larger values. */
export function NodeMatrix({ heading, title, nodes, rows, unknown, children }: Props) {
  const id = useId();
  return (
    <div className={styles.matrix}>
      <p id={id} className="muted" title={title}>
        {heading}
      </p>
      {rows === null ? (
        <Unknown why={unknown} />
      ) : (
        <table aria-labelledby={id}>
          <thead>
            <tr>
              <td>
                <span className="visually-hidden">from, to</span>
              </td>
              {nodes.map((node) => (
                <th key={node.id} scope="col">
                  <NodeLabel node={node.id} />
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
                {row.map((cell, to) =>
                  cell === null ? (
                    <td key={nodes[to]?.id} className="hatched" title={unknown}>
                      <span className="visually-hidden">unknown: {unknown}</span>
                    </td>
                  ) : (
                    <td
                      key={nodes[to]?.id}
                      title={`From CPUs of node ${nodes[from]?.id} to memory of node ${nodes[to]?.id}: ${cell.title}`}
                      style={{
                        background: `color-mix(in srgb, var(--user) ${Math.round(MAX_TINT_PERCENT * cell.strength)}%, var(--panel))`,
                      }}
                    >
                      {cell.text}
                    </td>
                  ),
                )}
              </tr>
            ))}
          </tbody>
        </table>
      )}
      {children}
    </div>
  );
}
