"""View: everything about a node from which a policy, the guard or a preview decides."""

from collections.abc import Collection
from functools import cached_property

from msgspec import Struct

from coresteer_core.node.cpusets import Cpuset
from coresteer_core.node.inventory import Inventory
from coresteer_core.node.load import Load
from coresteer_core.node.nic import NicKnowledge
from coresteer_core.node.numa import NumaState, NumaTask
from coresteer_core.node.service_classes import ClassFigures
from coresteer_core.node.tasks import NetTask
from coresteer_core.node.topology import Topology


class View(Struct, frozen=True, dict=True):
    """Everything known about a node at one moment. time_s: the node's monotonic clock.

    classes: by policy id. cgroups: of the processes in tasks, by path without the leading slash; values of settings by
    the end of their key, such as ``cpu.weight``. numa: None where the node has not reported it. cpusets: of the
    processes' cgroups and those above them, by path as in cgroups; empty without a cpuset controller of version 2.
    held: keys of the settings that have the value which the policy that decides from this view gave them.
    """

    topology: Topology
    inventory: Inventory
    load: Load = Load()
    tasks: list[NetTask] = []
    time_s: float = 0.0
    learned: NicKnowledge = NicKnowledge()
    classes: dict[str, list[ClassFigures]] = {}
    cgroups: dict[str, dict[str, str]] = {}
    numa: NumaState | None = None
    cpusets: dict[str, Cpuset] = {}
    held: frozenset[str] = frozenset()

    def unbound_cpus(self) -> frozenset[int]:
        """Return the CPUs on which the kernel runs processes that nobody has bound: no reserved or isolated ones."""
        return self.topology.online() - self.inventory.reserved_cpus - self.topology.isolated_cpus

    def usable_cpus(self, *, allow_isolated: bool = False) -> frozenset[int]:
        """Return the online CPUs on which policies may place work.

        None that are reserved, or off limits by the node's administrator; isolated ones only if allowed.
        """
        usable = self.topology.online() - self.inventory.reserved_cpus - self.inventory.limits.settings.closed_cpus
        return usable if allow_isolated else usable - self.topology.isolated_cpus

    def task(self, pid: int) -> NetTask | NumaTask | None:
        """Return the process with a PID; None where it neither communicates over the network nor is in numa."""
        return self._by_pid.get(pid)

    def all_tasks(self) -> Collection[NetTask | NumaTask]:
        """Return every process that communicates over the network or is in numa, once each."""
        return self._by_pid.values()

    def numa_task(self, pid: int) -> NumaTask | None:
        """Return what is known of a process's memory, None where it is not in numa."""
        return self._numa_by_pid.get(pid)

    @cached_property
    def _by_pid(self) -> dict[int, NetTask | NumaTask]:
        return {**self._numa_by_pid, **{task.pid: task for task in self.tasks}}

    @cached_property
    def _numa_by_pid(self) -> dict[int, NumaTask]:
        return {} if self.numa is None else {task.pid: task for task in self.numa.tasks}
