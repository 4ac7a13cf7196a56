import { Unknown } from "../../components/Unknown";
import styles from "./numa.module.css";
import { type NodeShare, type NumaTask, nodeColour, runsOn, sharesText } from "./numaTasks";

type Props = { shares: NodeShare[]; here: NodeShare[] };

/** The memory of a process as a bar with one colour per NUMA node; the parts on nodes where it runs are underlined. */
export function MemoryBar({ shares, here }: Props) {
  const nodes = new Set(here.map(({ node }) => node));
  const runs = here.length === 0 ? "" : `; runs on ${here.map(({ node }) => `node ${node}`).join(", ")}`;
  const text = `${sharesText(shares)}${runs}`;
  return (
    <span className={styles.shares} role="img" aria-label={text} title={text}>
      {shares.map(({ node, share }) => (
        <i
          key={node}
          data-here={nodes.has(node) || undefined}
          style={{ flexGrow: share, background: nodeColour(node) }}
        />
      ))}
    </span>
  );
}

/** The NUMA nodes where a process runs. */
export function RunsOn({ task }: { task: NumaTask }) {
  const here = runsOn(task);
  if (here.length > 0) return here.map(({ node }) => <NodeLabel key={node} node={node} />);
  if (task.cpu_share > 0) return <Unknown why="Its CPU time by node is unknown." />;
  return <span className="muted">idle</span>;
}

/** A NUMA node's number with its colour. */
export function NodeLabel({ node }: { node: number }) {
  return (
    <span className={styles.node}>
      <i style={{ background: nodeColour(node) }} aria-hidden="true" />
      {node}
    </span>
  );
}
