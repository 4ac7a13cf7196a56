import { useQuery } from "@tanstack/react-query";
import { fleetSizeQuery } from "../api/queries";
import { ConfirmDialog } from "../components/ConfirmDialog";
import { formatCount } from "../lib/format";
import { useRemoveSimulation } from "./simulatedNodes";

/** Asks before all simulated nodes are deleted, and stays until they are. */
export function RemoveSimulated({ onClose }: { onClose: () => void }) {
  const remove = useRemoveSimulation();
  const nodes = useQuery(fleetSizeQuery).data?.simulated ?? 0;
  return (
    <ConfirmDialog
      title="Remove simulated nodes"
      action="Remove"
      pending={remove.isPending}
      error={remove.error}
      onConfirm={() => remove.mutate(undefined, { onSuccess: onClose })}
      onClose={onClose}
    >
      <p>
        This ends the simulation and deletes {nodes > 0 ? formatCount(nodes, "simulated node") : "all simulated nodes"}{" "}
        with their history.
      </p>
    </ConfirmDialog>
  );
}
