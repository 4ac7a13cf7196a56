"""View: everything about a node that a policy, the guard or a preview decides from."""

from functools import cached_property

from msgspec import Struct

from coresteer_core.node.inventory import Inventory
from coresteer_core.node.load import Load
from coresteer_core.node.nic import Learned
from coresteer_core.node.service_classes import ClassFigures
from coresteer_core.node.tasks import NetTask
from coresteer_core.node.topology import Topology


class View(Struct, frozen=True, dict=True):
    """A node as far as decisions look at it. time_s: of the node's monotonic clock.

    classes: by policy id. cgroups: by path without the slash before it, values of the settings of those that processes
    in tasks are in, by the end of their key, such as ``cpu.weight``.
    """

    topology: Topology
    inventory: Inventory
    load: Load = Load()
    tasks: list[NetTask] = []
    time_s: float = 0.0
    learned: Learned = Learned()
    classes: dict[str, list[ClassFigures]] = {}
    cgroups: dict[str, dict[str, str]] = {}

    def task(self, pid: int) -> NetTask | None:
        """The process with that number, if it talks over the network."""
        return self._by_pid.get(pid)

    @cached_property
    def _by_pid(self) -> dict[int, NetTask]:
        return {task.pid: task for task in self.tasks}
