"""Roll-ups by the hour, made of those by the minute; making one again gives the same."""

from collections.abc import Iterable

from coresteer.db import Database
from coresteer.telemetry import partitions, repository
from coresteer.telemetry.partitions import HOUR_MS
from coresteer.telemetry.repository import at_ms
from coresteer.telemetry.rollup import Rollup, merge

_LATEST_REPLAY_MS = 26 * HOUR_MS
"""Samples are refused when they are more than 24 hours old, so after a start no older hour can be unfinished."""
_NODES_A_TRANSACTION = 100


class Upkeep:
    """Knows which hours must be made (again)."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._due: set[int] | None = None
        self._over_until_ms = 0

    @property
    def stored_until_ms(self) -> int:
        """Before it telemetry_hour is complete; a replay into an older hour takes it back until that is made again."""
        unfinished: set[int] = self._due or set()
        return min([self._over_until_ms, *unfinished])

    def touched(self, times_ms: Iterable[int]) -> None:
        """Minutes that begin at these times were stored."""
        if self._due is not None:
            self._due.update(time_ms - time_ms % HOUR_MS for time_ms in times_ms)

    async def roll_up(self, now_ms: int) -> None:
        """Make every hour that is over and got minutes since it was last made."""
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
        start, end = at_ms(hour), at_ms(hour + HOUR_MS)
        async with self._database.pool.connection() as connection:
            node_ids = await repository.nodes_with_minutes(connection, start)
            if node_ids:
                await partitions.create(connection, [partitions.partition_of("telemetry_hour", hour)])
        for first in range(0, len(node_ids), _NODES_A_TRANSACTION):
            async with self._database.pool.connection() as connection:
                made: list[tuple[int, Rollup]] = []
                for node_id in node_ids[first : first + _NODES_A_TRANSACTION]:
                    parts = await repository.read_rollups(connection, "telemetry_minute", node_id, start, end)
                    made.append((node_id, merge(parts)))
                await repository.put_hours(connection, start, made)
