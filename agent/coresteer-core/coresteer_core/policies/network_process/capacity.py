"""Room on CPUs, and the nearest CPUs with room to where packets arrive."""

from collections.abc import Sequence
from heapq import heapify, heappop, heappush
from math import inf
from operator import mul

from msgspec import Struct

from coresteer_core.node.load import Load
from coresteer_core.policies.distance import SMT_LAST, Reach, Ring, Rings

CENTRES = 8
"""Rings are drawn around so many CPUs of a process, those with the most traffic."""
_ROUNDING = 1e-9


def _weighted(shares: tuple[float, ...], distances: Sequence[int]) -> float:
    """math.sumprod, which Python 3.11 does not have."""
    return sum(map(mul, shares, distances), 0.0)


class Flow(Struct, frozen=True, gc=False):
    """Where a process's packets arrive: CPUs, the one with the most first, and their shares, which sum to 1."""

    cpus: tuple[int, ...]
    shares: tuple[float, ...]

    def cost(self, near: bytes) -> float:
        """Mean distance of the packets from a CPU with these distances."""
        if len(self.cpus) == 1:
            return self.shares[0] * near[self.cpus[0]]
        return sum(map(mul, self.shares, map(near.__getitem__, self.cpus)), 0.0)

    def ring_cost(self, near: bytes, centre: int, ring: Ring) -> float:
        """Mean distance of the packets from the CPUs of a ring around one of those CPUs, with its distances.

        Distances are those of a tree (a CPU in a core in an L2 in an L3 in a NUMA node): what is further from the
        centre than the ring is as far from the whole ring; anything nearer is at the ring's distance, and so is
        another thread of the centre's core even where those are counted last.
        """
        if ring.reach is Reach.SMT:
            return self.cost(near) + self.shares[self.cpus.index(centre)] * ring.distance
        at = ring.distance
        distances = [near[cpu] for cpu in self.cpus]
        return _weighted(self.shares, [d if d > at and d != SMT_LAST else at for d in distances])


class Seat(Struct, frozen=True):
    """A CPU that was found. centre: the CPU with packets whose ring it is in."""

    cpu: int
    centre: int
    ring: Ring
    cost: float


