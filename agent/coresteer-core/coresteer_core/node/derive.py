"""Derive Rates from two Samples: the only place that handles wraparound, reset and hot-plug of counters.

Counters of interrupts, softirqs and softnet are 32 bits wide in the kernel and wrap; those of
netdevs and TCP are 64 bits wide and do not. A counter that decreased, or increased faster than any
machine counts, was reset or replaced: its increment is unknown.
"""

import sys
from array import array
from collections.abc import Mapping
from itertools import compress
from operator import ne
from typing import TYPE_CHECKING, TypeAlias

from msgspec import Struct

from coresteer_core.node.rates import (
    ABSENT_SHARE,
    ABSENT_U32,
    CPU_COUNTS,
    CPU_SHARES,
    SHARES_PER_UNIT,
    SOFTIRQ_COUNTS,
    SOFTNET_COUNTS,
    NetdevCounts,
    Rates,
    TcpLatency,
    encode_irq_id,
)

if TYPE_CHECKING:
    Counters: TypeAlias = array[int]
else:
    Counters = array  # which became a generic class with Python 3.12 only
CpuTimes: TypeAlias = tuple[int, ...]
"""user, nice, system, idle, iowait, irq, softirq, steal in ticks since boot."""
SoftnetCounts: TypeAlias = tuple[int, int, int]
"""processed, dropped, time_squeeze since boot, each modulo 2^32."""
NetdevTotals: TypeAlias = tuple[int, int, int, int, int, int, int, int]
"""The fields of NetdevCounts after the name, in their order: totals since the device was created."""


class CounterTable(Struct, frozen=True):
    """Counters of /proc/interrupts or /proc/softirqs by row label and CPU.

    cpus: the CPU of each column. rows: by label, one u32 counter for each column. moved: where known, by label, an
    earlier state of a row and the one column in which the two differ, so that no others have to be compared.

    A row that did not change since the previous table may be the same object there.
    """

    cpus: tuple[int, ...]
    rows: dict[str, Counters]
    moved: dict[str, tuple[Counters, int]] = {}


class AgentUsage(Struct, frozen=True):
    """The CPU time that the agent used since it started, and its resident memory."""

    cpu_s: float
    rss_bytes: int


class Sample(Struct, frozen=True):
    """Raw counters read at one moment; None is a source that could not be read.

    time_ms: Unix time, may step. monotonic_s: the clock that durations are taken from.
    cpus: one more than the highest CPU number that is present. counters: totals since boot by name
    (coresteer_core.metrics.COUNTER_SOURCES), without those that could not be read.
    """

    time_ms: int
    monotonic_s: float
    cpus: int
    times: dict[int, CpuTimes] | None
    interrupts: CounterTable | None
    softirqs: CounterTable | None
    softnet: dict[int, SoftnetCounts] | None
    netdevs: dict[str, NetdevTotals] | None
    tcp: TcpLatency | None
    self_usage: AgentUsage | None
    counters: dict[str, int] = {}


_WRAP = 1 << 32
_PLAUSIBLE_PER_S = 50_000_000
"""More softirqs, interrupts or packets than one CPU handles in a second: each takes more than 20 ns."""

_PLAUSIBLE_NETDEV_PER_S = 1 << 40
"""More than a netdev counts in a second: twenty times the bytes of a 400 Gbit/s port."""


