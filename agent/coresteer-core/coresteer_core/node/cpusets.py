"""CPUs and NUMA nodes of a node's cgroups of version 2, and which memory the kernel migrates when they change."""

from collections.abc import Mapping

from msgspec import Struct

from coresteer_core.bounds import CpuList
from coresteer_core.node.topology import BytesByNode

MAX_CPUSETS = 1024
ROOT_CGROUP = ""
"""Path of the root cgroup, whose CPUs and NUMA nodes nobody can change."""


class Cpuset(Struct, frozen=True):
    """What a cgroup may use (kernel: Documentation/admin-guide/cgroup-v2.rst, Cpuset).

    cpus, mems: its files cpuset.cpus and cpuset.mems, lists of CPUs and NUMA nodes; empty: it inherits those of its
    parent; None where the cpuset controller is not enabled for it. effective_cpus, effective_mems: what it gets.
    bytes_by_node: memory that processes in it and below it have mapped, by NUMA node (memory.numa_stat: anon and
    file_mapped); None where unknown.
    """

    cpus: CpuList | None = None
    mems: CpuList | None = None
    effective_cpus: CpuList = ""
    effective_mems: CpuList = ""
    bytes_by_node: BytesByNode | None = None


def parent_cgroup(path: str) -> str:
    """Return the path of a cgroup's parent, empty for the root cgroup."""
    return path.rpartition("/")[0]


def migrated(sizes: Mapping[int, int], before: frozenset[int], after: frozenset[int]) -> dict[int, int]:
    """Return bytes by NUMA node after a change of effective cpuset.mems (kernel: mm/mempolicy.c, do_migrate_pages).

    sizes: bytes before. Between sets of equal size the kernel moves the n-th node's pages to the n-th new node; else
    pages stay where they may. Pages outside of the old set stay, too.
    """
    old, new = sorted(before), sorted(after)
    found: dict[int, int] = {}
    for node, size in sizes.items():
        stays = node not in before or (len(old) != len(new) and node in after)
        target = node if stays or not new else new[old.index(node) % len(new)]
        found[target] = found.get(target, 0) + size
    return found
