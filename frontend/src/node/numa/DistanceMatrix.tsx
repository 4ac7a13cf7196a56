import type { Topology } from "../types";
import { NodeMatrix } from "./NodeMatrix";
import { distanceRows } from "./numaTasks";

const LOCAL = 10;

/** The distances between NUMA nodes as a matrix, darker for longer ones. */
export function DistanceMatrix({ nodes }: { nodes: Topology["numa_nodes"] }) {
  const rows = distanceRows(nodes);
  const longest = Math.max(LOCAL + 1, ...(rows ?? []).flat());
  const cellOf = (distance: number) => ({
    text: String(distance),
    title: `${distance / LOCAL} times the local latency`,
    strength: (distance - LOCAL) / (longest - LOCAL),
  });
  return (
    <NodeMatrix
      heading={`Distance between nodes (${LOCAL} = local)`}
      title="ACPI SLIT: relative latency of memory accesses"
      nodes={nodes}
      rows={rows?.map((row) => row.map(cellOf)) ?? null}
      unknown="The kernel does not report the distances of all nodes."
    />
  );
}
