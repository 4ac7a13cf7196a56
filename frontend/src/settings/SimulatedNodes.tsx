import { Button } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { errorMessage } from "../api/client";
import { fleetSizeQuery } from "../api/queries";
import { useHasRole } from "../auth/me";
import { formatCount } from "../lib/format";
import { EnrolNode } from "./EnrolNode";
import styles from "./settings.module.css";
import { simulatedNodesQuery, useStartSimulation } from "./simulatedNodes";

/**
 * Starts and removes the simulated fleet; where the backend cannot start it, the command that can. onRemove asks
 * (RemoveSimulated), in a parent that stays while nodes come and go.
 */
export function SimulatedNodes({ onRemove }: { onRemove: () => void }) {
  const isAdmin = useHasRole("admin");
  const fleet = useQuery(simulatedNodesQuery).data;
  const present = useQuery(fleetSizeQuery).data?.simulated;
  const start = useStartSimulation();
  if (fleet === undefined || present === undefined) return <p className="muted">Loading.</p>;
  const canStart = fleet.unavailable_because === null && !fleet.running;
  return (
    <div className={styles.simulated}>
      <p>
        {fleet.running
          ? `${formatCount(fleet.offered, "node")} with generated data, until Coresteer stops or you remove them.`
          : present > 0
            ? `${formatCount(present, "simulated node")}, not run by this backend.`
            : `${formatCount(fleet.offered, "node")} with generated data. They take about 5 % of one CPU of this machine.`}
      </p>
      {fleet.failure !== null && (
        <p className="bad" role="alert">
          The simulation ended: {fleet.failure}
        </p>
      )}
      {!isAdmin && <p className="muted">Starting and removing simulated nodes needs the admin role.</p>}
      {isAdmin && (
        <div className={styles.form}>
          {canStart && (
            <Button loading={start.isPending} onClick={() => start.mutate()}>
              {present > 0 ? "Start the simulation again" : `Simulate ${formatCount(fleet.offered, "node")}`}
            </Button>
          )}
          {(present > 0 || fleet.running) && (
            <Button onClick={onRemove}>
              Remove {present > 0 ? formatCount(present, "simulated node") : "simulated nodes"}
            </Button>
          )}
        </div>
      )}
      {start.isError && (
        <p className="bad" role="alert">
          {errorMessage(start.error)}
        </p>
      )}
      {isAdmin && fleet.unavailable_because !== null && (
        <>
          <p className="muted">{fleet.unavailable_because}</p>
          <EnrolNode simulated />
        </>
      )}
    </div>
  );
}
