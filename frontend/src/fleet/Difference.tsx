import type { FleetMetric } from "../lib/metrics";
import { difference } from "./compare";
import styles from "./fleet.module.css";
import { useBefore, useFigures } from "./fleetStore";

/** How a node's figure differs from the one it is compared with; nothing without a comparison. */
export function Difference({ nodeId, column }: { nodeId: number; column: FleetMetric }) {
  const figures = useFigures();
  const before = useBefore();
  if (before === null) return null;
  if (before === "loading") return <small>&nbsp;</small>;
  const found = difference(column, figures.get(nodeId, column), before.get(nodeId, column));
  if (found === null)
    return (
      <small className={`hatched ${styles.gap}`}>
        <span className="visually-hidden">unknown before</span>
      </small>
    );
  return <small className={found.isWorse ? "bad" : "muted"}>{found.text}</small>;
}
