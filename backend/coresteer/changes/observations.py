"""Observations of changes: stored when the 2 minutes after a change are over, computed on request until then."""

import asyncio
import logging
from collections import Counter
from datetime import datetime, timedelta
from uuid import UUID

import msgspec
from sqlalchemy.ext.asyncio import AsyncSession

from coresteer.background import cancel, repeat
from coresteer.bus import Bus
from coresteer.changes import repository, validation
from coresteer.changes.events import ChangeEvent
from coresteer.changes.observation import (
    HISTORY_S,
    MIN_AFTER_S,
    WINDOW_S,
    Moments,
    Observation,
    nothing_observed,
    observe,
)
from coresteer.changes.observed_samples import COLUMNS, Touched, figures_over_time, touched_by
from coresteer.changes.records import find_change, find_node, utc_now
from coresteer.changes.tables import ChangeRow
from coresteer.changes.undone import to_schemas
from coresteer.db import Database
from coresteer.errors import Conflict
from coresteer.nodes.service import DEFAULT_INTERVAL_S
from coresteer.presence.registry import NodeRegistry
from coresteer.presence.stored import clock_skew_ms
from coresteer.telemetry.chunks import encode
from coresteer.telemetry.history import TelemetrySource, TimeRange, read_chunks, read_span
from coresteer.telemetry.repository import to_unix_ms
from coresteer.telemetry.service import Ingest
from coresteer_core.changes.plan import Plan
from coresteer_core.changes.report import ChangeState

log = logging.getLogger("coresteer.changes")

_TICK_S = 5.0
_WINDOW = timedelta(seconds=WINDOW_S)
_WAIT_FOR_SAMPLES = timedelta(minutes=10)
"""An agent without a connection sends its samples when it has one again."""
_OLDEST = timedelta(days=1)
_MAX_DUE = 500
_AT_ONCE = 20
_UNDONE = (ChangeState.ROLLED_BACK, ChangeState.FAILED)


class Observer:
    """Stores the observation of each change when its 2 minutes are over; a check every 5 s.

    Changes of experiments have none: the experiment compares them itself.
    """

    def __init__(self, database: Database, bus: Bus, registry: NodeRegistry, ingest: Ingest) -> None:
        self._database, self._bus, self._registry, self._ingest = database, bus, registry, ingest
        self._tasks: list[asyncio.Task[None]] = []
        self._tries: Counter[UUID] = Counter()

    def start(self) -> None:
        """Start storing observations."""
        failure = "Observing changes failed; retrying."
        self._tasks = [asyncio.create_task(repeat(lambda: self.store_due(utc_now()), _TICK_S, log, failure))]

    async def stop(self) -> None:
        """Stop storing observations; those that are due are stored after the next start."""
        await cancel(self._tasks)

    async def store_due(self, now: datetime) -> None:
        """Store the observations of changes whose 2 minutes are over now; at most 20, the least tried first."""
        async with self._database.session() as session:
            due = await repository.unobserved_changes(session, now - _OLDEST, now - _WINDOW, _MAX_DUE)
        ready = [row.id for row in due if await self._has_samples(row, now)]
        self._tries = Counter({change_id: self._tries[change_id] for change_id in ready})
        for change_id in sorted(ready, key=self._tries.__getitem__)[:_AT_ONCE]:
            self._tries[change_id] += 1
            observation = await self.observe(change_id, now)
            async with self._database.session() as session:
                row = await repository.find_change(session, change_id, lock=True)
                if row is None or row.observation is not None:
                    continue
                if not _is_final(observation, row, now):
                    continue  # samples may be on their way, or be committed at this moment
                row.observation = msgspec.to_builtins(observation)
                (change,) = await to_schemas(session, [row], now)
            self._bus.publish(ChangeEvent(change))

    async def observe(self, change_id: UUID, now: datetime) -> Observation:
        """Return a change's observation: the stored one, or what is known at this time. Raises NotFound."""
        async with self._database.session() as session:
            row = await find_change(session, change_id)
            if row.observation is not None:
                return msgspec.convert(row.observation, Observation)
            if row.experiment_id is not None:
                return nothing_observed(
                    "The change belongs to an experiment, which compares by itself.", is_complete=True
                )
            if row.applied_at is None:
                over = row.state in _UNDONE
                return nothing_observed(
                    "The change was not applied." if over else "The change is not applied yet.", is_complete=over
                )
            touched = await self._touched(session, row)
            end = _end(row)
            others = await repository.count_applied(session, row, row.created_at - _WINDOW, min(end, now))
        at = await self._moments(row, min(end, now))
        # the hour before the first of the two windows' ends, and a sample's length
        span = TimeRange(at.began_ms - (HISTORY_S + 1) * 1000, at.end_ms)
        is_complete = now >= end and await self._has_samples(row, now)
        rows, unstored = await read_chunks(self._source(row), span, COLUMNS)

        def compute() -> Observation:
            for cpus in dict.fromkeys(rates.cpus for rates in unstored):
                chunk = encode([rates for rates in unstored if rates.cpus == cpus])
                columns = [chunk.columns[name] for name in COLUMNS]
                rows.append((chunk.samples, chunk.cpus, chunk.scalars, *columns))
            lines = figures_over_time(rows, touched, at)
            return observe(lines, at, is_complete=is_complete, other_changes=others)

        return await asyncio.to_thread(compute)  # takes tens of milliseconds

    async def _touched(self, session: AsyncSession, row: ChangeRow) -> Touched:
        try:
            view = validation.view_of_node(await find_node(session, row.node_id))
        except Conflict:  # it has not reported its inventory
            view = None
        return touched_by(msgspec.convert(row.plan, Plan), view)

    async def _moments(self, row: ChangeRow, end: datetime) -> Moments:
        """Return when the change happened, by the node's clock. The row's change is applied."""
        skew_ms = await clock_skew_ms(self._database, self._registry, row.node_id)
        applied = row.applied_at or row.created_at
        return Moments(*(to_unix_ms(time) + skew_ms for time in (row.created_at, applied, max(applied, end))))

    async def _has_samples(self, row: ChangeRow, now: datetime) -> bool:
        """Return whether the samples of the whole window have arrived, or are not waited for any longer."""
        if _is_late(row, now):
            return True
        found = await read_span(self._source(row))
        return found is not None and found.end >= (await self._moments(row, _end(row))).end_ms

    def _source(self, row: ChangeRow) -> TelemetrySource:
        return TelemetrySource(self._database, self._ingest, row.node_id, DEFAULT_INTERVAL_S)


def _is_final(observation: Observation, row: ChangeRow, now: datetime) -> bool:
    """Return whether an observation compares, or never will: too brief, or its samples are not waited for."""
    brief = _end(row) - (row.applied_at or row.created_at) < timedelta(seconds=MIN_AFTER_S)
    can_compare = bool(observation.figures) or not observation.missing
    return can_compare or (observation.is_complete and brief) or _is_late(row, now)


def _is_late(row: ChangeRow, now: datetime) -> bool:
    """Return whether samples of the window after a change are not waited for any longer."""
    return now - _end(row) > _WAIT_FOR_SAMPLES


def _end(row: ChangeRow) -> datetime:
    """Return when the window after an applied change ends: after 2 minutes, or when it was undone."""
    end = (row.applied_at or row.created_at) + _WINDOW
    return min(end, row.ended_at) if row.state in _UNDONE and row.ended_at is not None else end
