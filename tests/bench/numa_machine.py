"""An analytic NUMA machine: processes with known demands run on a topology, second by second.

It is a model, not a measurement, and its constants were fixed before any result was seen:

- A process makes progress by ``cpus × its share of the CPUs ÷ slow-down`` CPU seconds per second. Its slow-down is
  ``(1 − m) + m·Σ_j share_j·d(n, j)·latency_j``, d the SLIT distance ÷ 10.
- latency_j is 1 ÷ (1 − 0.8·u²) at utilization u below 1, and grows with the demand above it: a bandwidth that is
  exceeded limits all. This is deliberately not the policy's own formula for contention (policies/numa/factors.py).
- CPUs of a node that has more runnable threads than CPUs are shared equally.
- Pages are moved at PAGE_COST_S each, during which the process makes no progress.
"""

from collections.abc import Mapping, Sequence

from msgspec import Struct, field

from coresteer_core.cpuset import format_cpu_list, parse_cpu_list
from coresteer_core.node.inventory import Inventory
from coresteer_core.node.load import Load
from coresteer_core.node.numa import PAGE_BYTES, PAGE_COST_S, NodeMemory, NumaState, NumaTask
from coresteer_core.node.topology import Topology
from coresteer_core.node.view import View
from coresteer_core.settings.memory_nodes import target_shares

BANDWIDTH_BYTES_PER_S = 40e9
"""Of each NUMA node: four channels of DDR3-1333."""
MEMORY_BYTES = 32 << 30
"""Of each NUMA node."""
DRIFT_BYTES_PER_S = 256 << 20
"""Automatic NUMA balancing: the kernel scans numa_balancing_scan_size_mb (256) in each scan period (1 s at best)."""
HINT_FAULT_SHARE = 0.02
"""Time that a process loses to hinting faults while its pages are scanned."""
_ITERATIONS = 6
"""Traffic and latency depend on each other; this many steps settle within 1 %."""


class Demand(Struct, frozen=True):
    """What a process does. cpus: threads. memory_bound, bytes_per_s: with local memory and no contention."""

    name: str
    cpus: float
    work_cpu_s: float
    memory_bound: float
    bytes_per_s: float
    bytes: int


class Running(Struct):
    """A process. node: where the kernel runs it while it may run on several. pages: bytes by node."""

    pid: int
    demand: Demand
    node: int
    pages: dict[int, int]
    affinity: str = ""
    done_cpu_s: float = 0.0
    stalled_s: float = 0.0
    finished_s: float | None = None
    share: float = 1.0
    slow_down: float = 1.0
    moved_bytes: int = 0

    @property
    def work_left(self) -> float:
        """Return the CPU seconds of work that are left."""
        return self.demand.work_cpu_s - self.done_cpu_s


