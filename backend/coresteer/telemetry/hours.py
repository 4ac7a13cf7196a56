"""Hourly roll-ups, merged from those of minutes; making one again gives the same result."""

from collections.abc import Iterable

from coresteer.db import Database
from coresteer.telemetry import partitions, repository
from coresteer.telemetry.partitions import HOUR_MS
from coresteer.telemetry.repository import from_unix_ms
from coresteer.telemetry.rollup import Rollup, merge_rollups

_LATEST_REPLAY_MS = 26 * HOUR_MS
"""Samples older than 24 hours are rejected, so after a start no older hour can be incomplete."""
_NODES_A_TRANSACTION = 100


class HourlyRollups:
    """Makes hourly roll-ups, again for hours that received more minutes."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._due: set[int] | None = None
        self._over_until_ms = 0

    @property
    def complete_until_ms(self) -> int:
        """Return the Unix time in ms before which telemetry_hour is complete; less while an older hour is due again."""
        unfinished: set[int] = self._due or set()
        return min([self._over_until_ms, *unfinished])

    def mark_due(self, times_ms: Iterable[int]) -> None:
        """Mark hours as due: minutes beginning at these times (Unix ms) were stored."""
        if self._due is not None:
            self._due.update(time_ms - time_ms % HOUR_MS for time_ms in times_ms)

    async def roll_up(self, now_ms: int) -> None:
        """Make roll-ups of completed hours that received minutes since they were last made. Raises psycopg.Error."""
        current = now_ms - now_ms % HOUR_MS
        if self._due is None:
            self._due = set(range(current - _LATEST_REPLAY_MS, current, HOUR_MS))
        for hour in sorted(hour for hour in self._due if hour < current):
            self._due.discard(hour)
            try:
                await self._make(hour)
            except BaseException:
                self._due.add(hour)
                raise
        self._over_until_ms = current

    async def _make(self, hour: int) -> None:
        start, end = from_unix_ms(hour), from_unix_ms(hour + HOUR_MS)
        async with self._database.pool.connection() as connection:
            node_ids = await repository.nodes_with_minutes(connection, start)
            if node_ids:
                await partitions.create_partitions(connection, [partitions.partition_of("telemetry_hour", hour)])
        for first in range(0, len(node_ids), _NODES_A_TRANSACTION):
            async with self._database.pool.connection() as connection:
                made: list[tuple[int, Rollup]] = []
                for node_id in node_ids[first : first + _NODES_A_TRANSACTION]:
                    parts = await repository.read_rollups(connection, "telemetry_minute", node_id, start, end)
                    made.append((node_id, merge_rollups(parts)))
                await repository.replace_hours(connection, start, made)
