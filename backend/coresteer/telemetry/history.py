"""What was: heatmaps, lines and the IRQ × CPU matrix, from what is stored and what is not stored yet."""

import asyncio
import struct
from collections import defaultdict
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TypeVar

import numpy as np
import numpy.typing as npt
from psycopg.rows import TupleRow

from coresteer.db import Database
from coresteer.errors import Invalid
from coresteer.telemetry import chunks, repository, rollup
from coresteer.telemetry.chunks import F64, U8, netdev_values
from coresteer.telemetry.repository import at_ms, to_ms
from coresteer.telemetry.rollup import Rollup, rates_interrupts, sum_u32
from coresteer.telemetry.schemas import Metric, Resolution, Series
from coresteer.telemetry.service import Ingest
from coresteer_core.node.rates import ABSENT_SHARE, CPU_SHARES, Rates, decode_irq_id

T = TypeVar("T")

MAGIC = b"CSH1"
_SEEN_BY_POLICIES = ("busy", "irq", "softirq", "dropped", "irqs", "netdevs")
SAMPLES_UP_TO_S = 2 * 3600 + 60
MINUTES_UP_TO_S = 3 * 86400 + 3600
_RESOLUTION_MS = {Resolution.MINUTE: 60_000.0, Resolution.HOUR: 3_600_000.0}
_CODE = {Resolution.SAMPLE: 0, Resolution.MINUTE: 1, Resolution.HOUR: 2}
_TRIES = 10
_YEARS = range(1971, 2200)
_NETDEV_METRICS = {Metric.RX_BYTES: 0, Metric.TX_BYTES: 1, Metric.RX_PACKETS: 2, Metric.TX_PACKETS: 3}


@dataclass(frozen=True)
class Source:
    """Where a node's past is read. interval_s: between its samples."""

    database: Database
    ingest: Ingest
    node_id: int
    interval_s: float