class Seats:
    """What room the CPUs have while one round is decided: every placement takes some of it.

    load: share of each CPU that is in use, by number; infinite where nobody may go or the load is not known.
    """

    def __init__(self, rings: Rings, reach: Reach, usable: frozenset[int], max_load: float) -> None:
        self.rings, self.reach, self.usable, self.max_load = rings, reach, usable, max_load
        self.load = [inf] * rings.cpu_count
        self.reached = rings.within(reach)

    def count(self, load: Load, own: dict[int, float]) -> None:
        """Take the loads without what the processes to be placed use (own); interrupts' time always stays."""
        known = min(len(load.busy), len(self.load))
        for cpu in self.usable:
            busy = load.busy[cpu] if cpu < known else None
            if busy is not None:
                softirq = load.softirq[cpu] if cpu < len(load.softirq) else None
                self.load[cpu] = max(busy - own.get(cpu, 0.0), softirq or 0.0)

    def take(self, cpus: tuple[int, ...], share: float) -> None:
        """Add a process's share (negative: take it away), evenly over its CPUs."""
        part = share / len(cpus)
        for cpu in cpus:
            self.load[cpu] += part

    def limit(self, need: float) -> float:
        """The highest load at which a CPU has room for one that needs that share of a CPU.

        max_load or what leaves it its share; to one that needs a whole CPU, one that is idle but for 1 - max_load.
        """
        return min(self.max_load, 1.0 - min(need, self.max_load)) + _ROUNDING

    def least(self, cpus: tuple[int, ...], allowed: frozenset[int] | None) -> int | None:
        """The least loaded of some CPUs that a process may have (None: all), the lowest number among equals."""
        if allowed is not None:
            cpus = tuple(cpu for cpu in cpus if cpu in allowed)
        return min(cpus, key=self.load.__getitem__, default=None)

    def centres(self, flow: Flow) -> list[int]:
        """CPUs to draw rings around: those with at least half as much traffic in reach as the best of them."""
        cpus = flow.cpus[:CENTRES]
        if len(cpus) == 1:
            return list(cpus)
        reaches = []
        for centre in cpus:
            near = self.rings.distances[centre]
            reaches.append(_weighted(flow.shares, [near[cpu] in self.reached for cpu in flow.cpus]))
        least = max(reaches) / 2
        return [cpu for cpu, reached in zip(cpus, reaches, strict=True) if reached >= least]

    def nearest(
        self, flow: Flow, limit: float, allowed: frozenset[int] | None, below: float = inf, favour: int | None = None
    ) -> Seat | None:
        """The CPU with the least weighted distance whose load is within the limit, None without one below a cost.

        A ring has one cost, and the cheapest CPU is always in a ring around a CPU with packets, so meeting the rings in
        the order of their costs finds it. Among the CPUs of a ring the favoured one, else the least loaded.
        """
        around, distances = self.rings.around, self.rings.distances
        costs = {centre: flow.cost(distances[centre]) for centre in flow.cpus[:CENTRES]}
        if min(costs.values()) >= below:
            return None
        heap = [(costs[centre], centre, 0) for centre in self.centres(flow)]
        heapify(heap)
        while heap:
            cost, centre, index = heappop(heap)
            if cost >= below:
                return None
            rings = around(centre, self.reach)
            ring = rings[index]
            if favour is not None and favour in ring.cpus and self.load[favour] <= limit:
                return Seat(favour, centre, ring, cost)
            cpu = self.least(ring.cpus, allowed)
            if cpu is not None and self.load[cpu] <= limit:
                return Seat(cpu, centre, ring, cost)
            if index == 0:
                near = distances[centre]
                for further in range(1, len(rings)):
                    heappush(heap, (flow.ring_cost(near, centre, rings[further]), centre, further))
        return None

    def lowest(self, flow: Flow) -> float:
        """No single CPU has a lower mean distance than this (as in nearest)."""
        if len(flow.cpus) == 1:
            return 0.0
        return min(flow.cost(self.rings.distances[centre]) for centre in flow.cpus[:CENTRES])

    def spread(self, flow: Flow, count: int, limit: float, allowed: frozenset[int] | None) -> tuple[int, ...]:
        """Up to count CPUs with room, each the nearest to a CPU with packets, in turn from the most of them."""
        chosen: list[int] = []
        centres = self.centres(flow)
        while centres and len(chosen) < count:
            for centre in list(centres):
                if len(chosen) == count:
                    break
                for ring in self.rings.around(centre, self.reach):
                    free = tuple(cpu for cpu in ring.cpus if cpu not in chosen)
                    cpu = self.least(free, allowed)
                    if cpu is not None and self.load[cpu] <= limit:
                        chosen.append(cpu)
                        break
                else:
                    centres.remove(centre)
        return tuple(sorted(chosen))

    def cost(self, flow: Flow, cpus: tuple[int, ...]) -> float:
        """Mean distance of a process's packets from the nearest of its CPUs."""
        if len(cpus) == 1:
            return flow.cost(self.rings.distances[cpus[0]])
        if set(flow.cpus) <= set(cpus):
            return 0.0
        rows = [self.rings.distances[cpu] for cpu in cpus]
        return sum(share * min(row[cpu] for row in rows) for cpu, share in zip(flow.cpus, flow.shares, strict=True))

    def in_reach(self, flow: Flow, cpu: int) -> bool:
        """Some of the packets arrive within the rings around a CPU."""
        near = self.rings.distances[cpu]
        return not self.reached.isdisjoint([near[other] for other in flow.cpus])

    def relation(self, centre: int, cpu: int) -> Reach | None:
        """The ring of a CPU around another, None outside of the rings."""
        return next((ring.reach for ring in self.rings.around(centre, self.reach) if cpu in ring.cpus), None)
