"""Reads a node's samples and roll-ups over a time range, both stored and not yet stored."""

import asyncio
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from math import inf
from typing import LiteralString, TypeAlias, TypeVar

from psycopg.rows import TupleRow

from coresteer.db import Database
from coresteer.errors import Invalid
from coresteer.telemetry import repository, rollup
from coresteer.telemetry.chunk_decoding import decode_columns
from coresteer.telemetry.repository import Connection, from_unix_ms, to_unix_ms
from coresteer.telemetry.rollup import Rollup
from coresteer.telemetry.schemas import Resolution
from coresteer.telemetry.service import Ingest
from coresteer_core.node.rates import Rates

T = TypeVar("T")
ReadRows: TypeAlias = Callable[[Connection, LiteralString, int, datetime, datetime], Awaitable[list[T]]]
"""Reads a node's roll-ups in a table that begin in a range."""

MAX_SPAN_OF_SAMPLES_S = 2 * 3600 + 60
MAX_SPAN_OF_MINUTES_S = 3 * 86400 + 3600
_POLICY_COLUMNS = ("busy", "steal", "irq", "softirq", "dropped", "irqs", "netdevs")
"""The columns that policies decide from."""
_RESOLUTION_MS = {Resolution.MINUTE: 60_000.0, Resolution.HOUR: 3_600_000.0}
_COMMIT_WAIT_S = 2.0
"""A commit takes milliseconds, and on a busy machine some tenths of a second."""
_COMMIT_POLL_S = 0.02
_YEARS = range(1971, 2200)


@dataclass(frozen=True)
class TelemetrySource:
    """Where one node's samples are read from: database and ingest. interval_s: between samples."""

    database: Database
    ingest: Ingest
    node_id: int
    interval_s: float


def checked_ms(time: datetime, field: str) -> float:
    """Return the time of a request's field in Unix milliseconds. Raises Invalid."""
    if time.year not in _YEARS:
        raise Invalid(f"The year {time.year} is out of range; it can be 1971 to 2199.", field=field)
    return to_unix_ms(time)


