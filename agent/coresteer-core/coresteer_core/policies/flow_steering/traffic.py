"""What one round of ``flow-steering`` reads from a view: processes that receive much, queues, and room on CPUs."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import lru_cache
from math import inf
from typing import TypeVar

from msgspec import Struct

from coresteer_core.cpuset import format_cpu_list, parse_cpu_list
from coresteer_core.node.distance import DISTANCE, REMOTE_DISTANCE, CpuDistances, Locality, Smt, cpu_distances
from coresteer_core.node.inventory import Netdev
from coresteer_core.node.locality import polling_cpu
from coresteer_core.node.tasks import HeavyFlow, NetTask
from coresteer_core.node.view import View
from coresteer_core.policies.base import ROUND_PERIOD_S, Scope
from coresteer_core.policies.flow_steering.cost import SOFTIRQ_S_PER_BYTE, Choice, Costs
from coresteer_core.policies.flow_steering.memory import FlowSteeringMemory, SettledConsumer
from coresteer_core.policies.flow_steering.spec import FlowSteering
from coresteer_core.policies.scope import in_scope, matches
from coresteer_core.policies.skipped import format_rate, name_tasks

T = TypeVar("T")

NEAR = DISTANCE[Locality.L2]
"""Distance up to which packets count as handled next to their process."""
MIN_GAIN = 1.0
"""Least gain in distance for which a flow changes its queue."""
MAX_MOVES = 8
"""Most flows, and most RSS entries, that start to be steered in one round, on each netdev."""
MOST_TRIED = 32
"""Most flows, and most RSS entries, for which a queue is searched in one round; those that find none take turns."""
MOST_TRACKED = 256
"""Most flows that wait for their minimum age: more than become rules and RSS entries in that time."""
_HEAVY_SHARE = 0.1
"""Least traffic of a flow that is steered by itself, relative to min_bytes_per_s of a process."""
_HELD_RATE = 0.5
"""Share of min_bytes_per_s below which a process with steered flows is skipped."""
_NOT_FOR_RFS = frozenset(("", "lo"))
"""Netdevs by which RFS passes nothing on: unknown ones and loopback."""
_MAX_S_PER_BYTE = 5 * SOFTIRQ_S_PER_BYTE


class _Nearest(dict[str, float]):
    """The least distance of a queue of a netdev from a process, by netdev; infinite without a known queue.

    Computed on first use because most processes receive by few netdevs. cpus: that poll queues, a CPU list by netdev.
    """

    __slots__ = ("_cpus", "_reach")

    def __init__(self, reach: Sequence[float], cpus: Mapping[str, str]) -> None:
        self._reach, self._cpus = reach, cpus

    def __missing__(self, netdev: str) -> float:
        least = self[netdev] = _least(self._reach, self._cpus[netdev])
        return least


class Consumer(Struct, gc=False):
    """A process that receives much. reach: the distance of each CPU from its CPUs; nearest: of queues, by netdev.

    near, moved: bytes/s that are polled next to it now, and by how much that changes; near_protocol: whose protocol
    work is done next to it now; sockets: by which it receives. without_rfs: its bytes/s whose protocol work is on a
    known CPU, or on those of a bond, without RFS, those of them next to it, and the sum of bytes/s × distance. fixed:
    it may run on some CPUs only. settled: these have been the same for dwell_s.
    """

    task: NetTask
    reach: Sequence[float]
    nearest: Mapping[str, float]
    fixed: bool
    settled: bool
    rx_bytes_per_s: float
    near: float = 0.0
    moved: float = 0.0
    near_protocol: float = 0.0
    sockets: int = 0
    without_rfs: tuple[float, float, float] = (0.0, 0.0, 0.0)

    @property
    def name(self) -> str:
        """The process for a sentence: ``nginx (812)``."""
        return name_tasks([(self.task.name, self.task.pid)])

    def move(self, bytes_per_s: float, before: int | None, after: int) -> None:
        """Count bytes/s that another CPU polls from now on. before: None where unknown."""
        was_near = before is not None and self.reach[before] <= NEAR
        self.moved += bytes_per_s * ((self.reach[after] <= NEAR) - was_near)

    def shares(self) -> str:
        """Return which share of its bytes is polled next to it, now and expected, for a sentence."""
        now, then = (100 * each / self.rx_bytes_per_s for each in (self.near, self.near + self.moved))
        return (
            f"{self.name}: {max(0.0, now):.0f} % → {min(100.0, max(0.0, then)):.0f} % of its bytes polled within its L2"
        )


class _Place(Struct, frozen=True, gc=False):
    """What processes with the same affinity share, as in Consumer."""

    reach: Sequence[float]
    nearest: Mapping[str, float]
    fixed: bool


class CpuRoom:
    """Load of the usable CPUs in one round, in which each steered flow takes room."""

    def __init__(self, view: View, usable: frozenset[int], max_load: float, bytes_at: Mapping[int, float]) -> None:
        self._max_load, self._usable = max_load, usable
        self._busy = view.load.busy
        self._softirq = view.load.softirq
        self._bytes_at = bytes_at
        self._added: dict[int, float] = {}

    def need(self, cpu: int | None, bytes_per_s: float) -> float:
        """Return the share of a CPU that polling this traffic takes, by its part of the softirq time of its CPU."""
        per_byte = SOFTIRQ_S_PER_BYTE
        softirq = self._softirq[cpu] if cpu is not None and cpu < len(self._softirq) else None
        total = self._bytes_at.get(cpu, 0.0) if cpu is not None else 0.0
        if softirq is not None and total > 0:
            per_byte = min(softirq / total, _MAX_S_PER_BYTE)
        return bytes_per_s * per_byte

    def load(self, cpu: int) -> float | None:
        """Return the load of a CPU with what is steered to it in this round; None where unknown."""
        busy = self._busy[cpu] if cpu < len(self._busy) else None
        return None if busy is None else busy + self._added.get(cpu, 0.0)

    def fits(self, cpu: int, need: float) -> bool:
        """Return whether a CPU may handle packets, and its load stays within max_load with this share more."""
        load = self.load(cpu)
        return cpu in self._usable and load is not None and load + need <= self._max_load

    def take(self, before: int | None, after: int, need: float) -> None:
        """Move this share of a CPU from one to another."""
        for cpu, part in ((before, -need), (after, need)):
            if cpu is not None:
                self._added[cpu] = self._added.get(cpu, 0.0) + part


class Traffic:
    """The processes in scope that receive much, and the queues by which they receive.

    queues: by netdev in scope, the CPU that polls each of its receive queues, by their numbers; those whose CPU is not
    known are missing. bytes_per_s: what the processes receive; receiving: by which netdevs, for a bond its NICs, or
    none of them if one is not in scope. unplaced: CPU and bytes/s of processes that receive much over sockets whose
    queue is unknown, as of UDP. isolated: processes that are bound to isolated CPUs and receive much by netdevs in
    scope, themselves in scope or not, as RFS concerns all that arrives at a queue.
    """

    def __init__(self, view: View, spec: FlowSteering, scope: Scope, memory: FlowSteeringMemory) -> None:
        self.view, self.spec, self.now = view, spec, view.time_s
        self.usable, self._unbound = view.usable_cpus(), view.unbound_cpus()
        self.distances = cpu_distances(view.topology, Smt.FIRST)
        self.netdevs = {
            netdev.name: netdev
            for netdev in view.inventory.netdevs
            if matches(netdev.name, scope.netdevs) and matches(netdev.driver or "", scope.drivers)
        }
        self.queues = {name: self._queue_cpus(netdev) for name, netdev in self.netdevs.items()}
        self.cpus_by_queue: dict[str, dict[str | None, int]] = {
            name: {f"rx-{number}": cpu for number, cpu in cpus.items()} for name, cpus in self.queues.items()
        }
        self._cpus = {
            name: format_cpu_list(self.usable.intersection(cpus.values())) for name, cpus in self.queues.items()
        }
        self._places: dict[tuple[str, int, int], _Place] = {}
        below = {name: view.inventory.nics_below(name) for name, netdev in self.netdevs.items() if netdev.lower}
        self._nics = {
            name: nics if nics <= self.netdevs.keys() else frozenset[str]() for name, nics in below.items() if nics
        }
        """By bond, bridge or VLAN in scope, the NICs that receive its packets; empty if one is not in scope."""
        self._spread = {
            name: tuple(cpu for nic in nics for cpu in self.queues[nic].values()) for name, nics in self._nics.items()
        }
        """By such a netdev, the CPUs that poll the queues of its NICs. Its packets count as spread evenly over them."""
        bytes_at: dict[int, float] = defaultdict(float)
        held = {(rule.pid, rule.started_ticks) for rule in memory.rules.values()}
        self.consumers: list[Consumer] = []
        self.settled: dict[int, SettledConsumer] = {}
        self.isolated: list[NetTask] = []
        isolated_cpus = view.topology.isolated_cpus
        unplaced: list[tuple[int, float]] = []
        least, least_held = (max(1.0, spec.min_bytes_per_s * share) for share in (1.0, _HELD_RATE))
        for task in view.tasks:
            if not task.rx_placements:
                continue
            consumer, unknown = self._received(task, bytes_at)
            per_s = consumer.rx_bytes_per_s
            is_bound = isolated_cpus and consumer.fixed and parse_cpu_list(task.affinity) & isolated_cpus
            if is_bound and self._for_rfs(task) >= least:
                self.isolated.append(task)
            if unknown >= least and in_scope(scope, task.name, task.cgroup):
                unplaced.append((task.cpu, unknown))
            enough = per_s >= least or (per_s >= least_held and (task.pid, task.started_ticks) in held)
            if enough and in_scope(scope, task.name, task.cgroup):
                consumer.settled = self._is_settled(task, memory.consumers.get(task.pid))
                self.consumers.append(consumer)
        used = {
            each.netdev for consumer in self.consumers for each in consumer.task.rx_placements if each.rx_bytes_per_s
        }
        self.receiving = {nic for name in used for nic in self._nics.get(name, (name,))}
        self.unplaced = self._over_nics(unplaced) if unplaced else []
        self.bytes_per_s = sum(consumer.rx_bytes_per_s for consumer in self.consumers)
        self.room = CpuRoom(view, self.usable, spec.max_load, bytes_at)
        self.costs = _costs(view)
        self.least_flow = spec.min_bytes_per_s * _HEAVY_SHARE

    def _over_nics(self, unplaced: list[tuple[int, float]]) -> list[tuple[int, float]]:
        """Return what arrives by NICs of this traffic, at most what these receive in addition to what is placed.

        Empty where a NIC is not in scope. Adds the NICs to those that receive.
        """
        nics = {netdev.name for netdev in self.view.inventory.active_nics()}
        received = sum(load.rx_bytes_per_s for load in self.view.load.netdevs if load.name in nics)
        placed = sum(
            each.rx_bytes_per_s
            for task in self.view.tasks
            for each in task.rx_placements
            if each.netdev in nics or each.netdev in self._nics
        )
        share = min(1.0, (received - placed) / sum(per_s for _, per_s in unplaced))
        if share <= 0 or not nics <= self.netdevs.keys():
            return []
        self.receiving |= nics
        return [(cpu, share * per_s) for cpu, per_s in unplaced]

    def polled_on(self, flow: HeavyFlow) -> int | None:
        """Return the CPU that polls a flow's queue; None where unknown, or where the machine has no such CPU."""
        cpu = self.cpus_by_queue[flow.netdev].get(flow.queue, flow.cpu)
        return cpu if cpu is not None and cpu < self.distances.cpu_count else None

    def turns(self, waiting: Sequence[T]) -> Sequence[T]:
        """Return those of what waits, the most urgent first, for which a queue is searched in this round."""
        if len(waiting) <= MOST_TRIED:
            return waiting
        first, rest = waiting[:MAX_MOVES], waiting[MAX_MOVES:]
        step = MOST_TRIED - MAX_MOVES
        start = int(self.now / ROUND_PERIOD_S) * step % len(rest)
        return [*first, *[*rest, *rest][start : start + step]]

    def describe(self, consumer: Consumer) -> str:
        """Return the costs of the choices for a process, for a sentence."""
        by_cpu: dict[int, float] = {}
        irqs: set[int | None] = set()
        for each in consumer.task.rx_placements:
            if each.rx_bytes_per_s and each.cpu is not None and each.cpu < len(consumer.reach):
                by_cpu[each.cpu] = by_cpu.get(each.cpu, 0.0) + each.rx_bytes_per_s
                irqs.add(each.irq)
        rows, cost = self.distances.rows, self.costs.distance_ns
        own = self.view.inventory.irq(next(iter(irqs)) or -1) if len(irqs) == 1 else None
        movable = {cpu for cpu in by_cpu if cpu in self.usable and cpu in parse_cpu_list(consumer.task.allowed)}
        stay = sum(cost(per_s, consumer.reach[cpu]) for cpu, per_s in by_cpu.items())
        process = min(
            (sum(cost(per_s, rows[to][cpu]) for cpu, per_s in by_cpu.items()) for to in movable), default=None
        )
        unsteered = sum(by_cpu.values()) - consumer.near - consumer.moved
        flows = stay * max(0.0, unsteered) / (sum(by_cpu.values()) - consumer.near or 1.0)
        return str(Choice(stay, process, 0.0 if own is not None and own.movable else None, flows))

    def _received(self, task: NetTask, bytes_at: dict[int, float]) -> tuple[Consumer, float]:
        """Return a process as if it received much, and its bytes/s over sockets whose queue is unknown.

        One pass over its RX placements. Adds what they receive to bytes_at, by CPU.
        """
        place = self._place(task)
        reach, netdevs = place.reach, self.netdevs
        cpu_count = len(reach)
        sockets = 0
        received = unknown = near = near_protocol = total = near_without = by_distance = 0.0
        for each in task.rx_placements:
            per_s, cpu, name = each.rx_bytes_per_s, each.cpu, each.netdev
            if name in netdevs:
                received += per_s
            elif not name:
                unknown += per_s
            sockets += each.sockets
            distance = inf
            if cpu is not None:
                bytes_at[cpu] += per_s
                if cpu < cpu_count:
                    distance = reach[cpu]
                    if name not in _NOT_FOR_RFS:
                        total += per_s
                        by_distance += per_s * distance
                        if distance <= NEAR:
                            near_without += per_s
            elif cpus := self._spread.get(name):
                mean, near_share = _spread_over(reach, cpus)
                total += per_s
                by_distance += per_s * mean
                near_without += per_s * near_share
            if distance <= NEAR or each.rfs:
                near_protocol += per_s
            if each.how == "rps":
                polled_on = polling_cpu(each, self.view.inventory)
                distance = reach[polled_on] if polled_on is not None and polled_on < cpu_count else inf
            if distance <= NEAR:
                near += per_s
        without_rfs = total, near_without, by_distance
        figures = received, near, 0.0, near_protocol, sockets, without_rfs
        return Consumer(task, reach, place.nearest, place.fixed, False, *figures), unknown

    def _for_rfs(self, task: NetTask) -> float:
        """Return what a process receives by netdevs in scope other than loopback, and by unknown ones, in bytes/s."""
        names = (self.netdevs.keys() | {""}) - {"lo"}
        return sum(each.rx_bytes_per_s for each in task.rx_placements if each.netdev in names)

    def _place(self, task: NetTask) -> _Place:
        """Return the place of a process, which those with the same affinity share."""
        key = task.affinity, task.threads, task.cpu
        place = self._places.get(key)
        if place is None:
            online = self.view.topology.online()
            affinity = parse_cpu_list(task.affinity) & online
            fixed = bool(affinity) and not affinity >= self._unbound
            if not fixed or len(affinity) == 1:
                at = min(affinity) if fixed else task.cpu
                reach: Sequence[float] = self.distances.rows[at] if at in online else _far(self.distances)
            else:
                reach = _reach(self.distances, affinity, nearest=len(affinity) <= task.threads)
            place = self._places[key] = _Place(reach, _Nearest(reach, self._cpus), fixed)
        return place

    def _is_settled(self, task: NetTask, was: SettledConsumer | None) -> bool:
        """Return whether a process that receives much has had its affinity for dwell_s; store since when it has."""
        if was is None or was.affinity != task.affinity or was.started_ticks != task.started_ticks:
            was = SettledConsumer(task.started_ticks, task.affinity, self.now)
        self.settled[task.pid] = was
        return self.now - was.since_s >= self.spec.dwell_s

    def _queue_cpus(self, netdev: Netdev) -> dict[int, int]:
        found: dict[int, int] = {}
        if netdev.params.get("threaded") not in (None, "0"):
            return found  # kernel threads poll its queues, on any CPU
        for queue in netdev.queues:
            irq = self.view.inventory.irq(queue.irq) if queue.irq is not None else None
            number = queue_number(queue.name)
            if irq is None or number is None:
                continue
            cpus = parse_cpu_list(irq.effective or irq.requested or "")
            if len(cpus) == 1:
                cpu = min(cpus)
                if cpu < self.distances.cpu_count:
                    found[number] = cpu
        return found


