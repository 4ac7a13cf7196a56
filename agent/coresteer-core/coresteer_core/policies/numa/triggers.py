"""When the scheduler runs (Lim, Eom, 2016, reporter): unbalanced load, changed behavior, or an idle powerful core.

The paper names the three triggers; the thresholds are ours.
"""

from collections.abc import Mapping, Sequence

from msgspec import Struct

from coresteer_core.node.numa import NodeMemory, NumaTask
from coresteer_core.settings.base import format_cpus

MIN_CPU_CHANGE = 0.2
MIN_BANDWIDTH_CHANGE = 200e6
"""Changes below these (CPUs, bytes/s) do not count, however large in relation."""
PAGE_SHARE_CHANGE = 0.1
IDLE_LOAD = 0.2
"""A core is idle up to this load."""


class Behavior(Struct, frozen=True, array_like=True, gc=False):
    """A process at the last decision. page_shares: by NUMA node, None where unknown."""

    pid: int
    started_ticks: int
    cpu_share: float
    bytes_per_s: float | None
    page_shares: dict[int, float] | None


def behavior_of(task: NumaTask) -> Behavior:
    """Return what later rounds compare a process with."""
    return Behavior(task.pid, task.started_ticks, task.cpu_share, task.bytes_per_s, _page_shares(task))


def _page_shares(task: NumaTask) -> dict[int, float] | None:
    sizes = task.bytes_by_node
    total = sum(sizes.values()) if sizes else 0
    return {node: size / total for node, size in sizes.items()} if sizes and total else None


def unbalanced(loads: Mapping[int, float], memory: Sequence[NodeMemory], gap: float) -> str | None:
    """Return the sentence of the first trigger, None where load and memory are balanced. loads: 0.0 to 1.0 by node."""
    used = {
        each.node: 1.0 - each.free_bytes / each.total_bytes
        for each in memory
        if each.total_bytes and each.free_bytes is not None
    }
    for what, shares in (("CPUs are {:.0%} busy", loads), ("memory is {:.0%} used", used)):
        if len(shares) < 2:
            continue
        most, least = max(shares, key=lambda n: shares[n]), min(shares, key=lambda n: shares[n])
        if shares[most] - shares[least] > gap:
            return f"node {most}'s {what.format(shares[most])}, node {least}'s {shares[least]:.0%}"
    return None


def changed_behavior(tasks: Sequence[NumaTask], before: Mapping[int, Behavior], change: float) -> str | None:
    """Return the sentence of the second trigger, None where no process started, ended or changed. before: by PID."""
    now = {task.pid: task for task in tasks}
    started = [t for t in tasks if (was := before.get(t.pid)) is None or was.started_ticks != t.started_ticks]
    ended = before.keys() - now.keys()
    changed = [task for task in tasks if (was := before.get(task.pid)) is not None and _differs(task, was, change)]
    parts = [
        f"{len(found)} processes {what}" if len(found) > 1 else f"1 process {what}"
        for found, what in ((started, "started"), (ended, "ended"), (changed, "changed behavior"))
        if found
    ]
    return ", ".join(parts) or None


def _differs(task: NumaTask, was: Behavior, change: float) -> bool:
    if _moved(task.cpu_share, was.cpu_share, change, MIN_CPU_CHANGE):
        return True
    known = task.bytes_per_s is not None and was.bytes_per_s is not None
    if known and _moved(task.bytes_per_s or 0.0, was.bytes_per_s or 0.0, change, MIN_BANDWIDTH_CHANGE):
        return True
    shares, earlier = _page_shares(task), was.page_shares
    if shares is None or earlier is None:
        return shares is not None
    nodes = shares.keys() | earlier.keys()
    return any(abs(shares.get(node, 0.0) - earlier.get(node, 0.0)) > PAGE_SHARE_CHANGE for node in nodes)


def _moved(now: float, before: float, change: float, floor: float) -> bool:
    return abs(now - before) > max(floor, change * before)


def idle_powerful_core(cores: Mapping[int, Sequence[frozenset[int]]], busy: Sequence[float | None]) -> str | None:
    """Return the sentence of the third trigger, None where no core is idle.

    cores: whole usable cores by the NUMA node to which at least one process would gain by moving.
    """
    for node, threads in sorted(cores.items()):
        for core in threads:
            loads = [busy[cpu] if cpu < len(busy) else None for cpu in core]
            known = [load for load in loads if load is not None]
            if len(known) == len(loads) and max(known) <= IDLE_LOAD:
                return (
                    f"{format_cpus(core)} of node {node} are idle"
                    if len(core) > 1
                    else f"{format_cpus(core)} of node {node} is idle"
                )
    return None
