"""Roll-ups: sums, maxima and means over a minute or an hour of samples. Pure."""

import itertools
import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec
import numpy as np
import numpy.typing as npt

from coresteer.telemetry.byte_columns import F64, I64, U8, U32, compress, decompress
from coresteer.telemetry.sample_columns import Flags, SampleColumns, columns_of
from coresteer_core.metrics import REPORT_METRICS, SCALAR_SOURCES, Source
from coresteer_core.node.metric_values import Counted
from coresteer_core.node.rates import (
    ABSENT_SHARE,
    CPU_COUNTS,
    CPU_SHARES,
    SHARES_PER_UNIT,
    Rates,
)
from coresteer_core.node.rates_block import NETDEV_FIELDS

MINUTE_MS = 60_000
MAX_SUM = 2**63 - 1
"""Sums are stored as at most this, the largest int8: a node may send counts near 2⁵³ all hour."""
CPU_SECONDS = {kind: f"cpu_{kind}_s" for kind in ("busy", "user", "system", "irq", "softirq", "steal")}
"""By kind of CPU time, its field in Rollup.amounts: the sum over the CPUs, of which the rounded means of CPUs that are
almost idle have nothing."""
LEVEL_INTEGRALS = {
    one.source.field: f"{one.source.field}_integral"
    for one in REPORT_METRICS.values()
    if one.source and one.source.level
}
"""By level that reports have, its field in Rollup.amounts: the sum of value × duration, from which its mean follows."""
_NETDEVS = "netdevs"
_COUNT_ROWS = {one.field: CPU_COUNTS.index(one.column) for one in SCALAR_SOURCES.values() if one.kind == "cpu"}
_CPU_ROWS = [CPU_SHARES.index(kind) for kind in CPU_SECONDS]


