"""Distance between CPUs by what they share: core, L2, L3 or NUMA node (sysfs cache/index*/shared_cpu_list)."""

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
    """Whether the other threads of a core are preferred first, or only after all CPUs that share a cache."""

    FIRST = "first"
    LAST = "last"


DISTANCE = {Locality.CPU: 0, Locality.SMT: 1, Locality.L2: 2, Locality.L3: 4, Locality.NUMA: 6}
"""Ordinal distance by what two CPUs share, weighted by traffic in mean distances; not a time."""
SMT_LAST_DISTANCE = 5
"""Of another thread of the same core with Smt.LAST: after L3, before NUMA."""
REMOTE_DISTANCE = 10
"""Of a CPU on another NUMA node."""


class CpuGroup(Struct, frozen=True):
    """The CPUs at one distance from a CPU, in ascending order."""

    locality: Locality
    distance: int
    cpus: tuple[int, ...]


class _LazyRows(dict[int, bytes]):
    """Rows computed on first use: most CPUs handle no interrupt."""

    def __init__(self, make: Callable[[int], bytes]) -> None:
        self._make = make

    def __missing__(self, cpu: int) -> bytes:
        row = self[cpu] = self._make(cpu)
        return row


class CpuDistances:
    """All distances of one machine. rows: by CPU, one byte per CPU number."""

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
        """Return the distance of CPUs whose nearest shared unit is this one."""
        return SMT_LAST_DISTANCE if locality is Locality.SMT and self._smt is Smt.LAST else DISTANCE[locality]

    def within(self, locality: Locality) -> frozenset[int]:
        """Return the distances of this unit and of all smaller ones."""
        return frozenset(self.distance(each) for each in list(Locality)[: list(Locality).index(locality) + 1])

    def _row(self, cpu: int) -> bytes:
        values = bytearray([REMOTE_DISTANCE]) * self.cpu_count
        for locality in (Locality.NUMA, Locality.L3, Locality.L2, Locality.SMT):
            for other in self._groups[locality].get(cpu, ()):
                values[other] = self.distance(locality)
        values[cpu] = 0
        return bytes(values)

    def around(self, cpu: int, locality: Locality) -> tuple[CpuGroup, ...]:
        """Return the groups of CPUs around a CPU, nearest first, up to a shared unit; empty groups are omitted."""
        groups = self._around.get((cpu, locality))
        if groups is None:
            row = self.rows[cpu]
            at: dict[int, list[int]] = {}
            for other, distance in enumerate(row):
                at.setdefault(distance, []).append(other)
            of = {self.distance(each): each for each in Locality}
            found = (
                CpuGroup(of[distance], distance, tuple(at[distance]))
                for distance in sorted(self.within(locality) & at.keys())
            )
            groups = self._around[cpu, locality] = tuple(found)
        return groups


@lru_cache(maxsize=16)
def _cached_distances(cpus: tuple[Cpu, ...], caches: tuple[Cache, ...], smt: Smt) -> CpuDistances:
    return CpuDistances(cpus, caches, smt)


def cpu_distances(topology: Topology, smt: Smt) -> CpuDistances:
    """Return the distances of a machine, cached per topology, which changes only on hot-plug."""
    caches = tuple(c for c in topology.caches if c.level > 1 and c.type != "Instruction")
    return _cached_distances(tuple(topology.cpus), caches, smt)
