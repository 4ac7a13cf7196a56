"""Simulated cgroups of version 2 with the cpuset controller, and memory that follows their NUMA nodes."""

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import TypeAlias

from coresteer_core.cpuset import format_cpu_list, parse_cpu_list
from coresteer_core.node.cpusets import ROOT_CGROUP, Cpuset, migrated, parent_cgroup
from coresteer_core.node.numa import NumaTask
from coresteer_core.node.topology import Topology
from coresteer_core.settings.cpusets import INHERITED

CgroupValues: TypeAlias = Mapping[tuple[str, str], str]
"""Values that were written to files of cgroups, by path without leading slash and file."""


def effective(everything: Iterable[int], values: CgroupValues, path: str, name: str) -> frozenset[int]:
    """Return the CPUs or NUMA nodes that a cgroup gets. name: of its file. everything: what the root cgroup has."""
    if path == ROOT_CGROUP:
        return frozenset(everything)
    above = effective(everything, values, parent_cgroup(path), name)
    value = values.get((path, name), INHERITED)
    return above if value == INHERITED else (above & parse_cpu_list(value)) or above


@lru_cache(maxsize=1024)  # simulated nodes share few topologies, and a list of all CPUs takes long to format
def list_text(numbers: frozenset[int]) -> str:
    """Return a set of CPUs or NUMA nodes as a list."""
    return format_cpu_list(numbers)


def cpusets(
    topology: Topology, groups: Iterable[str], tasks: Sequence[NumaTask], values: CgroupValues
) -> dict[str, Cpuset]:
    """Return the cpusets of cgroups and those above them by path. tasks: whose memory they have."""
    paths = {ROOT_CGROUP}
    for group in groups:
        path = group
        while path not in paths:
            paths.add(path)
            path = parent_cgroup(path)
    cpus, nodes = topology.online(), [node.id for node in topology.numa_nodes]
    found = {}
    for path in sorted(paths):
        sizes: dict[int, int] = {}
        for task in tasks if path else ():
            if _is_in(task, path):
                for node, size in (task.bytes_by_node or {}).items():
                    sizes[node] = sizes.get(node, 0) + size
        configured = [None if not path else _text(values, path, name) for name in ("cpuset.cpus", "cpuset.mems")]
        found[path] = Cpuset(
            configured[0],
            configured[1],
            list_text(effective(cpus, values, path, "cpuset.cpus")),
            list_text(effective(nodes, values, path, "cpuset.mems")),
            sizes if path else None,
        )
    return found


def shares_after(
    nodes: Sequence[int], tasks: Iterable[NumaTask], before: CgroupValues, after: CgroupValues
) -> dict[int, dict[int, float]]:
    """Return by PID the shares of memory by node of processes whose pages the kernel moves when values change."""
    found = {}
    for task in tasks:
        sets = [effective(nodes, values, _group(task), "cpuset.mems") for values in (before, after)]
        sizes = task.bytes_by_node or {}
        if sets[0] != sets[1] and sizes:
            total = sum(sizes.values())
            found[task.pid] = {node: size / total for node, size in migrated(sizes, *sets).items()}
    return found


def _group(task: NumaTask) -> str:
    return (task.cgroup or "").lstrip("/")


def _is_in(task: NumaTask, path: str) -> bool:
    return f"{_group(task)}/".startswith(f"{path}/")


def _text(values: CgroupValues, path: str, name: str) -> str:
    value = values.get((path, name), INHERITED)
    return "" if value == INHERITED else value
