"""How far from its consumer a node's network traffic is handled: bytes per second by class of distance.

Two CPUs handle a packet before its process reads it. One polls the queue (softirq on the CPU of the queue's interrupt).
One does the protocol work (SO_INCOMING_CPU): the same, or with RPS or RFS the CPU to which they pass the packet on.
"""

from collections.abc import Iterable

from msgspec import Struct

from coresteer_core.cpuset import parse_cpu_list
from coresteer_core.node.distance import DISTANCE, Locality, Smt, cpu_distances
from coresteer_core.node.inventory import Inventory
from coresteer_core.node.tasks import NetTask, RxPlacement
from coresteer_core.node.topology import Topology

_FIELD = {
    DISTANCE[Locality.CPU]: "core",
    DISTANCE[Locality.SMT]: "core",
    DISTANCE[Locality.L2]: "l2",
    DISTANCE[Locality.L3]: "l3",
    DISTANCE[Locality.NUMA]: "node",
}


class ByDistance(Struct):
    """Bytes per second by the nearest unit that the CPU that handles them shares with a CPU of their consumer.

    core: also the same CPU. node: the same NUMA node, but no cache. remote: another NUMA node. unknown: the CPU that
    handles them is not known.
    """

    core: float = 0.0
    l2: float = 0.0
    l3: float = 0.0
    node: float = 0.0
    remote: float = 0.0
    unknown: float = 0.0

    @property
    def total(self) -> float:
        """All bytes per second."""
        return self.known + self.unknown

    @property
    def known(self) -> float:
        """The bytes per second that are handled on known CPUs."""
        return self.core + self.l2 + self.l3 + self.node + self.remote

    @property
    def shared_l2(self) -> float | None:
        """The share of the known bytes handled on a CPU that shares an L2 cache or a core with the consumer's CPU.

        None where no byte's CPU is known.
        """
        return (self.core + self.l2) / self.known if self.known else None


class TrafficDistance(Struct):
    """Bytes per second by distance from their consumer of the CPU that polls them, and of that of the protocol work."""

    polling: ByDistance
    protocol: ByDistance


def consumer_cpus(task: NetTask, online: frozenset[int]) -> frozenset[int]:
    """Return the CPUs on which a process reads its packets.

    They are its affinity, if that is narrower than the machine and has a thread for each CPU; else the one CPU on which
    its busiest thread ran last, as its other CPUs are only possible ones.
    """
    affinity = parse_cpu_list(task.affinity) & online
    return affinity if affinity < online and 0 < len(affinity) <= task.threads else frozenset({task.cpu})


def polling_cpu(rx_placement: RxPlacement, inventory: Inventory | None) -> int | None:
    """Return the CPU that polls packets, None where unknown: with RPS it is known only by the queue's interrupt."""
    if rx_placement.how != "rps":
        return rx_placement.cpu
    irq = inventory.irq(rx_placement.irq) if inventory is not None and rx_placement.irq is not None else None
    cpus = parse_cpu_list(irq.effective) if irq is not None and irq.effective else frozenset[int]()
    return min(cpus) if len(cpus) == 1 else None


def bytes_by_distance(
    tasks: Iterable[NetTask], topology: Topology, inventory: Inventory | None = None, *, sent: bool = True
) -> TrafficDistance:
    """Return the received and, unless sent is False, sent bytes/s of these processes by their distance from these.

    Sent bytes count because their acknowledgements are received. inventory: tells which CPU polls a queue with RPS;
    None leaves that unknown. A process with threads on several CPUs counts from the nearest of these.
    """
    rows = cpu_distances(topology, Smt.FIRST).rows
    online = topology.online()
    found = TrafficDistance(ByDistance(), ByDistance())
    for task in tasks:
        consumers = consumer_cpus(task, online) & online
        for each in task.rx_placements:
            bytes_per_s = each.bytes_per_s if sent else each.rx_bytes_per_s
            protocol = task.cpu if each.rfs else each.cpu
            for at, sums in ((polling_cpu(each, inventory), found.polling), (protocol, found.protocol)):
                unknown = at is None or at not in online or not consumers
                field = "unknown" if at is None or unknown else _nearest_unit(rows[at], consumers)
                setattr(sums, field, getattr(sums, field) + bytes_per_s)
    return found


def _nearest_unit(row: bytes, consumers: frozenset[int]) -> str:
    return _FIELD.get(min([row[cpu] for cpu in consumers]), "remote")


def distance_counters(found: TrafficDistance, duration_s: float) -> dict[str, int]:
    """Return the bytes in an interval by distance, as entries of Rates.counters (coresteer_core.metrics).

    Durations of at least 1 s are rounded to 0.1 s, so that the counters repeat and compress well.
    """
    duration_s = round(duration_s, 1) if duration_s >= 1 else duration_s
    return {
        f"{kind}_bytes_{field}": round(getattr(sums, field) * duration_s)
        for kind, sums in (("rx", found.protocol), ("polled", found.polling))
        for field in ByDistance.__struct_fields__
    }
