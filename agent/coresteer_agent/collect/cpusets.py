"""CPUs and NUMA nodes of cgroups of version 2 (Documentation/admin-guide/cgroup-v2.rst)."""

from collections.abc import Iterable
from pathlib import Path

from coresteer_agent.collect.cgroup_memory import parse_numa_stat
from coresteer_agent.collect.cgroups import VERSION_2
from coresteer_agent.collect.files import read_bytes, read_cpus_as_list
from coresteer_agent.collect.rows import value_or_none
from coresteer_core.node.cpusets import MAX_CPUSETS, ROOT_CGROUP, Cpuset, parent_cgroup

_MAPPED = ("anon", "file_mapped")


def read_cpusets(root: Path, groups: Iterable[str]) -> dict[str, Cpuset]:
    """Return the cpusets of cgroups and of those above them by path, the first MAX_CPUSETS.

    groups: paths without leading slash. Empty where version 2 of cgroups has no cpuset controller.
    """
    mount = next((each for each in VERSION_2 if read_bytes(root, f"{each}/cpuset.mems.effective")), None)
    if mount is None:
        return {}
    paths = {ROOT_CGROUP: None}
    for group in groups:
        path = group
        while path not in paths and len(paths) < MAX_CPUSETS:
            paths[path] = None
            path = parent_cgroup(path)
    return {path: _read(root, f"{mount}/{path}".rstrip("/")) for path in paths}


def _read(root: Path, folder: str) -> Cpuset:
    effective = read_cpus_as_list(root, f"{folder}/cpuset.mems.effective")
    if effective is None:
        return Cpuset()
    path = f"{folder}/memory.numa_stat"
    stat = value_or_none(parse_numa_stat, read_bytes(root, path) or b"", path) or {}
    sizes: dict[int, int] = {}
    for name in _MAPPED:
        for node, size in stat.get(name, {}).items():
            sizes[node] = sizes.get(node, 0) + size
    return Cpuset(
        cpus=read_cpus_as_list(root, f"{folder}/cpuset.cpus"),
        mems=read_cpus_as_list(root, f"{folder}/cpuset.mems"),
        effective_cpus=read_cpus_as_list(root, f"{folder}/cpuset.cpus.effective") or "",
        effective_mems=effective,
        bytes_by_node=sizes if stat else None,
    )
