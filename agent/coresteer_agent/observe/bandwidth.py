"""Memory traffic by NUMA node and process: resctrl's counters where it has them, else performance counters."""

import time
from collections.abc import Sequence
from pathlib import Path

from msgspec import Struct

from coresteer_agent.collect.files import list_numbered
from coresteer_agent.collect.resctrl import (
    Traffic,
    list_groups,
    read_group_tasks,
    read_group_traffic,
    read_l3_nodes,
    why_unmonitored,
)
from coresteer_agent.observe.process_counters import MISSES, STALLS, ProcessCounters
from coresteer_core.node.numa import NumaTask
from coresteer_core.node.topology import Topology

MAX_CONTROL_GROUPS = 16
MAX_PROCESS_GROUPS = 32
"""Groups that are read each round; a read of one counter takes about 10 µs."""
_NOT_YET = "Memory traffic has been read only once yet."
_NO_GROUP = "No process has a resctrl monitoring group of its own."


class TrafficRate(Struct, frozen=True):
    """Bytes per second that the CPUs of a NUMA node transfer, with its own memory and with that of other nodes."""

    local: float
    remote: float


class Bandwidth(Struct, frozen=True):
    """Memory traffic of one round, without what is unknown. nodes: by NUMA node; bytes_per_s, memory_bound: by PID.

    traffic_unknown: why nodes is empty. unknown: why the contention of processes cannot be computed.
    """

    nodes: dict[int, TrafficRate] = {}
    bytes_per_s: dict[int, float] = {}
    memory_bound: dict[int, float] = {}
    traffic_unknown: str | None = None
    unknown: str | None = None


class _Reading(Struct, frozen=True):
    """One read of resctrl. owners: (PID, start time) of the only process in a group, by the group."""

    read_s: float
    control: dict[str, dict[int, Traffic | None]] = {}
    own: dict[str, dict[int, Traffic | None]] = {}
    owners: dict[str, tuple[int, int]] = {}


class BandwidthReader:
    """Reads memory traffic. It creates no resctrl groups: that would be a change of the machine. Not thread-safe."""

    def __init__(self, root: Path, counters: ProcessCounters | None = None) -> None:
        self._root = root
        self._counters = counters or ProcessCounters(root)
        self._before: _Reading | None = None

    def read(self, tasks: Sequence[NumaTask], topology: Topology) -> Bandwidth:
        """Return the traffic since the last read."""
        traffic_unknown, nodes, by_group = self._read_resctrl(tasks, topology)
        counted = self._counters.read(tasks)
        by_counter = {pid: each.bytes_per_s for pid, each in counted.items() if each.bytes_per_s is not None}
        return Bandwidth(
            nodes,
            by_counter | by_group,
            {pid: each.memory_bound for pid, each in counted.items() if each.memory_bound is not None},
            traffic_unknown,
            self._why_unknown(why_unmonitored(self._root) or _NO_GROUP, has_groups=bool(by_group)),
        )

    def close(self) -> None:
        """Close the performance counters."""
        self._counters.close()

    def _why_unknown(self, resctrl: str, *, has_groups: bool) -> str | None:
        counters = self._counters
        missing = [name for name in (MISSES, STALLS) if name in counters.absent]
        if has_groups:
            missing = [name for name in missing if name != MISSES]
        if counters.refused is None and not missing:
            return None
        why = counters.refused or f"This machine's performance counters do not count {' and '.join(missing)}."
        return why if has_groups else f"{resctrl} {why}"

    def _read_resctrl(
        self, tasks: Sequence[NumaTask], topology: Topology
    ) -> tuple[str | None, dict[int, TrafficRate], dict[int, float]]:
        before, self._before = self._before, None
        if (why := why_unmonitored(self._root)) is not None:
            return why, {}, {}
        groups = list_groups(self._root)
        if len(groups.control) > MAX_CONTROL_GROUPS:
            return f"resctrl has {len(groups.control)} control groups, more than are read.", {}, {}
        owners = self._owners([*groups.control[1:], *groups.monitoring], tasks)
        control = {group: read_group_traffic(self._root, group) for group in groups.control}
        own = {group: control.get(group) or read_group_traffic(self._root, group) for group in owners}
        self._before = now = _Reading(time.monotonic(), control, own, owners)
        if before is None or now.read_s <= before.read_s:
            return _NOT_YET, {}, {}
        seconds = now.read_s - before.read_s
        by_process = {
            pid: total / seconds
            for group, (pid, ticks) in owners.items()
            if before.owners.get(group) == (pid, ticks) and (total := _total(before.own[group], own[group])) is not None
        }
        by_cache = traffic_by_cache(before.control, control)
        l3_nodes = read_l3_nodes(self._root, topology)
        if any(l3_nodes.get(cache) is None for cache in by_cache):
            shared = "An L3 cache serves several NUMA nodes, so resctrl does not tell their traffic apart."
            return shared, {}, by_process
        nodes = traffic_by_node(by_cache, l3_nodes, seconds)
        return None if nodes else "resctrl's counters are unavailable at the moment.", nodes, by_process

    def _owners(self, groups: Sequence[str], tasks: Sequence[NumaTask]) -> dict[str, tuple[int, int]]:
        """Return the groups that have all threads of one process and no other, with that process."""
        by_pid = {task.pid: task for task in tasks}
        found = {}
        for group in groups[:MAX_PROCESS_GROUPS]:
            threads = read_group_tasks(self._root, group)
            leaders = [pid for pid in threads if pid in by_pid]
            if len(leaders) == 1 and threads == set(list_numbered(self._root, f"proc/{leaders[0]}/task", "")):
                found[group] = (leaders[0], by_pid[leaders[0]].started_ticks)
        return found