@dataclass(frozen=True)
class TimeRange:
    """A time range, both ends in Unix milliseconds. has_samples: False if a part of it has only roll-ups."""

    start: float
    end: float
    has_samples: bool = True

    @classmethod
    def validated(cls, from_time: datetime, to_time: datetime, longest: timedelta) -> "TimeRange":
        """Return the time range of a request's from_time and to_time. Raises Invalid."""
        start, end = checked_ms(from_time, "from_time"), checked_ms(to_time, "to_time")
        if to_time <= from_time:
            raise Invalid("The range must end after it begins.", field="to_time")
        if to_time - from_time > longest:
            hours = longest // timedelta(hours=1)
            span = f"{longest.days} days" if longest.days > 1 else f"{hours} hour{'s' if hours > 1 else ''}"
            raise Invalid(f"The range may span {span} at the most.", field="to_time")
        return cls(start, end)

    @property
    def resolution(self) -> Resolution:
        """Return the range's resolution: samples up to two hours, minutes up to three days, hours beyond."""
        seconds = (self.end - self.start) / 1000
        if seconds <= MAX_SPAN_OF_SAMPLES_S and self.has_samples:
            return Resolution.SAMPLE
        return Resolution.MINUTE if seconds <= MAX_SPAN_OF_MINUTES_S else Resolution.HOUR

    def steps(self, most: int, interval_s: float) -> int:
        """Return into how many equal steps to divide the range: at most `most`, none below the resolution."""
        shortest = _RESOLUTION_MS.get(self.resolution, interval_s * 1000)
        return max(1, min(most, int((self.end - self.start) // shortest)))


async def _consistent(source: TelemetrySource, read: Callable[[], Awaitable[T]]) -> tuple[T, list[Rates]]:
    """Return the result of read() on the database and the buffered samples, without duplicates or gaps.

    Waits for a commit of the node's samples, and reads again when there was one meanwhile, for at most 2 s.
    """
    until = time.monotonic() + _COMMIT_WAIT_S
    while time.monotonic() < until:
        before = source.ingest.commit_generation(source.node_id)
        if before % 2 == 0:
            found = await read()
            if source.ingest.commit_generation(source.node_id) == before:
                return found, source.ingest.unstored(source.node_id)
        else:
            await asyncio.sleep(_COMMIT_POLL_S)
    return await read(), []  # it commits continuously, so few samples are buffered


async def by_minutes(source: TelemetrySource, span: TimeRange, starts: Sequence[float]) -> TimeRange | None:
    """Return the range to be read from minutes if only these have its beginning: retention deletes samples first.

    None if it is to be left as it is. starts: of what was read, in Unix ms.
    """
    if span.resolution is not Resolution.SAMPLE or min(starts, default=inf) < span.start + rollup.MINUTE_MS:
        return None
    start, end = from_unix_ms(span.start), from_unix_ms(span.end)
    async with source.database.reading() as connection:
        has_older = await repository.has_older_minutes(connection, source.node_id, start, end)
    return replace(span, has_samples=False) if has_older else None


async def read_chunks(
    source: TelemetrySource, span: TimeRange, columns: Sequence[str]
) -> tuple[list[TupleRow], list[Rates]]:
    """Return chunk rows (see repository.read_chunks) that reach into the range, and the samples not stored yet."""

    async def read() -> list[TupleRow]:
        async with source.database.reading() as connection:
            return await repository.read_chunks(
                connection, source.node_id, from_unix_ms(span.start), from_unix_ms(span.end), columns
            )

    return await _consistent(source, read)


async def read_span(source: TelemetrySource) -> TimeRange | None:
    """Return from when until when there are samples of the node, stored or not yet; None without any."""

    async def read() -> tuple[datetime, datetime] | None:
        async with source.database.reading() as connection:
            return await repository.stored_span(connection, source.node_id)

    stored, unstored = await _consistent(source, read)
    ends = [] if stored is None else [to_unix_ms(end) for end in stored]
    if unstored:
        ends += [unstored[0].time_ms - unstored[0].duration_s * 1000, float(unstored[-1].time_ms)]
    return TimeRange(min(ends), max(ends)) if ends else None


async def read_rollups(source: TelemetrySource, span: TimeRange) -> list[Rollup]:
    """Return roll-ups of minutes, or of hours with minutes where telemetry_hour is not complete yet."""
    stored, unstored = await _rolled_up(source, span, repository.read_rollups)
    return stored + unstored


async def read_shares(source: TelemetrySource, span: TimeRange) -> tuple[list[TupleRow], list[Rollup]]:
    """Return rows (see repository.read_shares) of the roll-ups of read_rollups, and those that are not stored yet."""
    return await _rolled_up(source, span, repository.read_shares)


async def _rolled_up(source: TelemetrySource, span: TimeRange, read_rows: ReadRows[T]) -> tuple[list[T], list[Rollup]]:
    by_hour = span.resolution is Resolution.HOUR
    margin = _RESOLUTION_MS[span.resolution]
    hours_end = min(span.end, source.ingest.hours_complete_until_ms) if by_hour else span.start - margin
    start, end = from_unix_ms(span.start - margin), from_unix_ms(span.end)
    middle = from_unix_ms(max(hours_end, span.start - margin))

    async def read() -> list[T]:
        found: list[T] = []
        async with source.database.reading() as connection:
            if by_hour:
                found += await read_rows(connection, "telemetry_hour", source.node_id, start, from_unix_ms(hours_end))
            if hours_end < span.end:
                found += await read_rows(connection, "telemetry_minute", source.node_id, middle, end)
        return found

    stored, unstored = await _consistent(source, read)
    return stored, [r for r in _minutes_of(unstored) if r.start_ms < span.end]


def _minutes_of(unstored: Sequence[Rates]) -> list[Rollup]:
    same_cpus: dict[int, list[Rates]] = defaultdict(list)
    for rates in unstored:
        same_cpus[rates.cpus].append(rates)
    return [minute for rates in same_cpus.values() for minute in rollup.minute_rollups(rates)]


async def read_minutes(source: TelemetrySource, span: TimeRange) -> list[Rollup]:
    """Return a roll-up of each of the node's minutes, made of its parts that lie entirely in the range, in order.

    A minute is stored in parts where the samples of it were committed at several times.
    """

    async def read() -> list[Rollup]:
        async with source.database.pool.connection() as connection:
            return await repository.read_rollups(
                connection, "telemetry_minute", source.node_id, from_unix_ms(span.start), from_unix_ms(span.end)
            )

    stored, unstored = await _consistent(source, read)
    minutes: dict[int, list[Rollup]] = defaultdict(list)
    for part in stored + _minutes_of(unstored):
        if span.start <= part.start_ms and part.end_ms <= span.end:
            minutes[part.start_ms // rollup.MINUTE_MS].append(part)
    return [rollup.merge_rollups(minutes[minute]) for minute in sorted(minutes)]


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