class NumaMachine(Struct):
    """A machine with its processes. automatic: the kernel's automatic NUMA balancing is on."""

    topology: Topology
    processes: list[Running]
    automatic: bool = False
    time_s: float = 0.0
    nodes: list[int] = field(default_factory=list)
    cpus: dict[int, frozenset[int]] = field(default_factory=dict)
    distance: dict[int, dict[int, float]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        online = self.topology.online()
        ids = [node.id for node in self.topology.numa_nodes]
        for node in self.topology.numa_nodes:
            self.cpus[node.id] = parse_cpu_list(node.cpus) & online
            known = node.distances if len(node.distances) == len(ids) else [10 if i == node.id else 20 for i in ids]
            self.distance[node.id] = {other: each / 10 for other, each in zip(ids, known, strict=True)}
        self.nodes = [node for node in ids if self.cpus[node]]

    @property
    def active(self) -> list[Running]:
        """Return the processes that have not finished."""
        return [process for process in self.processes if process.finished_s is None]

    @property
    def makespan_s(self) -> float:
        """Return when the last process finished; infinite before that."""
        ends = [process.finished_s for process in self.processes]
        return max((float("inf") if end is None else end for end in ends), default=0.0)

    def run(self, seconds: float) -> None:
        """Advance the time in steps of 1 s."""
        until = self.time_s + seconds
        while self.time_s < until and self.active:
            self._balance_load()
            self._slow_downs()
            for process in self.active:
                self._progress(process)
            self.time_s += 1.0

    def run_to_end(self, stop_s: float) -> float:
        """Return the makespan where nothing is moved any more, infinite if it exceeds stop_s.

        Advances from one process's end to the next, as all rates are constant between.
        """
        while self.active:
            self._slow_downs()
            ends = {p.pid: p.stalled_s + p.work_left / self._rate(p) for p in self.active}
            seconds = min(ends.values())
            for process in self.active:
                moving = min(seconds, process.stalled_s)
                process.stalled_s -= moving
                process.done_cpu_s += self._rate(process) * (seconds - moving)
                if ends[process.pid] <= seconds + 1e-9:
                    process.finished_s = self.time_s + seconds
            self.time_s += seconds
            if self.time_s > stop_s:
                return float("inf")
        return self.makespan_s

    def apply(self, key: str, value: str) -> None:
        """Write a setting ``task/PID/affinity`` or ``task/PID/memory-nodes``."""
        _, pid, name = key.split("/")
        process = next(each for each in self.processes if each.pid == int(pid))
        if name == "affinity":
            process.affinity = value
            may = self.may_run_on(process)
            if process.node not in may:
                process.node = min(may, key=lambda node: self._demand(node) / len(self.cpus[node]))
        else:
            shares = target_shares(value)
            total = sum(process.pages.values())
            after = {node: round(share * total) for node, share in shares.items()}
            self.move_pages(process, after)

    def move_pages(self, process: Running, after: Mapping[int, int]) -> None:
        """Let a process have its pages by node; it stalls while they move."""
        moved = sum(max(0, size - process.pages.get(node, 0)) for node, size in after.items())
        process.pages = dict(after)
        process.stalled_s += moved / PAGE_BYTES * PAGE_COST_S
        process.moved_bytes += moved

    def may_run_on(self, process: Running) -> list[int]:
        """Return the NUMA nodes of a process's affinity."""
        if not process.affinity:
            return self.nodes
        cpus = parse_cpu_list(process.affinity)
        return [node for node in self.nodes if self.cpus[node] & cpus]

    def view(self) -> View:
        """Return what an agent would report."""
        active = self.active
        highest = max((cpu.cpu for cpu in self.topology.cpus), default=-1)
        busy: list[float | None] = [None] * (highest + 1)
        for node in self.nodes:
            load = min(1.0, self._demand(node) / len(self.cpus[node]))
            for cpu in self.cpus[node]:
                busy[cpu] = load
        used = dict.fromkeys((node.id for node in self.topology.numa_nodes), 0)
        for process in active:
            for node, size in process.pages.items():
                used[node] += size
        memory = [
            NodeMemory(
                node,
                total_bytes=MEMORY_BYTES,
                free_bytes=max(0, MEMORY_BYTES - size),
                bandwidth_bytes_per_s=BANDWIDTH_BYTES_PER_S,
            )
            for node, size in used.items()
        ]
        numa = NumaState(memory, [self._task(process) for process in active])
        return View(self.topology, Inventory([], []), Load(seconds=5.0, busy=busy), time_s=self.time_s, numa=numa)

    def _task(self, process: Running) -> NumaTask:
        demand, everything = process.demand, format_cpu_list(frozenset().union(*self.cpus.values()))
        cpu_share = demand.cpus * process.share
        local = 1.0 - demand.memory_bound
        return NumaTask(
            pid=process.pid,
            started_ticks=process.pid,
            name=demand.name,
            cgroup=None,
            threads=max(1, round(demand.cpus)),
            affinity=process.affinity or everything,
            allowed=everything,
            cpu=min(self.cpus[process.node]),
            cpu_share=cpu_share,
            rss_bytes=demand.bytes,
            age_s=self.time_s,
            cpu_nodes={process.node: cpu_share},
            bytes_by_node=dict(process.pages),
            bytes_per_s=demand.bytes_per_s * process.share / process.slow_down,
            memory_bound=min(1.0, max(0.0, 1.0 - local / process.slow_down)),
        )

    def _demand(self, node: int) -> float:
        return sum(process.demand.cpus for process in self.active if process.node == node)

    def _balance_load(self) -> None:
        """Move one process a second from a node with too few CPUs to one that has them, as the kernel does."""
        spare = {node: len(self.cpus[node]) - self._demand(node) for node in self.nodes}
        worst = min(spare, key=lambda node: spare[node])
        if spare[worst] >= 0:
            return
        movable = [p for p in self.active if p.node == worst and len(self.may_run_on(p)) > 1]
        for process in sorted(movable, key=lambda each: each.demand.cpus):
            target = max(self.may_run_on(process), key=lambda node: spare[node])
            if spare[target] - process.demand.cpus >= spare[worst]:
                process.node = target
                return

    def _slow_downs(self) -> None:
        """Compute each process's share of its node's CPUs, and its slow-down by memory."""
        active = self.active
        demands = {node: self._demand(node) for node in self.nodes}
        for process in active:
            process.share = min(1.0, len(self.cpus[process.node]) / demands[process.node])
        for _ in range(_ITERATIONS):
            latencies = self._latencies(active)
            for process in active:
                process.slow_down = (process.slow_down + self._slow_down(process, latencies)) / 2

    def _latencies(self, active: Sequence[Running]) -> dict[int, float]:
        traffic = dict.fromkeys(self.distance, 0.0)
        for process in active:
            total = sum(process.pages.values())
            for node, size in process.pages.items():
                per_s = process.demand.bytes_per_s * process.share / process.slow_down
                traffic[node] += per_s * size / total
        found = {}
        for node, per_s in traffic.items():
            utilization = per_s / BANDWIDTH_BYTES_PER_S
            found[node] = max(1.0 / (1.0 - 0.8 * min(utilization, 1.0) ** 2), utilization)
        return found

    def _slow_down(self, process: Running, latencies: Mapping[int, float]) -> float:
        row, total = self.distance[process.node], sum(process.pages.values())
        memory = sum(size / total * row[node] * latencies[node] for node, size in process.pages.items())
        return 1.0 - process.demand.memory_bound + process.demand.memory_bound * memory

    def _progress(self, process: Running) -> None:
        available = 1.0
        if self.automatic:
            available -= self._drift(process)
        stall = min(available, process.stalled_s)
        process.stalled_s -= stall
        available -= stall
        rate, left = self._rate(process), process.work_left
        if rate * available >= left:
            process.finished_s = self.time_s + (1.0 - available) + left / rate
        process.done_cpu_s += rate * available

    @staticmethod
    def _rate(process: Running) -> float:
        return process.demand.cpus * process.share / process.slow_down

    def _drift(self, process: Running) -> float:
        """Move pages toward the process's CPUs as hinting faults do; return the time that it costs."""
        remote = {node: size for node, size in process.pages.items() if node != process.node and size}
        total = sum(remote.values())
        if not total:
            return 0.0
        part = min(1.0, DRIFT_BYTES_PER_S / total)
        after = {node: round(size * (1.0 - part)) for node, size in remote.items()}
        after[process.node] = sum(process.pages.values()) - sum(after.values())
        self.move_pages(process, after)
        return HINT_FAULT_SHARE
