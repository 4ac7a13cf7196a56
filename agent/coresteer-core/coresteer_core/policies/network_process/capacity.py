"""Find CPUs with free capacity near those that handle a process's packets."""

from collections.abc import Sequence
from heapq import heapify, heappop, heappush
from math import inf
from operator import mul

from msgspec import Struct

from coresteer_core.node.distance import SMT_LAST_DISTANCE, CpuDistances, CpuGroup, Locality
from coresteer_core.node.load import Load

MAX_CENTRES = 8
"""Maximum number of CPUs to search around: those that handle the most packets of a process."""
MAX_LOAD_AFTER_MOVE = 0.6
"""Maximum load, with the process, of a CPU to which a process moves from a CPU that the policy chose before.

Below the load at which irq-spread begins to move interrupts away: otherwise a process that follows its interrupt would
overload the new CPU, and the two would chase each other.
"""
_ROUNDING = 1e-9


def _weighted(shares: tuple[float, ...], distances: Sequence[int]) -> float:
    """Return the distances weighted by the shares (math.sumprod, which Python 3.11 does not have)."""
    return sum(map(mul, shares, distances), 0.0)


class PacketShares(Struct, frozen=True, gc=False):
    """Share of a process's packets that each CPU handles; shares sum to 1, the largest is first."""

    cpus: tuple[int, ...]
    shares: tuple[float, ...]

    def mean_distance(self, row: bytes) -> float:
        """Return the mean distance of the packets from a CPU, given its row of distances."""
        if len(self.cpus) == 1:
            return self.shares[0] * row[self.cpus[0]]
        return sum(map(mul, self.shares, map(row.__getitem__, self.cpus)), 0.0)

    def group_mean_distance(self, row: bytes, centre: int, group: CpuGroup) -> float:
        """Return the mean distance of the packets from the CPUs of a group around a centre, given the centre's row.

        Distances are those of a tree (a CPU in a core in an L2 in an L3 in a NUMA node): a CPU further from the centre
        than the group is equally far from the whole group; a nearer one is at the group's distance, and so is another
        thread of the centre's core even where those are preferred last.
        """
        if group.locality is Locality.SMT:
            return self.mean_distance(row) + self.shares[self.cpus.index(centre)] * group.distance
        at = group.distance
        distances = [row[cpu] for cpu in self.cpus]
        return _weighted(self.shares, [d if d > at and d != SMT_LAST_DISTANCE else at for d in distances])


class CpuChoice(Struct, frozen=True):
    """A CPU chosen for a process. centre: the CPU with packets around which it was found; cost: mean distance."""

    cpu: int
    centre: int
    group: CpuGroup
    cost: float


