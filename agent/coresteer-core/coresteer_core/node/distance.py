"""Distance between CPUs by the nearest unit that they share: core, L2, L3 or NUMA node (sysfs shared_cpu_list)."""

from collections.abc import Callable, Iterable
from enum import StrEnum
from functools import lru_cache

from msgspec import Struct

from coresteer_core.cpuset import parse_cpu_list
from coresteer_core.node.topology import Cache, Cpu, Topology


class Locality(StrEnum):
    """The nearest unit that two CPUs share: the CPU itself, its core, its L2, its L3, its NUMA node."""

    CPU = "cpu"
    SMT = "smt"
    L2 = "l2"
    L3 = "l3"
    NUMA = "numa"


class Smt(StrEnum):
    """When SMT siblings (other threads of a core) are used: first, or last, after all CPUs that share a cache."""

    FIRST = "first"
    LAST = "last"


DISTANCE = {Locality.CPU: 0, Locality.SMT: 1, Locality.L2: 2, Locality.L3: 4, Locality.NUMA: 6}
"""Distance between two CPUs by the nearest unit that they share; ordinal, not a time."""
LOCALITY_NAME = {
    Locality.CPU: "CPU",
    Locality.SMT: "core",
    Locality.L2: "L2 cache",
    Locality.L3: "L3 cache",
    Locality.NUMA: "NUMA node",
}
"""Name of each unit for sentences."""
SMT_LAST_DISTANCE = 5
"""Distance of an SMT sibling where these are used last: after L3, before the NUMA node."""
REMOTE_DISTANCE = 10
"""Distance of a CPU on another NUMA node."""


class CpuGroup(Struct, frozen=True):
    """The CPUs at the same distance from a CPU, in ascending order."""

    locality: Locality
    distance: int
    cpus: tuple[int, ...]


class _LazyRows(dict[int, bytes]):
    """Distances by CPU, computed on first use because most CPUs handle no interrupt."""

    def __init__(self, make: Callable[[int], bytes]) -> None:
        self._make = make

    def __missing__(self, cpu: int) -> bytes:
        row = self[cpu] = self._make(cpu)
        return row


class CpuDistances:
    """Distances between all CPUs of one machine. rows: by CPU, its distance to each CPU number, one byte each."""

    def __init__(self, cpus: tuple[Cpu, ...], caches: tuple[Cache, ...], smt: Smt) -> None:
        self.cpu_count = max((c.cpu for c in cpus), default=-1) + 1
        self._smt = smt
        self._groups: dict[Locality, dict[int, set[int]]] = {locality: {} for locality in Locality}
        nodes: dict[int, set[int]] = {}
        for c in cpus:
            if c.numa_node is not None:
                nodes.setdefault(c.numa_node, set()).add(c.cpu)
        self._add_shared(Locality.NUMA, nodes.values())
        self._add_shared(Locality.L3, (parse_cpu_list(c.cpus) for c in caches if c.level > 2))
        self._add_shared(Locality.L2, (parse_cpu_list(c.cpus) for c in caches if c.level == 2))
        self._add_shared(Locality.SMT, ({c.cpu} | parse_cpu_list(c.siblings) for c in cpus))
        self.rows = _LazyRows(self._row)
        self._around: dict[tuple[int, Locality], tuple[CpuGroup, ...]] = {}

    def _add_shared(self, locality: Locality, groups: Iterable[Iterable[int]]) -> None:
        shared = self._groups[locality]
        for group in groups:
            members = {cpu for cpu in group if cpu < self.cpu_count}
            for cpu in members:
                shared[cpu] = shared.get(cpu, members) | members

    def distance(self, locality: Locality) -> int:
        """Return the distance between CPUs whose nearest shared unit is this one."""
        return SMT_LAST_DISTANCE if locality is Locality.SMT and self._smt is Smt.LAST else DISTANCE[locality]

    def last_siblings(self, cpus: Iterable[int]) -> frozenset[int]:
        """Return these CPUs and the other threads of their cores; empty unless those are preferred last."""
        if self._smt is Smt.FIRST:
            return frozenset()
        return frozenset().union(*(self._groups[Locality.SMT].get(cpu, ()) for cpu in cpus))

    def distances_within(self, locality: Locality) -> frozenset[int]:
        """Return all distances between CPUs that share this unit or a smaller one."""
        return frozenset(self.distance(each) for each in list(Locality)[: list(Locality).index(locality) + 1])

    def _row(self, cpu: int) -> bytes:
        values = bytearray([REMOTE_DISTANCE]) * self.cpu_count
        for locality in (Locality.NUMA, Locality.L3, Locality.L2, Locality.SMT):
            for other in self._groups[locality].get(cpu, ()):
                values[other] = self.distance(locality)
        values[cpu] = 0
        return bytes(values)

    def groups_around(self, cpu: int, locality: Locality) -> tuple[CpuGroup, ...]:
        """Return the CPUs that share this unit with a CPU, grouped by distance, nearest first; no empty groups."""
        groups = self._around.get((cpu, locality))
        if groups is None:
            row = self.rows[cpu]
            at: dict[int, list[int]] = {}
            for other, distance in enumerate(row):
                at.setdefault(distance, []).append(other)
            of = {self.distance(each): each for each in Locality}
            found = (
                CpuGroup(of[distance], distance, tuple(at[distance]))
                for distance in sorted(self.distances_within(locality) & at.keys())
            )
            groups = self._around[cpu, locality] = tuple(found)
        return groups


@lru_cache(maxsize=16)
def _cached_distances(cpus: tuple[Cpu, ...], caches: tuple[Cache, ...], smt: Smt) -> CpuDistances:
    return CpuDistances(cpus, caches, smt)


def cpu_distances(topology: Topology, smt: Smt) -> CpuDistances:
    """Return the distances between all CPUs of a machine; cached, because a topology changes only on hot-plug."""
    caches = tuple(c for c in topology.caches if c.level > 1 and c.type != "Instruction")
    return _cached_distances(tuple(topology.cpus), caches, smt)
