"""Reads packages, NUMA nodes, cores, SMT siblings and caches (Documentation/ABI/testing/sysfs-devices-system-cpu)."""

import re
from pathlib import Path

from msgspec import Struct

from coresteer_agent.collect.errors import ParseError
from coresteer_agent.collect.files import (
    HotFile,
    list_numbered,
    names,
    read_bytes,
    read_cpus,
    read_int,
    read_mask,
    read_non_negative,
    read_text,
    require_cpu_list,
)
from coresteer_agent.collect.rows import value_or_none
from coresteer_core.cpuset import MAX_CPUS, format_cpu_list
from coresteer_core.node.topology import Cache, Cpu, NumaNode, Topology

_CPU = "sys/devices/system/cpu"
_NODE = "sys/devices/system/node"

_SIZE = re.compile(r"(\d{1,9})([KMG]?)\Z", re.ASCII)
_UNITS = {"": 1, "K": 1024, "M": 1024**2, "G": 1024**3}
_DISTANCE = re.compile(r"\d{1,9}\Z", re.ASCII)
_MEM_TOTAL = re.compile(rb"MemTotal:\s+(\d{1,15}) kB")


def read_topology(root: Path) -> Topology:
    """Read the CPU topology below root from sysfs, as far as its files show it.

    A core is numbered by the lowest CPU of its SMT siblings, so the number is unique on the machine
    and two CPUs share a core exactly when they share the number. (The kernel's core_id repeats in
    each package and, on some firmware, in each die.) A package that the kernel does not number
    (physical_package_id is -1 on most POWER machines) is likewise numbered by its lowest CPU.

    A kernel built without NUMA shows no node: then there is one, node 0, with every CPU. Where
    firmware lets several nodes claim the same CPUs, they become one node with their memory summed,
    because a CPU is local to one node only.

    A value that makes no sense is unknown. Raises ParseError where it is unknown which CPUs there are, or which must
    not be used.
    """
    numbers = list_numbered(root, _CPU, "cpu")
    if numbers and numbers[-1] >= MAX_CPUS:
        raise ParseError(_CPU, None, f"CPU {numbers[-1]} exceeds the largest CPU number of Linux.")
    online = _online(root, numbers)
    nodes = _numa_nodes(root, online)
    node_of = {cpu: node.id for node in nodes for cpu in node.online}
    return Topology(
        cpus=[_cpu(root, cpu, online, node_of) for cpu in numbers],
        numa_nodes=[
            NumaNode(node.id, format_cpu_list(node.online), node.memory_bytes, node.distances) for node in nodes
        ],
        caches=_caches(root, online),
        isolated=_listed(root, "isolated"),
        nohz_full=_listed(root, "nohz_full"),
    )


def is_topology_current(root: Path, topology: Topology) -> bool:
    """Return whether online, isolated and nohz_full CPUs are still those of the topology. Raises ParseError.

    Besides hot-plug, cpuset partitions change which are isolated. Raises ParseError.
    """
    online = read_cpus(root, f"{_CPU}/online")
    return (online is None or online == topology.online()) and (topology.isolated, topology.nohz_full) == (
        _listed(root, "isolated"),
        _listed(root, "nohz_full"),
    )


