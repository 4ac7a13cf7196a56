"""View: everything about a node from which a policy, the guard or a preview decides."""

from functools import cached_property

from msgspec import Struct

from coresteer_core.node.inventory import Inventory
from coresteer_core.node.load import Load
from coresteer_core.node.nic import NicKnowledge
from coresteer_core.node.service_classes import ClassFigures
from coresteer_core.node.tasks import NetTask
from coresteer_core.node.topology import Topology


class View(Struct, frozen=True, dict=True):
    """Everything known about a node at one moment. time_s: the node's monotonic clock.

    classes: by policy id. cgroups: of the processes in tasks, by path without the leading slash; values of settings by
    the end of their key, such as ``cpu.weight``.
    """

    topology: Topology
    inventory: Inventory
    load: Load = Load()
    tasks: list[NetTask] = []
    time_s: float = 0.0
    learned: NicKnowledge = NicKnowledge()
    classes: dict[str, list[ClassFigures]] = {}
    cgroups: dict[str, dict[str, str]] = {}

    def task(self, pid: int) -> NetTask | None:
        """Return the process with this PID; None where it does not communicate over the network."""
        return self._by_pid.get(pid)

    @cached_property
    def _by_pid(self) -> dict[int, NetTask]:
        return {task.pid: task for task in self.tasks}
