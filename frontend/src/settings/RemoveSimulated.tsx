import { ConfirmDialog } from "../components/ConfirmDialog";
import { formatCount } from "../lib/format";
import { useRemoveSimulation } from "./simulatedNodes";

/** Asks before all simulated nodes are deleted. nodes: how many there are. */
export function RemoveSimulated({ nodes, onClose }: { nodes: number; onClose: () => void }) {
  const remove = useRemoveSimulation();
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
