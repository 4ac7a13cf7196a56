"""How near CPUs are to each other: rings of shared cache around a CPU (sysfs cache/index*/shared_cpu_map)."""

from collections.abc import Callable, Iterable
from enum import StrEnum
from functools import lru_cache

from msgspec import Struct

from coresteer_core.cpuset import parse_cpu_list
from coresteer_core.node.topology import Cache, Cpu, Topology


class Reach(StrEnum):
    """A ring: the CPU itself, the other threads of its core, who shares its L2, its L3, its NUMA node."""

    CPU = "cpu"
    SMT = "smt"
    L2 = "l2"
    L3 = "l3"
    NUMA = "numa"


class Smt(StrEnum):
    """Whether the other threads of a core come before all others or after all that share a cache with it."""

    FIRST = "first"
    LAST = "last"


DISTANCE = {Reach.CPU: 0, Reach.SMT: 1, Reach.L2: 2, Reach.L3: 4, Reach.NUMA: 6}
"""What a ring counts when distances are weighted by traffic. The numbers order the rings; they are no time."""
SMT_LAST = 5
FAR = 10
"""On another NUMA node."""


class Ring(Struct, frozen=True):
    """The CPUs at one distance from a CPU, in order of their numbers."""

    reach: Reach
    distance: int
    cpus: tuple[int, ...]


class _Rows(dict[int, bytes]):
    """Rows that are made when first asked for: most CPUs handle no interrupt."""

    def __init__(self, make: Callable[[int], bytes]) -> None:
        self._make = make

    def __missing__(self, cpu: int) -> bytes:
        row = self[cpu] = self._make(cpu)
        return row


class Rings:
    """All distances of one machine. distances: by CPU, from it to every CPU by number."""

    def __init__(self, cpus: tuple[Cpu, ...], caches: tuple[Cache, ...], smt: Smt) -> None:
        self.cpu_count = max((c.cpu for c in cpus), default=-1) + 1
        self._smt = smt
        self._groups: dict[Reach, dict[int, set[int]]] = {reach: {} for reach in Reach}
        nodes: dict[int, set[int]] = {}
        for c in cpus:
            if c.numa_node is not None:
                nodes.setdefault(c.numa_node, set()).add(c.cpu)
        self._share(Reach.NUMA, nodes.values())
        self._share(Reach.L3, (parse_cpu_list(c.cpus) for c in caches if c.level > 2))
        self._share(Reach.L2, (parse_cpu_list(c.cpus) for c in caches if c.level == 2))
        self._share(Reach.SMT, ({c.cpu} | parse_cpu_list(c.siblings) for c in cpus))
        self.distances = _Rows(self._row)
        self._around: dict[tuple[int, Reach], tuple[Ring, ...]] = {}

    def _share(self, reach: Reach, groups: Iterable[Iterable[int]]) -> None:
        shared = self._groups[reach]
        for group in groups:
            members = {cpu for cpu in group if cpu < self.cpu_count}
            for cpu in members:
                shared[cpu] = shared.get(cpu, members) | members

    def distance(self, reach: Reach) -> int:
        """Of a ring's CPUs from its centre."""
        return SMT_LAST if reach is Reach.SMT and self._smt is Smt.LAST else DISTANCE[reach]

    def within(self, reach: Reach) -> frozenset[int]:
        """The distances of a ring and all before it."""
        return frozenset(self.distance(each) for each in list(Reach)[: list(Reach).index(reach) + 1])

    def _row(self, cpu: int) -> bytes:
        values = bytearray([FAR]) * self.cpu_count
        for reach in (Reach.NUMA, Reach.L3, Reach.L2, Reach.SMT):
            for other in self._groups[reach].get(cpu, ()):
                values[other] = self.distance(reach)
        values[cpu] = 0
        return bytes(values)

    def around(self, cpu: int, reach: Reach) -> tuple[Ring, ...]:
        """The rings from a CPU outwards up to one, nearest first; empty rings are left out."""
        rings = self._around.get((cpu, reach))
        if rings is None:
            row = self.distances[cpu]
            at: dict[int, list[int]] = {}
            for other, distance in enumerate(row):
                at.setdefault(distance, []).append(other)
            of = {self.distance(each): each for each in Reach}
            found = (
                Ring(of[distance], distance, tuple(at[distance])) for distance in sorted(self.within(reach) & at.keys())
            )
            rings = self._around[cpu, reach] = tuple(found)
        return rings


@lru_cache(maxsize=16)
def _rings(cpus: tuple[Cpu, ...], caches: tuple[Cache, ...], smt: Smt) -> Rings:
    return Rings(cpus, caches, smt)


def rings(topology: Topology, smt: Smt) -> Rings:
    """The rings of a machine; made once for each topology, which changes only with hot-plug."""
    caches = tuple(c for c in topology.caches if c.level > 1 and c.type != "Instruction")
    return _rings(tuple(topology.cpus), caches, smt)
