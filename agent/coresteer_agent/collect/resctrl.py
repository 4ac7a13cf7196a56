"""Memory bandwidth monitoring of resctrl, only read (kernel: Documentation/filesystems/resctrl.rst).

A control group's figures include those of its monitoring groups. The counters are bytes since the group was created.
"""

from pathlib import Path

from msgspec import Struct

from coresteer_agent.collect.files import DIGITS, list_numbered, names, read_bytes, read_non_negative
from coresteer_core.cpuset import parse_cpu_list
from coresteer_core.node.topology import Topology

FOLDER = "sys/fs/resctrl"
_RESERVED = frozenset({"info", "mon_data", "mon_groups"})
_COUNTERS = (b"mbm_local_bytes", b"mbm_total_bytes")
_CPU = "sys/devices/system/cpu"


class Traffic(Struct, frozen=True):
    """Bytes that the CPUs of an L3 cache transferred: from and to the memory of their own node, and of all nodes."""

    local: int
    total: int


class Groups(Struct, frozen=True):
    """Folders of groups. control: the default group first; each task is in one. monitoring: within a control group."""

    control: list[str]
    monitoring: list[str]


def parse_counter(text: bytes | None) -> int | None:
    """Parse a counter of mon_data; None for ``Unavailable``, ``Unassigned`` and ``Error``."""
    text = (text or b"").strip()
    return int(text) if text.isdigit() and len(text) <= DIGITS else None


def parse_tasks(text: bytes) -> frozenset[int]:
    """Parse a group's tasks file: one thread id a line."""
    return frozenset(int(line) for line in text.split() if line.isdigit() and len(line) <= DIGITS)


def why_unmonitored(root: Path) -> str | None:
    """Return why resctrl does not show memory bandwidth, as a sentence; None where it does."""
    if not names(root, FOLDER):
        return "resctrl is not mounted, or this machine does not have it."
    features = (read_bytes(root, f"{FOLDER}/info/L3_MON/mon_features") or b"").split()
    if not set(_COUNTERS) <= set(features):
        return "resctrl of this machine does not monitor memory bandwidth."
    return None


def list_groups(root: Path) -> Groups:
    """Return the folders of all groups that have counters."""
    own = [f"{FOLDER}/{name}" for name in names(root, FOLDER) if name not in _RESERVED]
    control = [FOLDER, *(folder for folder in own if names(root, f"{folder}/mon_data"))]
    monitoring = [f"{each}/mon_groups/{name}" for each in control for name in names(root, f"{each}/mon_groups")]
    return Groups(control, monitoring)


def read_group_tasks(root: Path, group: str) -> frozenset[int]:
    """Return the ids of a group's threads."""
    return parse_tasks(read_bytes(root, f"{group}/tasks") or b"")


def read_group_traffic(root: Path, group: str) -> dict[int, Traffic | None]:
    """Return a group's traffic by the id of the L3 cache, None where it cannot be read at the moment."""
    found: dict[int, Traffic | None] = {}
    for cache in list_numbered(root, f"{group}/mon_data", "mon_L3_"):
        folder = f"{group}/mon_data/mon_L3_{cache:02d}"
        local, total = (parse_counter(read_bytes(root, f"{folder}/{name.decode()}")) for name in _COUNTERS)
        found[cache] = None if local is None or total is None else Traffic(local, total)
    return found


def read_l3_nodes(root: Path, topology: Topology) -> dict[int, int | None]:
    """Return the NUMA node of each L3 cache by its id, None where it serves several nodes."""
    found: dict[int, int | None] = {}
    for cache in topology.caches:
        if cache.level != 3:
            continue
        cpus = parse_cpu_list(cache.cpus)
        folder = f"{_CPU}/cpu{min(cpus)}/cache"
        for index in list_numbered(root, folder, "index"):
            if read_non_negative(root, f"{folder}/index{index}/level") == 3:
                number = read_non_negative(root, f"{folder}/index{index}/id")
                nodes = {topology.nodes.get(cpu) for cpu in cpus}
                if number is not None:
                    found[number] = nodes.pop() if len(nodes) == 1 else None
    return found