def derive_rates(previous: Sample, current: Sample, seq: int) -> Rates:
    """Return the increments of a node's counters between two samples, the earlier first.

    A CPU, netdev or column that is in only one of them is unknown for the interval, not 0. A new
    interrupt counts from 0, as in the kernel. When no time passed between the samples, or they are in the
    wrong order, duration_s is 0.0 and all else is unknown; such Rates are not to be sent.
    """
    duration_s = current.monotonic_s - previous.monotonic_s
    cpus = max(previous.cpus, current.cpus)
    if duration_s <= 0:
        return _unknown(current, seq, cpus)
    plausible = min(int(max(duration_s, 1.0) * _PLAUSIBLE_PER_S), _WRAP // 2)
    ids, id_cpus, counts = _cells(previous.interrupts, current.interrupts, plausible)
    return Rates(
        seq=seq,
        time_ms=current.time_ms,
        duration_s=duration_s,
        cpus=cpus,
        shares=_shares(previous.times, current.times, cpus),
        counts=_softirqs(previous.softirqs, current.softirqs, cpus, plausible)
        | _softnet(previous.softnet, current.softnet, cpus, plausible),
        irq_ids=ids,
        irq_cpus=id_cpus,
        irq_counts=counts,
        netdevs=_netdevs(previous.netdevs, current.netdevs, duration_s),
        tcp=current.tcp,
        agent_cpu_s=_agent_cpu(previous.self_usage, current.self_usage),
        agent_rss_bytes=None if current.self_usage is None else current.self_usage.rss_bytes,
        counters=_counters(previous.counters, current.counters, duration_s),
    )


def _unknown(current: Sample, seq: int, cpus: int) -> Rates:
    return Rates(
        seq=seq,
        time_ms=current.time_ms,
        duration_s=0.0,
        cpus=cpus,
        shares=dict.fromkeys(CPU_SHARES),
        counts=dict.fromkeys(CPU_COUNTS),
        irq_ids=None,
        irq_cpus=None,
        irq_counts=None,
        netdevs=None,
        tcp=None,
        agent_cpu_s=None,
        agent_rss_bytes=None,
    )


def _little_endian(column: Counters) -> bytes:
    if sys.byteorder == "big":
        column.byteswap()
    return column.tobytes()


def _shares(
    previous: Mapping[int, CpuTimes] | None, current: Mapping[int, CpuTimes] | None, cpus: int
) -> dict[str, bytes | None]:
    if previous is None or current is None:
        return dict.fromkeys(CPU_SHARES)
    columns = [bytearray([ABSENT_SHARE]) * cpus for _ in CPU_SHARES]
    for cpu, now in current.items():
        before = previous.get(cpu)
        if before is None or cpu >= cpus or sum(now) <= sum(before):
            continue
        # idle and iowait may decrease by a tick (proc(5)); no share becomes negative when another one does
        user, nice, system, idle, iowait, irq, softirq, steal = [
            b - a if b > a else 0 for a, b in zip(before, now, strict=True)
        ]
        user += nice
        busy = user + system + irq + softirq + steal
        total = busy + idle + iowait
        for column, ticks in zip(columns, (busy, user, system, irq, softirq, steal, iowait), strict=True):
            column[cpu] = (2 * SHARES_PER_UNIT * ticks + total) // (2 * total)
    return {name: bytes(column) for name, column in zip(CPU_SHARES, columns, strict=True)}


def _increment(before: int, now: int, plausible: int) -> int | None:
    """Return how much a 32-bit counter increased, across a wraparound; None when it was reset."""
    moved = (now - before) % _WRAP
    return moved if moved <= plausible else None


def _before(previous: CounterTable, current: CounterTable, label: str) -> Counters:
    """Return the previous counters of a row in the order of the current columns.

    A missing row counts 0, because the kernel omits interrupts that never occurred. A missing column has
    the current counters, so that its increments are 0: a CPU that comes back online continues counting
    from where it stopped.
    """
    row = previous.rows.get(label)
    if row is None:
        row = array("I", bytes(4 * len(previous.cpus)))
    if previous.cpus == current.cpus:
        return row
    was = dict(zip(previous.cpus, row, strict=True))
    return array("I", [was.get(cpu, now) for cpu, now in zip(current.cpus, current.rows[label], strict=True)])


def _softirqs(
    previous: CounterTable | None, current: CounterTable | None, cpus: int, plausible: int
) -> dict[str, bytes | None]:
    if previous is None or current is None:
        return dict.fromkeys(SOFTIRQ_COUNTS)
    sums = {name: [0] * len(current.cpus) for name in SOFTIRQ_COUNTS}
    same_columns = previous.cpus == current.cpus
    for label, now in current.rows.items():
        if previous.rows.get(label) is now and same_columns:
            continue
        name = {"NET_RX": "net_rx", "NET_TX": "net_tx"}.get(label, "softirq_other")
        before = _before(previous, current, label)
        sums[name] = [s + (b - a) % _WRAP for s, a, b in zip(sums[name], before, now, strict=True)]
    known = frozenset(previous.cpus)
    columns: dict[str, bytes | None] = {}
    for name, moved in sums.items():
        column = array("I", [ABSENT_U32]) * cpus
        for cpu, count in zip(current.cpus, moved, strict=True):
            if count <= plausible and cpu in known and cpu < cpus:
                column[cpu] = count
        columns[name] = _little_endian(column)
    return columns


def _softnet(
    previous: Mapping[int, SoftnetCounts] | None,
    current: Mapping[int, SoftnetCounts] | None,
    cpus: int,
    plausible: int,
) -> dict[str, bytes | None]:
    if previous is None or current is None:
        return dict.fromkeys(SOFTNET_COUNTS)
    columns = [array("I", [ABSENT_U32]) * cpus for _ in SOFTNET_COUNTS]
    for cpu, now in current.items():
        before = previous.get(cpu)
        if before is None or cpu >= cpus:
            continue
        for column, a, b in zip(columns, before, now, strict=True):
            moved = _increment(a, b, plausible)
            if moved is not None:
                column[cpu] = moved
    return {name: _little_endian(column) for name, column in zip(SOFTNET_COUNTS, columns, strict=True)}


def _cells(
    previous: CounterTable | None, current: CounterTable | None, plausible: int
) -> tuple[bytes, bytes, bytes] | tuple[None, None, None]:
    """Return row id, CPU and increment of every cell of /proc/interrupts that changed."""
    if previous is None or current is None:
        return None, None, None
    ids, cpus, counts = list[int](), list[int](), list[int]()
    same_columns = previous.cpus == current.cpus
    for label, now in current.rows.items():
        was = previous.rows.get(label)
        if was is now and same_columns:
            continue
        irq_id = encode_irq_id(label)
        if irq_id is None:
            continue
        since, column = current.moved.get(label, (None, 0))
        if was is not None and was is since and same_columns:
            before, columns = was, iter((column,))
        else:
            before = _before(previous, current, label)
            columns = compress(range(len(now)), map(ne, before, now))
        for i in columns:
            moved = (now[i] - before[i]) % _WRAP
            if moved <= plausible:  # else it was reset
                ids.append(irq_id)
                cpus.append(current.cpus[i])
                counts.append(moved)
    return _little_endian(array("I", ids)), _little_endian(array("H", cpus)), _little_endian(array("I", counts))


def _netdevs(
    previous: Mapping[str, NetdevTotals] | None, current: Mapping[str, NetdevTotals] | None, duration_s: float
) -> list[NetdevCounts] | None:
    if previous is None or current is None:
        return None
    found = []
    for name, now in current.items():
        before = previous.get(name)
        if before is None:
            continue
        moved = [b - a for a, b in zip(before, now, strict=True)]
        if min(moved) >= 0 and max(moved) <= max(duration_s, 1.0) * _PLAUSIBLE_NETDEV_PER_S:
            found.append(NetdevCounts(name, *moved))
    return found


def _counters(previous: Mapping[str, int], current: Mapping[str, int], duration_s: float) -> dict[str, int]:
    """Return by name how much each 64-bit counter increased; counters that were reset are left out."""
    most = max(duration_s, 1.0) * _PLAUSIBLE_NETDEV_PER_S
    return {
        name: moved
        for name, now in current.items()
        if (before := previous.get(name)) is not None and 0 <= (moved := now - before) <= most
    }


def _agent_cpu(previous: AgentUsage | None, current: AgentUsage | None) -> float | None:
    if previous is None or current is None or current.cpu_s < previous.cpu_s:
        return None
    return current.cpu_s - previous.cpu_s