@lru_cache(maxsize=4096)  # a node has the same few thousand queues in every round
def queue_number(name: str | None) -> int | None:
    """Return the number of a receive queue, 3 for ``rx-3``; None for other queues, and where it is unknown."""
    return int(name[3:]) if name is not None and name.startswith("rx-") and name[3:].isdecimal() else None


def flow_key(flow: HeavyFlow) -> str:
    """Return what identifies a flow on its node."""
    return f"{flow.protocol} {flow.peer} {flow.peer_port} {flow.local} {flow.local_port} {flow.netdev}"


def name_flow(flow: HeavyFlow) -> str:
    """Return a flow for a sentence: its peer and rate."""
    peer = f"[{flow.peer}]" if ":" in flow.peer else flow.peer
    return f"the {flow.protocol.upper()} flow from {peer}:{flow.peer_port} ({format_rate(flow.rx_bytes_per_s)})"


@lru_cache(maxsize=256)  # the same affinities in every round
def _reach(distances: CpuDistances, cpus: frozenset[int], *, nearest: bool) -> Sequence[float]:
    """Return each CPU's distance from the nearest of these CPUs, or the mean of the distances from all of them."""
    columns = zip(*(distances.rows[cpu] for cpu in cpus if cpu < distances.cpu_count), strict=True)
    return bytes(map(min, columns)) if nearest else tuple(sum(column) / len(column) for column in columns)


@lru_cache(maxsize=8192)  # the same processes and queues in every round
def _least(reach: Sequence[float], cpus: str) -> float:
    """Return the least distance of these CPUs, a CPU list, from a process; infinite if there are none."""
    return min([reach[cpu] for cpu in parse_cpu_list(cpus)], default=inf)


@lru_cache(maxsize=8192)  # as above
def _spread_over(reach: Sequence[float], cpus: tuple[int, ...]) -> tuple[float, float]:
    """Return these CPUs' mean distance from a process, and the share of them that is next to it."""
    return sum(reach[cpu] for cpu in cpus) / len(cpus), sum(reach[cpu] <= NEAR for cpu in cpus) / len(cpus)


@lru_cache(maxsize=8)
def _far(distances: CpuDistances) -> bytes:
    """Return the distances from a CPU that is offline: none is near."""
    return bytes([REMOTE_DISTANCE]) * distances.cpu_count


def _costs(view: View) -> Costs:
    physical = view.inventory.physical_netdevs()
    loads = [load for load in view.load.netdevs if load.name in physical]
    packets = sum(load.rx_packets_per_s for load in loads)
    return Costs(sum(load.rx_bytes_per_s for load in loads) / packets) if packets > 0 else Costs()
