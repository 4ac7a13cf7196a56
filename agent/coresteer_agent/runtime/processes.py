"""Processes of the node as Views contain them: their flows, memory by NUMA node and cgroups."""

import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Protocol, TypeVar

from coresteer_agent.collect.cpusets import read_cpusets
from coresteer_agent.collect.tasks import TaskScanner
from coresteer_agent.observe.flows import FlowReader
from coresteer_agent.observe.numa_tasks import NumaReader
from coresteer_core.node.cpusets import Cpuset
from coresteer_core.node.inventory import Inventory
from coresteer_core.node.locality import TrafficDistance, bytes_by_distance
from coresteer_core.node.numa import NumaState
from coresteer_core.node.rates import Rates
from coresteer_core.node.tasks import NetTask
from coresteer_core.node.topology import Topology
from coresteer_core.protocol import FlowsMessage, TasksMessage

T = TypeVar("T")


class Attempt(Protocol):
    """Runs a step whose failure must not stop the agent; returns None after any exception."""

    def __call__(self, what: str, run: Callable[[], T], /) -> T | None:
        """Return run()'s result. what: names the step in the log."""


class Processes:
    """Reads the processes of a machine. Not thread-safe.

    Its attributes are of the last read(), fields of a View except distance: received bytes, None where unknown.
    """

    def __init__(
        self,
        root: Path,
        attempt: Attempt,
        annotate: Callable[[list[NetTask]], list[NetTask]] = lambda tasks: tasks,
    ) -> None:
        """annotate: adds to the tasks what a policy did with them since the last read()."""
        self._root = root
        self._annotate = annotate
        self._attempt = attempt
        self._scanner = TaskScanner(root)
        self.flows = FlowReader(root)
        self._numa_reader = NumaReader(root)
        self.tasks: list[NetTask] = []
        self.cgroups: dict[str, dict[str, str]] = {}
        self.numa: NumaState | None = None
        self.cpusets: dict[str, Cpuset] = {}
        self.distance: TrafficDistance | None = None
        self._reported = False

    def scan(self) -> TasksMessage:
        """Return a message with the processes that used most CPU time since the previous scan."""
        return TasksMessage(time.time_ns() // 1_000_000, self._scanner.scan())

    def read(self, topology: Topology, inventory: Inventory, recent: Iterable[Rates]) -> FlowsMessage | None:
        """Read everything but scan(); return the message with it, None if there is nothing and was nothing before.

        recent: rates since the last read.
        """
        # what cannot be read is unknown: policies must not use old values
        self.tasks, self.cgroups, self.numa, self.cpusets, self.distance = [], {}, None, {}, None
        self.tasks = self._annotate(self.flows.read(inventory, recent))
        if self.tasks:
            self.distance = bytes_by_distance(self.tasks, topology, inventory, sent=False)
        self.cgroups = self.flows.cgroups(self.tasks)
        self.numa = self._attempt("NUMA state", lambda: self._read_numa(topology))
        self.cpusets = self._attempt("cpusets", self._read_cpusets) or {}
        if not (self.tasks or self._reported or self.numa is not None):
            return None
        self._reported = bool(self.tasks)
        now_ms = time.time_ns() // 1_000_000
        return FlowsMessage(now_ms, self.tasks, self.flows.exact, self.cgroups, self.numa, self.cpusets)

    def report_again(self) -> None:
        """Let the next read() return a message: what the backend last heard of may have ended."""
        self._reported = True

    def read_memory(self) -> None:
        """Read the memory of one more process, if the budget permits; call it once a second."""
        self._numa_reader.tick()

    def forget_memory(self, pid: int, *, moved: bool) -> None:
        """Read the memory of a process again soon. moved: its pages were, so it is unknown until then."""
        self._numa_reader.forget_memory(pid, moved=moved)

    def close(self) -> None:
        """Close the files, sockets and performance counters."""
        self._scanner.close()
        self.flows.close()
        self._numa_reader.close()

    def _read_numa(self, topology: Topology) -> NumaState | None:
        if len(topology.numa_nodes) < 2:
            return None
        return self._numa_reader.read(self._scanner.numa_pids, topology)

    def _read_cpusets(self) -> dict[str, Cpuset]:
        tasks = [*(self.numa.tasks if self.numa is not None else ()), *self.tasks]
        return read_cpusets(self._root, (task.cgroup.lstrip("/") for task in tasks if task.cgroup is not None))
