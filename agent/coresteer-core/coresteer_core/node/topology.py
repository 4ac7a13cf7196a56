"""Topology of a node: CPUs, cores, NUMA nodes and caches. CPU sets are the kernel's CPU lists (``0-3,8``)."""

from functools import cached_property
from typing import Annotated, TypeAlias

from msgspec import Meta, Struct

from coresteer_core.bounds import Count, CpuList, CpuNumber, KernelInteger, Name
from coresteer_core.cpuset import MAX_CPUS, parse_cpu_list

MAX_NUMA_NODES = 1024
MAX_CACHES = 8 * MAX_CPUS
NumaNodeNumber: TypeAlias = Annotated[int, Meta(ge=0, lt=MAX_NUMA_NODES)]
BytesByNode: TypeAlias = Annotated[dict[NumaNodeNumber, Count], Meta(max_length=MAX_NUMA_NODES)]


class Cpu(Struct, frozen=True):
    """One logical CPU.

    core: number of its physical core, unique on the machine; package: physical_package_id.
    siblings: CPU list of its SMT siblings, itself included. capacity: cpu_capacity, None where the
    kernel does not report it (most x86). Offline CPUs have no core, package or siblings.
    """

    cpu: CpuNumber
    core: KernelInteger | None
    package: KernelInteger | None
    numa_node: KernelInteger | None
    online: bool
    siblings: CpuList = ""
    capacity: KernelInteger | None = None


class NumaNode(Struct, frozen=True):
    """One NUMA node. distances: the firmware's (SLIT) to every node, in the order of the nodes' ids; 10 is local."""

    id: KernelInteger
    cpus: CpuList
    memory_bytes: KernelInteger | None
    distances: Annotated[list[KernelInteger], Meta(max_length=MAX_NUMA_NODES)] = []


class Cache(Struct, frozen=True):
    """One cache and the CPUs that share it. type: Data, Instruction or Unified, as sysfs spells it."""

    level: KernelInteger
    type: Name
    size_bytes: KernelInteger | None
    cpus: CpuList


class Topology(Struct, frozen=True, dict=True):
    """CPUs, NUMA nodes and caches; changes only on hot-plug. isolated, nohz_full: CPU lists from the kernel."""

    cpus: Annotated[list[Cpu], Meta(max_length=MAX_CPUS)]
    numa_nodes: Annotated[list[NumaNode], Meta(max_length=MAX_NUMA_NODES)]
    caches: Annotated[list[Cache], Meta(max_length=MAX_CACHES)]
    isolated: CpuList = ""
    nohz_full: CpuList = ""

    def online(self) -> frozenset[int]:
        """Return the numbers of the CPUs that are online."""
        return self._online

    @cached_property
    def _online(self) -> frozenset[int]:
        return frozenset(c.cpu for c in self.cpus if c.online)

    @cached_property
    def isolated_cpus(self) -> frozenset[int]:
        """Return the numbers of the CPUs that the kernel parameters isolcpus and nohz_full isolate."""
        return parse_cpu_list(self.isolated) | parse_cpu_list(self.nohz_full)

    @cached_property
    def cores(self) -> dict[int, frozenset[int]]:
        """Return for each CPU the CPUs (hardware threads) of its core, itself included."""
        return {cpu.cpu: parse_cpu_list(cpu.siblings) | {cpu.cpu} for cpu in self.cpus}

    @cached_property
    def nodes(self) -> dict[int, int | None]:
        """Return for each CPU its NUMA node, None where that is unknown."""
        return {cpu.cpu: cpu.numa_node for cpu in self.cpus}
