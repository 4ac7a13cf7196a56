import type { Schemas } from "../api/client";

type NodeSummary = Schemas["NodeSummary"];

function groupOf(node: NodeSummary, by: string): string {
  if (by === "kernel") return node.kernel ?? "kernel unknown";
  if (by === "driver") return node.drivers.join(", ") || "without driver";
  const label = by.replace(/^label:/, "");
  return node.labels[label] ?? `without ${label}`;
}

const byName = new Intl.Collator("en", { numeric: true });

/** Nodes in groups, both sorted by name; a single unnamed group when `by` is undefined. */
export function groupNodes(nodes: NodeSummary[], by: string | undefined): { name: string; nodes: NodeSummary[] }[] {
  const sorted = nodes.toSorted((a, b) => byName.compare(a.name, b.name));
  if (by === undefined) return sorted.length ? [{ name: "", nodes: sorted }] : [];
  const groups = new Map<string, NodeSummary[]>();
  for (const node of sorted) {
    const name = groupOf(node, by);
    const members = groups.get(name);
    if (members === undefined) groups.set(name, [node]);
    else members.push(node);
  }
  return [...groups]
    .map(([name, members]) => ({ name, nodes: members }))
    .toSorted((a, b) => byName.compare(a.name, b.name));
}
