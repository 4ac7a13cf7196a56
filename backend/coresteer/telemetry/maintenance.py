"""Maintenance of the telemetry tables, on the leader only: partitions, retention, hourly roll-ups."""

import asyncio
import logging

import psycopg

from coresteer.background import cancel
from coresteer.config import Config
from coresteer.db import Database
from coresteer.errors import DeposedError, is_database_unavailable
from coresteer.telemetry import evidence, partitions
from coresteer.telemetry.hours import HourlyRollups
from coresteer.telemetry.service import now_ms

log = logging.getLogger("coresteer.telemetry")

_MAINTAIN_EVERY_S = 60.0
_CHECK_EVIDENCE_EVERY_MS = 600_000
"""Telling the bytes of rows takes reading the tables."""
_DAY_MS = 24 * partitions.HOUR_MS


class Maintenance:
    """Creates partitions, applies retention and makes hourly roll-ups, once a minute."""

    def __init__(self, database: Database, config: Config, hourly: HourlyRollups) -> None:
        self._database = database
        self._config = config
        self._hourly = hourly
        self._evidence_checked_ms = 0
        self._partitions: set[partitions.Partition] = set()
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Start maintaining the tables."""
        self._partitions.clear()
        self._tasks = [asyncio.create_task(self._maintain_forever())]

    async def stop(self) -> None:
        """Stop maintaining the tables; what is due is done after the next start."""
        await cancel(self._tasks)

    async def _maintain_forever(self) -> None:
        while True:
            try:
                await self.maintain(now_ms())
            except DeposedError as deposed:
                return log.warning("%s", deposed)
            except Exception as error:
                if not is_database_unavailable(error) and not isinstance(error, psycopg.errors.LockNotAvailable):
                    log.exception("Maintenance of telemetry tables failed; retrying in a minute.")
            await asyncio.sleep(_MAINTAIN_EVERY_S)

    async def maintain(self, at_ms: int) -> None:
        """Create partitions, apply retention and make hourly roll-ups as of at_ms (Unix time)."""
        try:
            async with self._database.connection() as connection:
                await partitions.create_partitions(connection, partitions.present_and_next(at_ms) - self._partitions)
            self._partitions |= partitions.present_and_next(at_ms)
            await self._hourly.roll_up(at_ms)
        finally:
            await self._retain(at_ms)  # else the disk fills up, or stays full

    async def _retain(self, at_ms: int) -> None:
        retain_ms = dict.fromkeys(partitions.PARTITION_WIDTH_MS, self._config.rollup_retention_days * _DAY_MS)
        for table in ("telemetry_chunk", "telemetry_flows", "telemetry_classes"):
            retain_ms[table] = self._config.retention_days * _DAY_MS
        async with self._database.connection() as connection:
            on_disk = sum((await evidence.sizes(connection)).values())
        most_bytes = self._config.retention_bytes - on_disk
        self._partitions -= await partitions.drop_surplus(
            self._database, at_ms, retain_ms=retain_ms, most_bytes=most_bytes
        )
        share = self._config.retention_bytes * evidence.EVIDENCE_SHARE
        if on_disk > share and at_ms - self._evidence_checked_ms >= _CHECK_EVIDENCE_EVERY_MS:
            self._evidence_checked_ms = at_ms
            await evidence.delete_surplus(self._database, share)
