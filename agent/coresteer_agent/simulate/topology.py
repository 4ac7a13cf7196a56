"""Simulated topologies with any number of CPUs, numbered as on x86 servers."""

from coresteer_core.cpuset import format_cpu_list
from coresteer_core.node.topology import Cache, Cpu, NumaNode, Topology

_KIB = 1024
_MIB = 1024 * _KIB
_GIB = 1024 * _MIB
_CORES_PER_CCX = 8
"""From 128 CPUs on, cores share an L3 in groups of eight as on EPYC; below, a package has one L3 as on Xeon."""


def make_topology(cpus: int) -> Topology:
    """Return the topology of a machine with this number of CPUs, all online.

    Even counts above 4 have two threads per core, the second threads numbered after all first ones; from 32 CPUs on
    there are two packages if the number of cores is even, each a NUMA node; from 256 on each package has four (NPS4).
    """
    threads = 2 if cpus > 4 and cpus % 2 == 0 else 1
    cores = cpus // threads
    packages = 2 if cpus >= 32 and cores % 2 == 0 else 1
    per_package = cores // packages
    nodes_per_package = 4 if cpus >= 256 and per_package % (4 * _CORES_PER_CCX) == 0 else 1
    per_node = per_package // nodes_per_package
    nodes = packages * nodes_per_package

    def threads_of(core: int) -> list[int]:
        return [core + thread * cores for thread in range(threads)]

    def cpus_of(first: int, count: int) -> str:
        return format_cpu_list(cpu for core in range(first, first + count) for cpu in threads_of(core))

    caches = []
    for core in range(cores):
        own = format_cpu_list(threads_of(core))
        caches += [
            Cache(1, "Data", 32 * _KIB, own),
            Cache(1, "Instruction", 32 * _KIB, own),
            Cache(2, "Unified", _MIB, own),
        ]
    group = _CORES_PER_CCX if cpus >= 128 else per_package
    for package in range(packages):
        start = package * per_package
        for first in range(start, start + per_package, group):
            count = min(group, start + per_package - first)
            caches.append(Cache(3, "Unified", 32 * _MIB, cpus_of(first, count)))
    return Topology(
        cpus=[
            Cpu(
                cpu=cpu,
                core=cpu % cores,
                package=cpu % cores // per_package,
                numa_node=cpu % cores // per_node,
                online=True,
                siblings=format_cpu_list(threads_of(cpu % cores)),
            )
            for cpu in range(cpus)
        ],
        numa_nodes=[
            NumaNode(
                id=node,
                cpus=cpus_of(node * per_node, per_node),
                memory_bytes=4 * _GIB * per_node,
                distances=[_distance(node, other, nodes_per_package) for other in range(nodes)],
            )
            for node in range(nodes)
        ],
        caches=caches,
    )


def _distance(node: int, other: int, nodes_per_package: int) -> int:
    """Return the SLIT distance of two NUMA nodes: the same, of the same package, of two packages."""
    if node == other:
        return 10
    return 12 if node // nodes_per_package == other // nodes_per_package else 21