@dataclass(frozen=True)
class Rollup:
    """A roll-up of samples over at most a minute or an hour.

    peaks, means: CPU_SHARES × CPUs in units of 0.5 %, ABSENT_SHARE where unknown. netdevs: name → the eight sums of
    NetdevCounts. amounts: by field of coresteer_core.metrics.SCALAR_SOURCES, the sum of increments and the maximum of
    levels, CPU_SECONDS and LEVEL_INTEGRALS, without those that no sample has; and, of all but maxima and of netdevs,
    how long they are known where that is not all the time (known_s).
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

    def known_s(self, field: str) -> float:
        """Return the seconds of the samples that have a field of amounts or of netdevs; of older roll-ups, of all."""
        return self.amounts.get(_known_key(_NETDEVS if field in NETDEV_FIELDS else field), self.duration_s)


def minute_rollups(samples: Sequence[Rates]) -> list[Rollup]:
    """Return a roll-up for each minute in which samples began; all samples have the same number of CPUs."""
    return minutes_of_columns(columns_of(samples)) if samples else []


def minutes_of_columns(samples: SampleColumns) -> list[Rollup]:
    """Return a roll-up for each minute in which samples began, in the order in which the minutes appear."""
    minutes = (samples.starts_ms // MINUTE_MS).tolist()
    distinct = dict.fromkeys(minutes)
    if sorted(minutes) == minutes:  # else a clock was set
        runs = itertools.pairwise(bisect_left(minutes, minute) for minute in (*distinct, math.inf))
        return [_minute(samples, slice(*run)) for run in runs]
    return [_minute(samples, np.flatnonzero(np.equal(minutes, minute))) for minute in distinct]


def _minute(samples: SampleColumns, chosen: slice | npt.NDArray[np.intp]) -> Rollup:
    shares = samples.shares[:, chosen]
    durations_s = samples.durations_s[chosen]
    known = shares != ABSENT_SHARE
    valued = shares * known
    sums = valued.sum(axis=1, dtype=np.uint32)
    return Rollup(
        start_ms=int(samples.starts_ms[chosen].min()),
        end_ms=int(samples.times_ms[chosen].max()),
        first_seq=int(samples.seqs[chosen][0]),
        samples=len(durations_s),
        duration_s=float(durations_s.sum()),
        cpus=samples.cpus,
        peaks=_peaks(shares),
        means=_mean(sums, known.sum(axis=1, dtype=np.uint32)),
        netdevs=_netdevs(samples, chosen),
        amounts=_amounts(samples, chosen, durations_s)
        | _cpu_seconds(valued, known, durations_s)
        | _partly_known(samples, chosen, known[_CPU_ROWS].any(axis=2), durations_s),
    )


def _netdevs(samples: SampleColumns, chosen: slice | npt.NDArray[np.intp]) -> dict[str, list[int]]:
    present: list[bool] = samples.netdev_present[:, chosen].max(axis=1, initial=0).tolist()
    sums = samples.netdev_counts[:, :, chosen].sum(axis=2).tolist()
    return {name: row for name, row, there in zip(samples.netdevs, sums, present, strict=True) if there}


def _cpu_seconds(valued: U8, known: npt.NDArray[np.bool_], durations_s: F64) -> dict[str, float]:
    """Return the seconds of CPU time of each kind that is known. valued: CPU_SHARES × samples × CPUs, 0 if unknown."""
    per_s = valued.sum(axis=2, dtype=np.uint32) @ durations_s / SHARES_PER_UNIT
    rows = {field: CPU_SHARES.index(kind) for kind, field in CPU_SECONDS.items()}
    there: npt.NDArray[np.bool_] = known.any(axis=(1, 2))  # type: ignore[assignment]  # not of all axes
    return {field: round(float(per_s[row]), 6) for field, row in rows.items() if there[row]}


def _amounts(samples: SampleColumns, chosen: slice | npt.NDArray[np.intp], durations_s: F64) -> dict[str, float]:
    scalars = samples.scalars[:, chosen]
    known = scalars >= 0
    # 2⁵³ × 1200 samples do not fit into 63 bits
    valued = np.where(known, scalars, 0)
    sums = valued.sum(axis=1, dtype=np.uint64).tolist()
    integrals: list[float] = (valued @ durations_s).tolist()
    largest: list[int] = scalars.max(axis=1).tolist()
    of_scalars = {
        name: (sums[row], largest[row], integrals[row])
        for row, name in enumerate(samples.scalar_names)
        if largest[row] >= 0
    }
    found: dict[str, float | None] = {}
    for field, source in SCALAR_SOURCES.items():
        match source.kind:
            case "cpu":
                found[field] = _sum_of_known(samples.count_sums[CPU_COUNTS.index(source.column), chosen])
            case "irq":
                found[field] = _sum_of_known(samples.interrupts[chosen])
            case _ if field == "agent_cpu_s":
                seconds = [used_s for used_s in samples.agent_cpu_s[chosen].tolist() if not math.isnan(used_s)]
                found[field] = sum(seconds) if seconds else None
            case _:
                total, most, integral = of_scalars.get(field, (None, None, None))
                found[field] = most if source.level else total
                if field in LEVEL_INTEGRALS:
                    found[LEVEL_INTEGRALS[field]] = None if integral is None else round(integral, 3)
    return {field: amount for field, amount in found.items() if amount is not None}


def _partly_known(
    samples: SampleColumns, chosen: slice | npt.NDArray[np.intp], cpu_known: Flags, durations_s: F64
) -> dict[str, float]:
    """Return how long what is known in a part of the samples is known. cpu_known: CPU_SECONDS × samples."""
    scalars = {
        LEVEL_INTEGRALS.get(name, name): row
        for row, name in enumerate(samples.scalar_names)
        if name in LEVEL_INTEGRALS or _is_increment(name)
    }
    fields = (*scalars, *_COUNT_ROWS, *CPU_SECONDS.values(), "interrupts", "agent_cpu_s", _NETDEVS)
    known = np.vstack(
        (
            samples.scalars[list(scalars.values())][:, chosen] >= 0,
            samples.count_sums[list(_COUNT_ROWS.values())][:, chosen] >= 0,
            cpu_known,
            samples.interrupts[None, chosen] >= 0,
            ~np.isnan(samples.agent_cpu_s[None, chosen]),
            samples.netdev_present[:, chosen].any(axis=0, keepdims=True),
        )
    )
    partly = np.flatnonzero(known.any(axis=1) & ~known.all(axis=1)).tolist()
    return {_known_key(fields[row]): float(durations_s[known[row]].sum()) for row in partly}


def _is_increment(field: str) -> bool:
    source = SCALAR_SOURCES.get(field)
    return source is not None and not source.level


def _known_key(field: str) -> str:
    return f"{field}_known_s"


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
        amounts=_merged_amounts(parts),
    )


def _merged_amounts(parts: Sequence[Rollup]) -> dict[str, float]:
    amounts = {
        field: amount
        for field, source in SCALAR_SOURCES.items()
        if (amount := _rolled_up(source, [part.amounts[field] for part in parts if field in part.amounts])) is not None
    }
    cpu_seconds = {
        field: sum(part.amounts[field] for part in parts)
        for field in CPU_SECONDS.values()
        if all(field in part.amounts for part in parts)
    }
    integrals = {
        field: sum(known)
        for field in LEVEL_INTEGRALS.values()
        if (known := [part.amounts[field] for part in parts if field in part.amounts])
    }
    having = {
        field: [part for part in parts if field in part.amounts]
        for field in (*filter(_is_increment, amounts), *cpu_seconds, *integrals)
    }
    having[_NETDEVS] = [part for part in parts if part.netdevs]
    seconds = {field: sum(part.known_s(field) for part in some) for field, some in having.items() if some}
    duration_s = sum(part.duration_s for part in parts)
    known_s = {_known_key(field): known for field, known in seconds.items() if known != duration_s}
    return amounts | cpu_seconds | integrals | known_s


def _peaks(shares: U8) -> U8:
    """Return the maximum over the middle axis; adding one in a byte makes ABSENT_SHARE the smallest value."""
    peaks: U8 = (shares + np.uint8(1)).max(axis=1) - np.uint8(1)
    return peaks


def _means(shares: U8, weights: F64) -> U8:
    """Return the mean over the middle axis, weighted along it."""
    weight = (shares != ABSENT_SHARE) * weights[None, :, None]
    return _mean((shares * weight).sum(axis=1), weight.sum(axis=1))


def _mean(sums: U32 | F64, weights: U32 | F64) -> U8:
    means: U8 = np.where(weights > 0, np.rint(sums / np.where(weights > 0, weights, 1)), ABSENT_SHARE).astype(np.uint8)
    return means


def _sum_of_known(sums: I64) -> int | None:
    """Return the sum of the sums of samples, −1 where unknown; None where none is known."""
    known = sums[sums >= 0]
    return int(known.sum()) if known.size else None


def pack_shares(rollup: Rollup) -> bytes:
    """Return a roll-up's peaks and means as a compressed column."""
    return compress(rollup.peaks.tobytes() + rollup.means.tobytes())


def unpack_shares(packed: bytes, cpus: int) -> U8:
    """Return the peaks and means that pack_shares packed: 2 × CPU_SHARES × CPUs."""
    return np.frombuffer(decompress(packed), np.uint8).reshape(2, len(CPU_SHARES), cpus)


def pack_netdevs(rollup: Rollup) -> bytes:
    """Return a roll-up's netdevs as a compressed column."""
    netdevs = {name: [min(amount, MAX_SUM) for amount in sums] for name, sums in rollup.netdevs.items()}
    return compress(msgspec.msgpack.encode(netdevs))


def unpack_netdevs(packed: bytes) -> dict[str, list[int]]:
    """Return the netdevs that pack_netdevs packed: name → the eight sums of NetdevCounts."""
    return msgspec.msgpack.decode(decompress(packed), type=dict[str, list[int]])
