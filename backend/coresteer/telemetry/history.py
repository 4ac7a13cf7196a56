"""Reads a node's samples and roll-ups over a time range, both stored and not yet stored."""

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TypeVar

from psycopg.rows import TupleRow

from coresteer.db import Database
from coresteer.errors import Invalid
from coresteer.telemetry import repository, rollup
from coresteer.telemetry.chunk_decoding import decode_columns
from coresteer.telemetry.repository import from_unix_ms, to_unix_ms
from coresteer.telemetry.rollup import Rollup
from coresteer.telemetry.schemas import Resolution
from coresteer.telemetry.service import Ingest
from coresteer_core.node.rates import Rates

T = TypeVar("T")

MAX_SPAN_OF_SAMPLES_S = 2 * 3600 + 60
MAX_SPAN_OF_MINUTES_S = 3 * 86400 + 3600
_POLICY_COLUMNS = ("busy", "irq", "softirq", "dropped", "irqs", "netdevs")
"""The columns that policies decide from."""
_RESOLUTION_MS = {Resolution.MINUTE: 60_000.0, Resolution.HOUR: 3_600_000.0}
_TRIES = 10
_YEARS = range(1971, 2200)


@dataclass(frozen=True)
class TelemetrySource:
    """Where one node's samples are read from: database and ingest. interval_s: between samples."""

    database: Database
    ingest: Ingest
    node_id: int
    interval_s: float


@dataclass(frozen=True)
class TimeRange:
    """A time range, both ends in Unix milliseconds."""

    start: float
    end: float

    @classmethod
    def validated(cls, from_time: datetime, to_time: datetime, longest: timedelta) -> "TimeRange":
        """Return the time range of a request's from_time and to_time. Raises Invalid."""
        for field, time in (("from_time", from_time), ("to_time", to_time)):
            if time.year not in _YEARS:
                raise Invalid(f"The year {time.year} is out of range; it can be 1971 to 2199.", field=field)
        if to_time <= from_time:
            raise Invalid("The range must end after it begins.", field="to_time")
        if to_time - from_time > longest:
            hours = longest // timedelta(hours=1)
            span = f"{longest.days} days" if longest.days > 1 else f"{hours} hour{'s' if hours > 1 else ''}"
            raise Invalid(f"The range may span {span} at the most.", field="to_time")
        return cls(to_unix_ms(from_time), to_unix_ms(to_time))

    @property
    def resolution(self) -> Resolution:
        """Return the range's resolution: samples up to two hours, minutes up to three days, hours beyond."""
        seconds = (self.end - self.start) / 1000
        if seconds <= MAX_SPAN_OF_SAMPLES_S:
            return Resolution.SAMPLE
        return Resolution.MINUTE if seconds <= MAX_SPAN_OF_MINUTES_S else Resolution.HOUR

    def steps(self, most: int, interval_s: float) -> int:
        """Return into how many equal steps to divide the range: at most `most`, none below the resolution."""
        shortest = _RESOLUTION_MS.get(self.resolution, interval_s * 1000)
        return max(1, min(most, int((self.end - self.start) // shortest)))


async def _consistent(source: TelemetrySource, read: Callable[[], Awaitable[T]]) -> tuple[T, list[Rates]]:
    """Return the result of read() on the database and the buffered samples, without duplicates or gaps.

    Reads again when the ingest committed samples of the node meanwhile, at most 10 times.
    """
    for _ in range(_TRIES):
        before = source.ingest.commit_generation(source.node_id)
        if before % 2 == 0:
            found = await read()
            if source.ingest.commit_generation(source.node_id) == before:
                return found, source.ingest.unstored(source.node_id)
        else:
            await asyncio.sleep(0.02)
    return await read(), []  # it commits continuously, so few samples are buffered


async def read_chunks(
    source: TelemetrySource, span: TimeRange, columns: Sequence[str]
) -> tuple[list[TupleRow], list[Rates]]:
    """Return chunk rows (see repository.read_chunks) that reach into the range, and the samples not stored yet."""

    async def read() -> list[TupleRow]:
        async with source.database.pool.connection() as connection:
            return await repository.read_chunks(
                connection, source.node_id, from_unix_ms(span.start), from_unix_ms(span.end), columns
            )

    return await _consistent(source, read)


async def read_rollups(source: TelemetrySource, span: TimeRange) -> list[Rollup]:
    """Return roll-ups of minutes, or of hours with minutes where telemetry_hour is not complete yet."""
    by_hour = span.resolution is Resolution.HOUR
    margin = _RESOLUTION_MS[span.resolution]
    hours_end = min(span.end, source.ingest.hours_complete_until_ms) if by_hour else span.start - margin

    async def read() -> list[Rollup]:
        found: list[Rollup] = []
        async with source.database.pool.connection() as connection:
            if by_hour:
                found += await repository.read_rollups(
                    connection,
                    "telemetry_hour",
                    source.node_id,
                    from_unix_ms(span.start - margin),
                    from_unix_ms(hours_end),
                )
            if hours_end < span.end:
                start = max(hours_end, span.start - margin)
                found += await repository.read_rollups(
                    connection, "telemetry_minute", source.node_id, from_unix_ms(start), from_unix_ms(span.end)
                )
        return found

    stored, unstored = await _consistent(source, read)
    return stored + [r for r in _minutes_of(unstored) if r.start_ms < span.end]


def _minutes_of(unstored: Sequence[Rates]) -> list[Rollup]:
    same_cpus: dict[int, list[Rates]] = defaultdict(list)
    for rates in unstored:
        same_cpus[rates.cpus].append(rates)
    return [minute for rates in same_cpus.values() for minute in rollup.minute_rollups(rates)]


async def read_minutes(source: TelemetrySource, span: TimeRange) -> list[Rollup]:
    """Return the node's roll-ups of at most a minute each that lie entirely in the range."""

    async def read() -> list[Rollup]:
        async with source.database.pool.connection() as connection:
            return await repository.read_rollups(
                connection, "telemetry_minute", source.node_id, from_unix_ms(span.start), from_unix_ms(span.end)
            )

    stored, unstored = await _consistent(source, read)
    return [r for r in stored + _minutes_of(unstored) if span.start <= r.start_ms and r.end_ms <= span.end]


async def read_samples(source: TelemetrySource, span: TimeRange) -> list[Rates]:
    """Return the node's samples of the range, oldest first, with only the columns that policies decide from."""
    rows, unstored = await read_chunks(source, span, _POLICY_COLUMNS)

    def decoded() -> list[Rates]:
        return [
            rates
            for count, cpus, scalars, *columns in rows
            for rates in decode_columns(count, cpus, scalars, dict(zip(_POLICY_COLUMNS, columns, strict=True)))
        ]

    stored = await asyncio.to_thread(decoded)
    inside = {rates.time_ms: rates for rates in (*stored, *unstored) if span.start < rates.time_ms <= span.end}
    return [inside[time_ms] for time_ms in sorted(inside)]