def traffic_by_cache(
    before: dict[str, dict[int, Traffic | None]], now: dict[str, dict[int, Traffic | None]]
) -> dict[int, Traffic | None]:
    """Return the bytes between two reads by L3 cache, over all groups; None where a group's counter is unavailable.

    A group that was created in the meantime began with 0.
    """
    found: dict[int, Traffic | None] = {}
    for group, caches in now.items():
        for cache, traffic in caches.items():
            was = before.get(group, {}).get(cache, Traffic(0, 0))
            sum_ = found.get(cache, Traffic(0, 0))
            if traffic is None or was is None or sum_ is None:
                found[cache] = None
                continue
            # a group that was removed and created again counts from 0, too
            again = traffic.total < was.total or traffic.local < was.local
            more = traffic if again else Traffic(traffic.local - was.local, traffic.total - was.total)
            found[cache] = Traffic(sum_.local + more.local, sum_.total + more.total)
    return found


def traffic_by_node(
    by_cache: dict[int, Traffic | None], l3_nodes: dict[int, int | None], seconds: float
) -> dict[int, TrafficRate]:
    """Return the traffic of each NUMA node's CPUs, without nodes of which a cache is unknown."""
    found: dict[int, TrafficRate] = {}
    unknown = {l3_nodes.get(cache) for cache, traffic in by_cache.items() if traffic is None}
    for cache, traffic in by_cache.items():
        node = l3_nodes.get(cache)
        if traffic is None or node is None or node in unknown:
            continue
        sum_ = found.get(node, TrafficRate(0.0, 0.0))
        remote = max(0, traffic.total - traffic.local)  # the two counters are read one after the other
        found[node] = TrafficRate(sum_.local + traffic.local / seconds, sum_.remote + remote / seconds)
    return found


def _total(before: dict[int, Traffic | None], now: dict[int, Traffic | None]) -> int | None:
    """Return the bytes of one group over all caches."""
    by_cache = traffic_by_cache({"": before}, {"": now})
    totals = [None if traffic is None else traffic.total for traffic in by_cache.values()]
    return None if not totals or None in totals else sum(total for total in totals if total is not None)
