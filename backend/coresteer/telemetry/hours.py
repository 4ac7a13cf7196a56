"""Hourly roll-ups, merged from those of minutes; making one again gives the same result.

Every backend marks the hours of the minutes that it stores, in their transaction; the leader makes them.
"""

import logging
import time
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from uuid import UUID

from coresteer.background import repeat
from coresteer.db import Database
from coresteer.errors import is_about_rows
from coresteer.telemetry import partitions, repository
from coresteer.telemetry.partitions import HOUR_MS
from coresteer.telemetry.repository import Connection, from_unix_ms
from coresteer.telemetry.rollup import Rollup, merge_rollups

log = logging.getLogger("coresteer.telemetry")

_GRACE_MS = 120_000
"""An hour is made this long after its end: transactions that took it for the present one have ended then."""
_FOLLOW_S = 20.0
_NODES_A_TRANSACTION = 100


class HourlyRollups:
    """Makes hourly roll-ups, again of nodes that stored more minutes of an hour."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._marked: set[int] = set()
        """Hours that this process has marked as due; their rows stay at least until the hour is over."""
        self._complete_until_ms = 0

    @property
    def complete_until_ms(self) -> int:
        """Return the Unix time in ms before which telemetry_hour is complete; less while an older hour is due again.

        What another backend stored late may be missing for 20 s.
        """
        return self._complete_until_ms

    async def mark_due(self, connection: Connection, times_ms: Iterable[int], now_ms: int) -> set[int]:
        """Mark hours as due: minutes beginning at these times (Unix ms) are stored in this transaction.

        Returns the hours, for note_marked() after the commit.
        """
        hours = {time_ms - time_ms % HOUR_MS for time_ms in times_ms}
        new = sorted(hour for hour in hours if hour + HOUR_MS <= now_ms or hour not in self._marked)
        if new:
            await repository.add_due_hours(connection, new)
        return set(new)

    def note_marked(self, hours: set[int]) -> None:
        """Note that these hours are marked."""
        self._marked |= hours
        self._complete_until_ms = min([self._complete_until_ms, *hours])

    async def follow(self) -> None:
        """Learn forever which hours are complete."""

        async def refresh() -> None:
            await self.refresh(time.time_ns() // 1_000_000)

        await repeat(refresh, _FOLLOW_S, log, "Reading which hours are complete failed; retrying.")

    async def refresh(self, now_ms: int) -> None:
        """Learn which hours are complete. Raises psycopg.Error."""
        async with self._database.pool.connection() as connection:
            due = await repository.due_hours(connection)
        current = now_ms - now_ms % HOUR_MS
        self._marked = {hour for hour in self._marked if hour >= current - HOUR_MS}
        self._complete_until_ms = min([(now_ms - _GRACE_MS) // HOUR_MS * HOUR_MS, *due])

    async def roll_up(self, now_ms: int) -> None:
        """Make roll-ups of completed hours that received minutes since they were last made. Raises psycopg.Error."""
        async with self._database.pool.connection() as connection:
            due: Mapping[int, list[UUID]] = await repository.due_hours(connection)
        for hour in sorted(hour for hour in due if hour + HOUR_MS + _GRACE_MS <= now_ms):
            await self._make(hour)
            async with self._database.connection() as connection:
                await repository.delete_due_hours(connection, due[hour])
        await self.refresh(now_ms)

    async def _make(self, hour: int) -> None:
        start, end = from_unix_ms(hour), from_unix_ms(hour + HOUR_MS)
        async with self._database.connection() as connection:
            node_ids = await repository.nodes_to_roll_up(connection, start)
        if node_ids:
            # in another transaction: what holds a lock on telemetry_minute must not wait for who creates partitions
            async with self._database.connection() as connection:
                await partitions.create_partitions(connection, [partitions.partition_of("telemetry_hour", hour)])
        for first in range(0, len(node_ids), _NODES_A_TRANSACTION):
            await self._make_nodes(node_ids[first : first + _NODES_A_TRANSACTION], start, end)

    async def _make_nodes(self, node_ids: Sequence[int], start: datetime, end: datetime) -> None:
        """Make the hour of some nodes, without those whose rows cannot be stored."""
        try:
            async with self._database.connection() as connection:
                made: list[tuple[int, Rollup]] = []
                for node_id in node_ids:
                    parts = await repository.read_rollups(connection, "telemetry_minute", node_id, start, end)
                    made.append((node_id, merge_rollups(parts)))
                await repository.replace_hours(connection, start, made)
        except Exception as error:
            if not is_about_rows(error):
                raise
            if len(node_ids) == 1:
                return log.exception("The hour %s of node %d cannot be stored; it is left out.", start, node_ids[0])
            for node_id in node_ids:
                await self._make_nodes([node_id], start, end)
