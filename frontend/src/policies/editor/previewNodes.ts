import type { Schemas } from "../../api/client";

const AT_FIRST = 3;
const MOST = 50;

/** The nodes of a preview: those of the URL, or a few live ones that the selector matches. */
export function previewNodes(
  nodes: Pick<Schemas["NodeSummary"], "id" | "health" | "cpus">[] | undefined,
  chosen: string | undefined,
  matching: readonly number[] | undefined,
): number[] {
  if (chosen !== undefined) return [...new Set(chosen.split(",").map(Number))].slice(0, MOST);
  const ready = (nodes ?? []).filter(
    (node) => node.health === "live" && node.cpus !== null && matching?.includes(node.id),
  );
  return ready.slice(0, AT_FIRST).map((node) => node.id);
}
