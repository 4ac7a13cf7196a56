import { HOT_SPOT } from "../api/constants";
import { formatFigure, percent, perSecond } from "../lib/format";
import type { FleetFigures } from "./fleetStore";

const WRONG_NODE_PERCENT = 25;

/** The reasons why a node is a hot spot, each with its figure; empty if it is none. */
export function hotSpotReasons(nodeId: number, figures: FleetFigures): string[] {
  const get = (column: Parameters<FleetFigures["get"]>[1]) => figures.get(nodeId, column);
  const found: string[] = [];
  if (get("softnet_dropped_per_s") > 0) found.push(`dropped ${formatFigure(perSecond(get("softnet_dropped_per_s")))}`);
  if (get("squeezed_per_s") >= HOT_SPOT.SQUEEZED_PER_S)
    found.push(`time squeeze ${formatFigure(perSecond(get("squeezed_per_s")))}`);
  if (get("softirq_cpu_percent") >= HOT_SPOT.SOFTIRQ_PERCENT)
    found.push(`softirq ${formatFigure(percent(get("softirq_cpu_percent")))}`);
  else if (get("busiest_cpu_percent") >= HOT_SPOT.BUSY_PERCENT)
    found.push(`busy, softirq ${formatFigure(percent(get("softirq_cpu_percent")))}`);
  // no reason by itself: a node may be far from overloaded
  if (found.length > 0 && get("wrong_node_percent") >= WRONG_NODE_PERCENT)
    found.push(`wrong-node bytes ${formatFigure(percent(get("wrong_node_percent")))}`);
  return found;
}

/** The hottest CPU: the one with most softirq where that is high, else the busiest. */
export function hottestCpu(nodeId: number, figures: FleetFigures): { cpu: number; percent: number } {
  const softirq = figures.get(nodeId, "softirq_cpu_percent");
  return softirq >= HOT_SPOT.SOFTIRQ_PERCENT
    ? { cpu: figures.get(nodeId, "softirq_cpu"), percent: softirq }
    : { cpu: figures.get(nodeId, "busiest_cpu"), percent: figures.get(nodeId, "busiest_cpu_percent") };
}
