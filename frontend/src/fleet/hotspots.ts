import type { Schemas } from "../api/client";
import { type Figure, percent, perSecond, text } from "../lib/format";
import type { FleetFigures } from "./fleetStore";

const MOST = 15;
const SOFTIRQ_PERCENT = 60;
const BUSY_PERCENT = 95;
const SQUEEZED_PER_S = 10;

const written = (figure: Figure) => text(figure).replace(" ", "\u00a0");

/** Why a node deserves a look, each reason a measured figure; empty when nothing stands out. */
export function reasons(nodeId: number, figures: FleetFigures): string[] {
  const get = (column: Parameters<FleetFigures["get"]>[1]) => figures.get(nodeId, column);
  const found: string[] = [];
  if (get("dropped_per_s") > 0) found.push(`dropped ${written(perSecond(get("dropped_per_s")))}`);
  if (get("squeezed_per_s") >= SQUEEZED_PER_S) found.push(`time squeezed ${written(perSecond(get("squeezed_per_s")))}`);
  if (get("softirq_percent") >= SOFTIRQ_PERCENT) found.push(`softirq ${written(percent(get("softirq_percent")))}`);
  else if (get("busiest_percent") >= BUSY_PERCENT)
    found.push(`busy, softirq only ${written(percent(get("softirq_percent")))}`);
  return found;
}

/** The CPU to look at: the one with most softirq where softirq is the trouble, else the busiest. */
export function hottest(nodeId: number, figures: FleetFigures): { cpu: number; percent: number } {
  const softirq = figures.get(nodeId, "softirq_percent");
  return softirq >= SOFTIRQ_PERCENT
    ? { cpu: figures.get(nodeId, "softirq_cpu"), percent: softirq }
    : { cpu: figures.get(nodeId, "busiest_cpu"), percent: figures.get(nodeId, "busiest_percent") };
}

/** Nodes with a reason to look at them: those that drop first, then by softirq on their hottest CPU. */
export function hotSpots(nodes: Schemas["NodeSummary"][], figures: FleetFigures): Schemas["NodeSummary"][] {
  const known = (value: number) => (Number.isNaN(value) ? 0 : value);
  const rank = (node: Schemas["NodeSummary"]) =>
    known(figures.get(node.id, "softirq_percent")) + (figures.get(node.id, "dropped_per_s") > 0 ? 1000 : 0);
  return nodes
    .filter((node) => reasons(node.id, figures).length > 0)
    .toSorted((a, b) => rank(b) - rank(a))
    .slice(0, MOST);
}