class CpuCapacity:
    """Load of the CPUs during one round, in which every placement of a process reserves capacity.

    max_locality: the largest unit that a process may share with the CPU that handles its packets. load: used share of
    each CPU, by number; infinite for unusable CPUs and where it is unknown.
    """

    def __init__(
        self, distances: CpuDistances, max_locality: Locality, usable: frozenset[int], max_load: float
    ) -> None:
        self.distances, self.max_locality, self.usable, self.max_load = distances, max_locality, usable, max_load
        self.load = [inf] * distances.cpu_count
        self.reachable = distances.distances_within(max_locality)

    def set_load(self, load: Load, own: dict[int, float]) -> None:
        """Set the load of each CPU without that of the processes to be placed (own), but at least its softirq time."""
        known = min(len(load.busy), len(self.load))
        for cpu in self.usable:
            busy = load.busy[cpu] if cpu < known else None
            if busy is not None:
                softirq = load.softirq[cpu] if cpu < len(load.softirq) else None
                self.load[cpu] = max(busy - own.get(cpu, 0.0), softirq or 0.0)

    def reserve(self, cpus: tuple[int, ...], share: float) -> None:
        """Add a process's CPU use (share of one CPU) evenly to the load of its CPUs; a negative share releases it."""
        part = share / len(cpus)
        for cpu in cpus:
            self.load[cpu] += part

    def load_limit(self, need: float) -> float:
        """Return the highest load (0 to 1) at which a CPU has room for a process that needs this share of a CPU.

        That is max_load, or what leaves the process its share; one that needs a whole CPU gets one that is idle but
        for 1 - max_load.
        """
        return min(self.max_load, 1.0 - min(need, self.max_load)) + _ROUNDING

    def load_limit_after_move(self, need: float) -> float:
        """Return the load limit of a CPU for a process that the policy placed before (see MAX_LOAD_AFTER_MOVE)."""
        return min(self.load_limit(need), MAX_LOAD_AFTER_MOVE - min(need, MAX_LOAD_AFTER_MOVE) + _ROUNDING)

    def least_loaded(self, cpus: tuple[int, ...], allowed: frozenset[int] | None) -> int | None:
        """Return the least loaded of these CPUs among the allowed ones (None: all are allowed); None without any."""
        if allowed is not None:
            cpus = tuple(cpu for cpu in cpus if cpu in allowed)
        return min(cpus, key=self.load.__getitem__, default=None)

    def search_centres(self, packets: PacketShares) -> list[int]:
        """Return the CPUs to search around: those near at least half as many packets as the best of them."""
        cpus = packets.cpus[:MAX_CENTRES]
        if len(cpus) == 1:
            return list(cpus)
        reached = []
        for centre in cpus:
            row = self.distances.rows[centre]
            reached.append(_weighted(packets.shares, [row[cpu] in self.reachable for cpu in packets.cpus]))
        least = max(reached) / 2
        return [cpu for cpu, share in zip(cpus, reached, strict=True) if share >= least]

    def nearest(
        self,
        packets: PacketShares,
        limit: float,
        allowed: frozenset[int] | None,
        below: float = inf,
        preferred: int | None = None,
    ) -> CpuChoice | None:
        """Return the CPU nearest to a process's packets with a load within the limit; None without one.

        below: exclusive bound of the mean distance. preferred: wins among CPUs at the same distance.

        A group has one cost, and the cheapest CPU is always in a group around a CPU with packets, so visiting the
        groups in the order of their costs finds it. Other threads of a core with packets that are preferred last are
        only in the group around that core. Within a group the preferred CPU wins, else the least loaded.
        """
        around, rows = self.distances.groups_around, self.distances.rows
        costs = {centre: packets.mean_distance(rows[centre]) for centre in packets.cpus[:MAX_CENTRES]}
        if min(costs.values()) >= below:
            return None
        heap = [(costs[centre], centre, 0) for centre in self.search_centres(packets)]
        heapify(heap)
        later = self.distances.last_siblings(costs) if len(costs) > 1 else frozenset()
        while heap:
            cost, centre, index = heappop(heap)
            if cost >= below:
                return None
            groups = around(centre, self.max_locality)
            group = groups[index]
            cpus = group.cpus
            if later and group.locality in (Locality.L2, Locality.L3):
                cpus = tuple(cpu for cpu in cpus if cpu not in later)
            if preferred is not None and preferred in cpus and self.load[preferred] <= limit:
                return CpuChoice(preferred, centre, group, cost)
            cpu = self.least_loaded(cpus, allowed)
            if cpu is not None and self.load[cpu] <= limit:
                return CpuChoice(cpu, centre, group, cost)
            if index == 0:
                row = rows[centre]
                for further in range(1, len(groups)):
                    heappush(heap, (packets.group_mean_distance(row, centre, groups[further]), centre, further))
        return None

    def min_mean_distance(self, packets: PacketShares) -> float:
        """Return a lower bound of the mean distance of a process's packets from any single CPU."""
        if len(packets.cpus) == 1:
            return 0.0
        return min(packets.mean_distance(self.distances.rows[centre]) for centre in packets.cpus[:MAX_CENTRES])

    def nearest_cpus(
        self, packets: PacketShares, count: int, limit: float, allowed: frozenset[int] | None
    ) -> tuple[int, ...]:
        """Return up to count CPUs with room for threads, each nearest to one of the CPUs with packets, in turn."""
        chosen: list[int] = []
        centres = self.search_centres(packets)
        while centres and len(chosen) < count:
            for centre in list(centres):
                if len(chosen) == count:
                    break
                for group in self.distances.groups_around(centre, self.max_locality):
                    free = tuple(cpu for cpu in group.cpus if cpu not in chosen)
                    cpu = self.least_loaded(free, allowed)
                    if cpu is not None and self.load[cpu] <= limit:
                        chosen.append(cpu)
                        break
                else:
                    centres.remove(centre)
        return tuple(sorted(chosen))

    def mean_distance(self, packets: PacketShares, cpus: tuple[int, ...]) -> float:
        """Return the mean distance of a process's packets from the nearest of its CPUs."""
        if len(cpus) == 1:
            return packets.mean_distance(self.distances.rows[cpus[0]])
        if set(packets.cpus) <= set(cpus):
            return 0.0
        rows = [self.distances.rows[cpu] for cpu in cpus]
        return sum(
            share * min(row[cpu] for row in rows) for cpu, share in zip(packets.cpus, packets.shares, strict=True)
        )

    def is_near(self, packets: PacketShares, cpu: int) -> bool:
        """Return whether a CPU shares max_locality with one of the CPUs that handle a process's packets."""
        row = self.distances.rows[cpu]
        return not self.reachable.isdisjoint([row[other] for other in packets.cpus])

    def nearest_shared_unit(self, centre: int, cpu: int) -> Locality | None:
        """Return the nearest unit that two CPUs share; None where it is larger than max_locality."""
        groups = self.distances.groups_around(centre, self.max_locality)
        return next((group.locality for group in groups if cpu in group.cpus), None)