@dataclass(frozen=True)
class Range:
    """From start to end, both Unix milliseconds."""

    start: float
    end: float

    @classmethod
    def asked(cls, from_time: datetime, to_time: datetime, longest: timedelta) -> "Range":
        """What somebody asks for, named from_time and to_time. Raises Invalid."""
        for field, time in (("from_time", from_time), ("to_time", to_time)):
            if time.year not in _YEARS:
                raise Invalid(f"The year {time.year} is out of range; it can be 1971 to 2199.", field=field)
        if to_time <= from_time:
            raise Invalid("The range must end after it begins.", field="to_time")
        if to_time - from_time > longest:
            hours = longest // timedelta(hours=1)
            span = f"{longest.days} days" if longest.days > 1 else f"{hours} hour{'s' if hours > 1 else ''}"
            raise Invalid(f"The range may span {span} at the most.", field="to_time")
        return cls(to_ms(from_time), to_ms(to_time))

    @property
    def resolution(self) -> Resolution:
        """Samples up to two hours, minutes up to three days, hours beyond."""
        seconds = (self.end - self.start) / 1000
        if seconds <= SAMPLES_UP_TO_S:
            return Resolution.SAMPLE
        return Resolution.MINUTE if seconds <= MINUTES_UP_TO_S else Resolution.HOUR

    def steps(self, most: int, interval_s: float) -> int:
        """Into how many equal steps it is cut: at most as many as asked for, none shorter than what is read."""
        shortest = _RESOLUTION_MS.get(self.resolution, interval_s * 1000)
        return max(1, min(most, int((self.end - self.start) // shortest)))


async def _consistent(source: Source, read: Callable[[], Awaitable[T]]) -> tuple[T, list[Rates]]:
    """What read finds in the database and what the ingest still holds, nothing twice and nothing left out.

    Read again when the ingest committed some of the node meanwhile.
    """
    for _ in range(_TRIES):
        before = source.ingest.generation(source.node_id)
        if before % 2 == 0:
            found = await read()
            if source.ingest.generation(source.node_id) == before:
                return found, source.ingest.unstored(source.node_id)
        else:
            await asyncio.sleep(0.02)
    return await read(), []  # it commits all the time, so what it holds is little


async def _read_chunks(source: Source, span: Range, columns: Sequence[str]) -> tuple[list[TupleRow], list[Rates]]:
    async def read() -> list[TupleRow]:
        async with source.database.pool.connection() as connection:
            return await repository.read_chunks(connection, source.node_id, at_ms(span.start), at_ms(span.end), columns)

    return await _consistent(source, read)


async def _read_rollups(source: Source, span: Range) -> list[Rollup]:
    """Minutes, or hours with minutes for what telemetry_hour does not hold yet."""
    by_hour = span.resolution is Resolution.HOUR
    margin = _RESOLUTION_MS[span.resolution]
    hours_end = min(span.end, source.ingest.hours_stored_until_ms) if by_hour else span.start - margin

    async def read() -> list[Rollup]:
        found: list[Rollup] = []
        async with source.database.pool.connection() as connection:
            if by_hour:
                found += await repository.read_rollups(
                    connection, "telemetry_hour", source.node_id, at_ms(span.start - margin), at_ms(hours_end)
                )
            if hours_end < span.end:
                start = max(hours_end, span.start - margin)
                found += await repository.read_rollups(
                    connection, "telemetry_minute", source.node_id, at_ms(start), at_ms(span.end)
                )
        return found

    stored, unstored = await _consistent(source, read)
    return stored + [r for r in _minutes_of(unstored) if r.start_ms < span.end]


def _minutes_of(unstored: Sequence[Rates]) -> list[Rollup]:
    same_cpus: dict[int, list[Rates]] = defaultdict(list)
    for rates in unstored:
        same_cpus[rates.cpus].append(rates)
    return [minute for rates in same_cpus.values() for minute in rollup.minutes(rates)]


async def minutes(source: Source, span: Range) -> list[Rollup]:
    """Roll-ups of at most a minute each that lie in the range as a whole."""

    async def read() -> list[Rollup]:
        async with source.database.pool.connection() as connection:
            return await repository.read_rollups(
                connection, "telemetry_minute", source.node_id, at_ms(span.start), at_ms(span.end)
            )

    stored, unstored = await _consistent(source, read)
    return [r for r in stored + _minutes_of(unstored) if span.start <= r.start_ms and r.end_ms <= span.end]


async def heatmap(source: Source, share: str, span: Range, columns: int) -> bytes:
    """The block that the endpoint describes: a header of 32 bytes, then CPUs × columns, the maximum of each column."""
    if span.resolution is Resolution.SAMPLE:
        starts, ends, values = await _share_of_samples(source, share, span)
    else:
        starts, ends, values = await _share_of_rollups(source, share, span)
    count = span.steps(columns, source.interval_s)
    width = (span.end - span.start) / count
    block = max_pool(values, (starts - span.start) / width, (ends - span.start) / width, count)
    header = struct.pack("<4sIIIdd", MAGIC, len(block), count, _CODE[span.resolution], span.start, width)
    return header + block.tobytes()


async def _share_of_samples(source: Source, share: str, span: Range) -> tuple[F64, F64, U8]:
    rows, unstored = await _read_chunks(source, span, [share])
    cpus = max([row[1] for row in rows] + [rates.cpus for rates in unstored], default=0)
    ends = [np.empty(0, np.float64)]
    seconds = [np.empty(0, np.float64)]
    parts = [np.empty((cpus, 0), np.uint8)]
    for samples, row_cpus, packed, column in rows:
        scalars = chunks.read_scalars(packed)
        ends.append(chunks.cumulative(scalars.times_ms).astype(np.float64))
        seconds.append(np.frombuffer(scalars.durations_s, "<f8"))
        part = np.full((cpus, samples), ABSENT_SHARE, np.uint8)
        if column is not None:
            part[:row_cpus] = chunks.read_share(column, row_cpus)
        parts.append(part)
    for rates in unstored:
        part = np.full((cpus, 1), ABSENT_SHARE, np.uint8)
        if (raw := rates.shares.get(share)) is not None:
            part[: rates.cpus, 0] = np.frombuffer(raw, np.uint8)
        parts.append(part)
    ends.append(np.array([rates.time_ms for rates in unstored], np.float64))
    seconds.append(np.array([rates.duration_s for rates in unstored], np.float64))
    all_ends = np.concatenate(ends)
    return all_ends - np.concatenate(seconds) * 1000, all_ends, np.concatenate(parts, axis=1)


async def _share_of_rollups(source: Source, share: str, span: Range) -> tuple[F64, F64, U8]:
    found = await _read_rollups(source, span)
    row = CPU_SHARES.index(share)
    values = np.full((max((r.cpus for r in found), default=0), len(found)), ABSENT_SHARE, np.uint8)
    for position, r in enumerate(found):
        values[: r.cpus, position] = r.peaks[row]
    starts = np.array([r.start_ms for r in found], np.float64)
    return starts, np.array([r.end_ms for r in found], np.float64), values


def max_pool(values: U8, starts: F64, ends: F64, columns: int) -> U8:
    """CPUs × columns, of CPUs × intervals that begin and end at fractions of a column.

    An interval colours the column of its middle, and every column whose middle lies in it: so intervals that follow
    each other leave no gap, and a short one is never lost. Of several in a column the maximum counts.
    """
    middle = np.floor((starts + ends) / 2).astype(np.int64)
    first = np.minimum(np.ceil(starts - 0.5).astype(np.int64), middle)
    last = np.maximum(np.ceil(ends - 0.5).astype(np.int64) - 1, middle)
    first, last = np.maximum(first, 0), np.minimum(last, columns - 1)
    repeats = np.maximum(last - first + 1, 0)
    interval = np.repeat(np.arange(len(starts)), repeats)
    offset = np.arange(len(interval)) - np.repeat(np.cumsum(repeats) - repeats, repeats)
    column = first[interval] + offset
    order = np.argsort(column, kind="stable")
    column, interval = column[order], interval[order]
    pooled = np.full((values.shape[0], columns), ABSENT_SHARE, np.uint8)
    if len(column):
        used, begins = np.unique(column, return_index=True)
        # one more in a byte makes ABSENT_SHARE the smallest value, so that it never hides a known one
        pooled[:, used] = np.maximum.reduceat(values[:, interval] + np.uint8(1), begins, axis=1) - np.uint8(1)
    return pooled


async def series(
    source: Source,
    metrics: Sequence[Metric],
    span: Range,
    points: int,
    *,
    physical: frozenset[str] | None,
    netdev: str | None,
) -> Series:
    """Lines over time. Traffic is netdev's, or the sum of the physical ones (all but lo where those are unknown).

    Rates are averages over the step, round-trip times and memory its maximum.
    """
    count = span.steps(points, source.interval_s)
    width = (span.end - span.start) / count

    def counted(name: str) -> bool:
        if netdev is not None:
            return name == netdev
        return name != "lo" if physical is None else name in physical

    if span.resolution is Resolution.SAMPLE:
        times, seconds, table = await _samples_as_lines(source, metrics, span, counted)
    else:
        found = await _read_rollups(source, span)
        times = np.array([(r.start_ms + r.end_ms) / 2 for r in found], np.float64)
        seconds = np.array([r.duration_s for r in found], np.float64)
        table = {metric: _of_rollups(metric, found, counted) for metric in metrics}
    step = np.floor((times - span.start) / width).astype(np.int64)
    inside = (step >= 0) & (step < count)
    return Series(
        resolution=span.resolution,
        step_ms=width,
        times_ms=[span.start + position * width for position in range(count)],
        values={
            metric: _line(metric, step[inside], seconds[inside], table[metric][inside], count) for metric in metrics
        },
    )


_PEAKS = (Metric.RTT_P50, Metric.RTT_P95, Metric.RTT_P99, Metric.AGENT_RSS)


def _line(metric: Metric, step: npt.NDArray[np.int64], seconds: F64, values: F64, count: int) -> list[float | None]:
    known = ~np.isnan(values)
    step, seconds, values = step[known], seconds[known], values[known]
    filled = np.bincount(step, minlength=count) > 0
    if metric in _PEAKS:
        line = np.zeros(count)
        np.maximum.at(line, step, values)
    else:
        duration = np.bincount(step, seconds, minlength=count)
        line = np.bincount(step, values, minlength=count) / np.where(duration > 0, duration, 1)
        if metric is Metric.AGENT_CPU:
            line *= 100
    return [value if there else None for value, there in zip(line.tolist(), filled.tolist(), strict=True)]


async def _samples_as_lines(
    source: Source, metrics: Sequence[Metric], span: Range, counted: Callable[[str], bool]
) -> tuple[F64, F64, dict[Metric, F64]]:
    """Middles, durations and, for each metric, the increments (or levels) of every sample; NaN where unknown."""
    rows, unstored = await _read_chunks(source, span, ["netdevs"])
    ends, seconds = [np.empty(0)], [np.empty(0)]
    lines: dict[Metric, list[F64]] = {metric: [np.empty(0)] for metric in metrics}
    for samples, _, packed, netdevs in rows:
        scalars = chunks.read_scalars(packed)
        ends.append(chunks.cumulative(scalars.times_ms).astype(np.float64))
        seconds.append(np.frombuffer(scalars.durations_s, "<f8"))
        traffic = _traffic(netdevs, samples, scalars.absent.get("netdevs", []), counted)
        for metric in metrics:
            lines[metric].append(_of_chunk(metric, scalars, traffic))
    ends.append(np.array([rates.time_ms for rates in unstored], np.float64))
    seconds.append(np.array([rates.duration_s for rates in unstored], np.float64))
    for metric in metrics:
        lines[metric].append(np.array([_of_rates(metric, rates, counted) for rates in unstored], np.float64))
    durations = np.concatenate(seconds)
    return (
        np.concatenate(ends) - durations * 500,
        durations,
        {metric: np.concatenate(parts) for metric, parts in lines.items()},
    )


def _traffic(netdevs: bytes | None, samples: int, absent: list[int], counted: Callable[[str], bool]) -> F64:
    """The eight sums of NetdevCounts × samples over the netdevs that count, NaN where unknown."""
    unknown = np.full((8, samples), np.nan)
    if netdevs is None:
        return unknown
    names, present, counts = chunks.read_netdevs(netdevs, samples)
    chosen = [position for position, name in enumerate(names) if counted(name)]
    sums: F64 = counts[chosen].sum(axis=0).astype(np.float64)
    sums[:, absent] = np.nan
    if chosen:
        sums[:, ~present[chosen].any(axis=0)] = np.nan
        return sums
    return unknown


def _of_chunk(metric: Metric, scalars: chunks.Scalars, traffic: F64) -> F64:
    if metric in _NETDEV_METRICS:
        row: F64 = traffic[_NETDEV_METRICS[metric]]
        return row
    if metric is Metric.AGENT_CPU:
        return np.frombuffer(scalars.agent_cpu_s, "<f8")
    if metric in (Metric.RTT_P50, Metric.RTT_P95, Metric.RTT_P99):
        rows = np.frombuffer(scalars.tcp, "<i8").reshape(4, -1)
        raw = rows[1 + (Metric.RTT_P50, Metric.RTT_P95, Metric.RTT_P99).index(metric)]
    else:
        packed = {
            Metric.INTERRUPTS: scalars.interrupts,
            Metric.DROPPED: scalars.dropped,
            Metric.SQUEEZED: scalars.squeezed,
            Metric.RETRANSMITS: scalars.tcp_retransmits,
            Metric.AGENT_RSS: scalars.agent_rss_bytes,
        }[metric]
        raw = np.frombuffer(packed, "<i8")
    return np.where(raw < 0, np.nan, raw.astype(np.float64))


_SCALAR_OF_RATES: dict[Metric, Callable[[Rates], float | None]] = {
    Metric.INTERRUPTS: rates_interrupts,
    Metric.DROPPED: lambda rates: sum_u32(rates.counts.get("dropped")),
    Metric.SQUEEZED: lambda rates: sum_u32(rates.counts.get("time_squeeze")),
    Metric.RETRANSMITS: lambda rates: rates.tcp_retransmits,
    Metric.AGENT_CPU: lambda rates: rates.agent_cpu_s,
    Metric.AGENT_RSS: lambda rates: rates.agent_rss_bytes,
}


def _of_rates(metric: Metric, rates: Rates, counted: Callable[[str], bool]) -> float:
    value: float | None
    if metric in _NETDEV_METRICS:
        chosen = [netdev_values(n) for n in rates.netdevs or () if counted(n.name)]
        value = sum(values[_NETDEV_METRICS[metric]] for values in chosen) if chosen else None
    elif metric in (Metric.RTT_P50, Metric.RTT_P95, Metric.RTT_P99):
        value = getattr(rates.tcp, metric.value) if rates.tcp else None
    else:
        value = _SCALAR_OF_RATES[metric](rates)
    return np.nan if value is None else value


_OF_ROLLUP = {
    Metric.INTERRUPTS: "interrupts",
    Metric.DROPPED: "dropped",
    Metric.SQUEEZED: "squeezed",
    Metric.RTT_P50: "rtt_p50_us",
    Metric.RTT_P95: "rtt_p95_us",
    Metric.RTT_P99: "rtt_p99_us",
    Metric.RETRANSMITS: "retransmits",
    Metric.AGENT_CPU: "agent_cpu_s",
    Metric.AGENT_RSS: "agent_rss_bytes",
}


def _of_rollups(metric: Metric, found: Sequence[Rollup], counted: Callable[[str], bool]) -> F64:
    values: list[float | None] = []
    for r in found:
        if metric in _NETDEV_METRICS:
            chosen = [sums for name, sums in r.netdevs.items() if counted(name)]
            values.append(sum(sums[_NETDEV_METRICS[metric]] for sums in chosen) if chosen else None)
        else:
            values.append(getattr(r, _OF_ROLLUP[metric]))
    return np.array([np.nan if value is None else value for value in values], np.float64)


async def samples(source: Source, span: Range) -> list[Rates]:
    """The samples of the range as they came, oldest first, without the columns that policies do not look at."""
    rows, unstored = await _read_chunks(source, span, _SEEN_BY_POLICIES)

    def decoded() -> list[Rates]:
        found = []
        for count, cpus, scalars, *columns in rows:
            wanted = dict.fromkeys(chunks.COLUMNS) | dict(zip(_SEEN_BY_POLICIES, columns, strict=True))
            found += chunks.decode(
                chunks.Chunk(
                    first_seq=0,
                    last_seq=0,
                    start_ms=0,
                    end_ms=0,
                    samples=count,
                    cpus=cpus,
                    scalars=scalars,
                    columns=wanted,
                )
            )
        return found

    stored = await asyncio.to_thread(decoded)
    inside = {rates.time_ms: rates for rates in (*stored, *unstored) if span.start < rates.time_ms <= span.end}
    return [inside[time_ms] for time_ms in sorted(inside)]


@dataclass(frozen=True)
class Cells:
    """Interrupts of a range. counts: row label → CPU → interrupts; covered_s: how much of it has data."""

    covered_s: float
    counts: dict[str, dict[int, int]]


async def cells(source: Source, span: Range) -> Cells:
    """IRQ × CPU of the samples whose middle lies in the range."""
    rows, unstored = await _read_chunks(source, span, ["irqs"])
    covered_s = 0.0
    counts: dict[str, dict[int, int]] = defaultdict(lambda: defaultdict(int))
    for samples, _, packed, irqs in rows:
        if irqs is None:
            continue
        scalars = chunks.read_scalars(packed)
        seconds = np.frombuffer(scalars.durations_s, "<f8")
        middles = chunks.cumulative(scalars.times_ms) - seconds * 500
        inside = (middles >= span.start) & (middles < span.end)
        known = np.ones(samples, np.bool_)
        known[scalars.absent.get("irqs", [])] = False
        covered_s += float(seconds[inside & known].sum())
        ids, cpus, values = chunks.read_cells(irqs, samples)
        sums = values[:, inside].sum(axis=1, dtype=np.int64)
        for irq_id, cpu, total in zip(ids.tolist(), cpus.tolist(), sums.tolist(), strict=True):
            if total:
                counts[decode_irq_id(irq_id)][cpu] += total
        await asyncio.sleep(0)
    for rates in unstored:
        middle = rates.time_ms - rates.duration_s * 500
        if rates.irq_ids is None or rates.irq_cpus is None or rates.irq_counts is None:
            continue
        if not span.start <= middle < span.end:
            continue
        covered_s += rates.duration_s
        columns = (np.frombuffer(rates.irq_ids, "<u4"), np.frombuffer(rates.irq_cpus, "<u2"))
        for irq_id, cpu, total in zip(
            columns[0].tolist(), columns[1].tolist(), np.frombuffer(rates.irq_counts, "<u4").tolist(), strict=True
        ):
            counts[decode_irq_id(irq_id)][cpu] += total
    return Cells(covered_s, {label: dict(row) for label, row in counts.items()})
