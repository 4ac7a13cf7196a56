"""Roll-ups: sums, maxima and means over a minute or an hour of samples. Pure."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from operator import attrgetter

import msgspec
import numpy as np

from coresteer.telemetry.byte_columns import U8, compress, decompress
from coresteer.telemetry.chunks import netdev_values, start_ms
from coresteer_core.metrics import SCALAR_SOURCES, Source
from coresteer_core.node.metric_values import Counted
from coresteer_core.node.rates import (
    ABSENT_SHARE,
    ABSENT_U32,
    CPU_SHARES,
    FIRST_LABEL_ID,
    SHARES_PER_UNIT,
    NetdevCounts,
    Rates,
)

MINUTE_MS = 60_000
NETDEV_FIELDS = NetdevCounts.__struct_fields__[1:]
"""The counters of a netdev, in the order of Rollup.netdevs and of chunks."""
CPU_SECONDS = {kind: f"cpu_{kind}_s" for kind in ("busy", "user", "system", "irq", "softirq")}
"""By kind of CPU time, its field in Rollup.amounts: the sum over the CPUs, of which the rounded means of CPUs that are
almost idle have nothing."""


@dataclass(frozen=True)
class Rollup:
    """A roll-up of samples over at most a minute or an hour.

    peaks, means: CPU_SHARES × CPUs in units of 0.5 %, ABSENT_SHARE where unknown. netdevs: name → the eight sums of
    NetdevCounts. amounts: by field of coresteer_core.metrics.SCALAR_SOURCES, the sum of increments and the maximum of
    levels, and CPU_SECONDS, without those that no sample has.
    """

    start_ms: int
    end_ms: int
    first_seq: int
    samples: int
    duration_s: float
    cpus: int
    peaks: U8
    means: U8
    netdevs: dict[str, list[int]]
    amounts: dict[str, float]

    def amount(self, source: Source, counted: Counted) -> float | None:
        """Return the amount of a metric's source, None where unknown. counted: whether a netdev's traffic counts."""
        if source.kind != "netdev":
            return self.amounts.get(source.field)
        row = NETDEV_FIELDS.index(source.field)
        chosen = [sums[row] for name, sums in self.netdevs.items() if counted(name)]
        return sum(chosen) if chosen else None


def minute_rollups(samples: Sequence[Rates]) -> list[Rollup]:
    """Return a roll-up for each minute in which samples began; all samples have the same number of CPUs."""
    groups: dict[int, list[Rates]] = defaultdict(list)
    for rates in samples:
        groups[start_ms(rates) // MINUTE_MS].append(rates)
    return [_minute(group) for group in groups.values()]


def _minute(samples: list[Rates]) -> Rollup:
    cpus = samples[0].cpus
    blank = bytes([ABSENT_SHARE]) * cpus
    raw = b"".join([rates.shares.get(name) or blank for name in CPU_SHARES for rates in samples])
    shares = np.frombuffer(raw, np.uint8).reshape(len(CPU_SHARES), len(samples), cpus)
    netdevs: dict[str, list[int]] = {}
    for rates in samples:
        for netdev in rates.netdevs or ():
            values = netdev_values(netdev)
            if (sums := netdevs.get(netdev.name)) is None:
                netdevs[netdev.name] = list(values)
            else:
                for position, value in enumerate(values):
                    sums[position] += value
    return Rollup(
        start_ms=min(start_ms(rates) for rates in samples),
        end_ms=max(rates.time_ms for rates in samples),
        first_seq=samples[0].seq,
        samples=len(samples),
        duration_s=sum(rates.duration_s for rates in samples),
        cpus=cpus,
        peaks=_peaks(shares),
        means=_means(shares),
        netdevs=netdevs,
        amounts=_amounts(samples) | _cpu_seconds(shares, [rates.duration_s for rates in samples]),
    )


def _cpu_seconds(shares: U8, durations_s: Sequence[float]) -> dict[str, float]:
    """Return the seconds of CPU time of each kind that is known. shares: CPU_SHARES × samples × CPUs."""
    known = shares != ABSENT_SHARE
    per_s = (shares * known).sum(axis=2, dtype=np.uint32) @ np.array(durations_s) / SHARES_PER_UNIT
    rows = {field: CPU_SHARES.index(kind) for kind, field in CPU_SECONDS.items()}
    return {field: round(float(per_s[row]), 6) for field, row in rows.items() if known[row].any()}


_TCP = {field: attrgetter(field) for field, source in SCALAR_SOURCES.items() if source.kind == "tcp"}
_AGENT = {field: attrgetter(field) for field, source in SCALAR_SOURCES.items() if source.kind == "agent"}


def _amounts(samples: Sequence[Rates]) -> dict[str, float]:
    latencies = [rates.tcp for rates in samples if rates.tcp is not None]
    counters = [rates.counters for rates in samples]
    found: dict[str, float | None] = {}
    for field, source in SCALAR_SOURCES.items():
        match source.kind:
            case "cpu":
                found[field] = sum_u32(_joined([rates.counts.get(source.column) for rates in samples]))
            case "irq":
                found[field] = _interrupts([rates for rates in samples if rates.irq_ids is not None])
            case "tcp":
                found[field] = _rolled_up(source, [*map(_TCP[field], latencies)])
            case "counter":
                found[field] = _rolled_up(source, [each[field] for each in counters if field in each])
            case _:
                found[field] = _rolled_up(source, [value for value in map(_AGENT[field], samples) if value is not None])
    return {field: amount for field, amount in found.items() if amount is not None}


def _rolled_up(source: Source, known: Sequence[float]) -> float | None:
    if not known:
        return None
    return max(known) if source.level else sum(known)


def merge_rollups(parts: Sequence[Rollup]) -> Rollup:
    """Return one roll-up of several (at least one); cpus is the largest of theirs."""
    cpus = max(part.cpus for part in parts)
    netdevs: dict[str, list[int]] = {}
    for part in parts:
        for name, values in part.netdevs.items():
            sums = netdevs.get(name, [0] * len(values))
            netdevs[name] = [a + b for a, b in zip(sums, values, strict=True)]

    def stacked(arrays: list[U8]) -> U8:
        padded = np.full((len(CPU_SHARES), len(arrays), cpus), ABSENT_SHARE, np.uint8)
        for position, array in enumerate(arrays):
            padded[:, position, : array.shape[1]] = array
        return padded

    return Rollup(
        start_ms=min(part.start_ms for part in parts),
        end_ms=max(part.end_ms for part in parts),
        first_seq=parts[0].first_seq,
        samples=sum(part.samples for part in parts),
        duration_s=sum(part.duration_s for part in parts),
        cpus=cpus,
        peaks=_peaks(stacked([part.peaks for part in parts])),
        means=_means(stacked([part.means for part in parts]), np.array([part.duration_s for part in parts])),
        netdevs=netdevs,
        amounts={
            field: amount
            for field, source in SCALAR_SOURCES.items()
            if (amount := _rolled_up(source, [part.amounts[field] for part in parts if field in part.amounts]))
            is not None
        }
        | {
            field: sum(part.amounts[field] for part in parts)
            for field in CPU_SECONDS.values()
            if all(field in part.amounts for part in parts)
        },
    )


def _peaks(shares: U8) -> U8:
    """Return the maximum over the middle axis; adding one in a byte makes ABSENT_SHARE the smallest value."""
    peaks: U8 = (shares + np.uint8(1)).max(axis=1) - np.uint8(1)
    return peaks


def _means(shares: U8, weights: np.ndarray[tuple[int], np.dtype[np.float64]] | None = None) -> U8:
    """Return the mean over the middle axis, weighted along it; None for equal weights, in integers, which is faster."""
    known = shares != ABSENT_SHARE
    if weights is None:
        total, weighed = known.sum(axis=1, dtype=np.uint32), (shares * known).sum(axis=1, dtype=np.uint32)
    else:
        weight = known * weights[None, :, None]
        total, weighed = weight.sum(axis=1), (shares * weight).sum(axis=1)
    means: U8 = np.where(total > 0, np.rint(weighed / np.where(total > 0, total, 1)), ABSENT_SHARE).astype(np.uint8)
    return means


def _joined(columns: Sequence[bytes | None]) -> bytes:
    return b"".join([column for column in columns if column is not None])


def sum_u32(column: bytes | None) -> int | None:
    """Return the sum of a u32 column, None where no value is known."""
    if column is None:
        return None
    values = np.frombuffer(column, "<u4")
    known = values[values != ABSENT_U32]
    return int(known.sum(dtype=np.int64)) if known.size else None


def _interrupts(samples: Sequence[Rates]) -> int | None:
    """Return the numbered device interrupts of samples that have cells; None for no samples."""
    if not samples:
        return None
    numbered = np.frombuffer(_joined([rates.irq_ids for rates in samples]), "<u4") < FIRST_LABEL_ID
    return int(np.frombuffer(_joined([rates.irq_counts for rates in samples]), "<u4")[numbered].sum(dtype=np.int64))


def pack_shares(rollup: Rollup) -> bytes:
    """Return a roll-up's peaks and means as a compressed column."""
    return compress(rollup.peaks.tobytes() + rollup.means.tobytes())


def unpack_shares(packed: bytes, cpus: int) -> U8:
    """Return the peaks and means that pack_shares packed: 2 × CPU_SHARES × CPUs."""
    return np.frombuffer(decompress(packed), np.uint8).reshape(2, len(CPU_SHARES), cpus)


def pack_netdevs(rollup: Rollup) -> bytes:
    """Return a roll-up's netdevs as a compressed column."""
    return compress(msgspec.msgpack.encode(rollup.netdevs))


def unpack_netdevs(packed: bytes) -> dict[str, list[int]]:
    """Return the netdevs that pack_netdevs packed: name → the eight sums of NetdevCounts."""
    return msgspec.msgpack.decode(decompress(packed), type=dict[str, list[int]])