class CpuListsMonitor:
    """Tells each second whether a topology is current; parses the CPU lists only where their text has changed."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._files = [HotFile(root, f"{_CPU}/{name}") for name in ("online", "isolated", "nohz_full")]
        self._asked: tuple[Topology, list[bytes]] | None = None
        self._current = False

    def is_current(self, topology: Topology) -> bool:
        """Return is_topology_current(). Raises ParseError."""
        texts = [bytes(file.read() or b"") for file in self._files]
        if self._asked is None or self._asked[0] is not topology or self._asked[1] != texts:
            self._current = is_topology_current(self._root, topology)
            self._asked = topology, texts
        return self._current

    def close(self) -> None:
        """Close the descriptors."""
        for file in self._files:
            file.close()


def _listed(root: Path, name: str) -> str:
    return require_cpu_list(root, f"{_CPU}/{name}") or ""


def _online(root: Path, numbers: list[int]) -> frozenset[int]:
    online = read_cpus(root, f"{_CPU}/online")
    if online is not None:
        return online & frozenset(numbers)
    # before 2.6.26, and in trees captured without the list; the boot CPU often has no such file
    return frozenset(cpu for cpu in numbers if read_int(root, f"{_CPU}/cpu{cpu}/online") != 0)


def _group(root: Path, folder: str, files: tuple[str, ...]) -> frozenset[int]:
    """Read the CPUs in the first of these list or mask files that exists and is not empty."""
    for name in files:
        read = read_cpus if name.endswith("list") else read_mask
        if found := read(root, f"{folder}/{name}"):
            return found
    return frozenset()


def _cpu(root: Path, cpu: int, online: frozenset[int], node_of: dict[int, int]) -> Cpu:
    folder = f"{_CPU}/cpu{cpu}"
    capacity = read_non_negative(root, f"{folder}/cpu_capacity")
    if cpu not in online:
        return Cpu(cpu, None, None, node_of.get(cpu), online=False, capacity=capacity)
    topology = f"{folder}/topology"
    # the names changed in 5.5: core_siblings is the package, thread_siblings the core
    siblings = online & _group(
        root, topology, ("core_cpus_list", "core_cpus", "thread_siblings_list", "thread_siblings")
    )
    package = read_non_negative(root, f"{topology}/physical_package_id")
    if package is None:
        mates = _group(root, topology, ("package_cpus_list", "package_cpus", "core_siblings_list", "core_siblings"))
        package = min(online & mates, default=None)
    return Cpu(
        cpu,
        core=min(siblings, default=None),
        package=package,
        numa_node=node_of.get(cpu),
        online=True,
        siblings=format_cpu_list(siblings),
        capacity=capacity,
    )


class _Node(Struct):
    id: int
    online: frozenset[int]
    memory_bytes: int | None
    distances: list[int]


def _numa_nodes(root: Path, online: frozenset[int]) -> list[_Node]:
    ids = list_numbered(root, _NODE, "node")
    if not ids:
        return [_Node(0, online, _memory_bytes(root, "proc/meminfo"), [])] if online else []
    kept: list[_Node] = []
    merged: set[int] = set()
    for node_id in ids:
        folder = f"{_NODE}/node{node_id}"
        cpus = online & _group(root, folder, ("cpulist", "cpumap"))
        distances = value_or_none(_distances, root, f"{folder}/distance") or []
        node = _Node(node_id, cpus, _memory_bytes(root, f"{folder}/meminfo"), distances)
        if same := next((other for other in kept if other.online & cpus), None):
            same.online |= cpus
            same.memory_bytes = (same.memory_bytes or 0) + (node.memory_bytes or 0) or None
            merged.add(node_id)
        else:
            kept.append(node)
    for node in kept:
        if len(node.distances) == len(ids):
            node.distances = [d for d, i in zip(node.distances, ids, strict=True) if i not in merged]
        else:  # the file counts nodes that are not shown, so nothing tells which figure belongs to which
            node.distances = []
    return [node for node in kept if node.online or node.memory_bytes]


def _distances(root: Path, path: str) -> list[int]:
    text = read_text(root, path) or ""
    parts = text.split()
    if not all(_DISTANCE.match(part) for part in parts):
        raise ParseError(path, 1, f"“{text[:40]}” is not a row of numbers.")
    return [int(part) for part in parts]


def _memory_bytes(root: Path, path: str) -> int | None:
    found = _MEM_TOTAL.search(read_bytes(root, path) or b"")
    return None if found is None else int(found[1]) * 1024


def _caches(root: Path, online: frozenset[int]) -> list[Cache]:
    """Return each cache once, with the CPUs that share it; skip masks that overlap an earlier one (firmware error)."""
    found: list[Cache] = []
    served: dict[tuple[int, str], frozenset[int]] = {}
    for cpu in sorted(online):
        folder = f"{_CPU}/cpu{cpu}/cache"
        for index in names(root, folder):
            if not index.startswith("index"):
                continue
            level = read_non_negative(root, f"{folder}/{index}/level")
            kind = read_text(root, f"{folder}/{index}/type")
            # the mask is older than the list and every tree has it
            cpus = online & _group(root, f"{folder}/{index}", ("shared_cpu_map", "shared_cpu_list"))
            if level is None or not kind or not cpus or cpus & served.get((level, kind), frozenset()):
                continue
            served[level, kind] = served.get((level, kind), frozenset()) | cpus
            path = f"{folder}/{index}/size"
            size = value_or_none(parse_size, read_text(root, path), path)
            found.append(Cache(level, kind, size, format_cpu_list(cpus)))
    return sorted(found, key=lambda cache: (cache.level, cache.type))


def parse_size(text: str | None, path: str) -> int | None:
    """Parse a cache size such as ``1280K`` into bytes; None for 0, which means unknown. Raises ParseError."""
    if not text:
        return None
    match = _SIZE.match(text)
    if match is None:
        raise ParseError(path, 1, f"“{text[:40]}” is not a size such as 512K.")
    return int(match[1]) * _UNITS[match[2]] or None
