"""The telemetry tables' partitions: made ahead of time, dropped whole when they are too old or too many bytes."""

import logging
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from psycopg import sql

from coresteer.audit.service import record
from coresteer.db import Database
from coresteer.telemetry.repository import Connection, at_ms

log = logging.getLogger("coresteer.telemetry")

HOUR_MS = 3_600_000
WIDTH_MS = {
    "telemetry_chunk": HOUR_MS,
    "telemetry_flows": HOUR_MS,
    "telemetry_classes": HOUR_MS,
    "telemetry_minute": 24 * HOUR_MS,
    "telemetry_hour": 30 * 24 * HOUR_MS,
}
_LOCK_TIMEOUT = "2s"  # a partition is dropped later rather than holding up every reader behind a long query


@dataclass(frozen=True)
class Partition:
    """One partition, by its table and where its range begins (Unix time, a multiple of the table's width)."""

    table: str
    start_ms: int

    @property
    def end_ms(self) -> int:
        """Where its range ends."""
        return self.start_ms + WIDTH_MS[self.table]

    @property
    def name(self) -> str:
        """``telemetry_chunk_20261121T0900``, in UTC."""
        return f"{self.table}_{at_ms(self.start_ms):%Y%m%dt%H%M}"


def partition_of(table: str, time_ms: int) -> Partition:
    """The partition that a row beginning at time_ms belongs to."""
    return Partition(table, time_ms - time_ms % WIDTH_MS[table])


def ahead(now_ms: int) -> set[Partition]:
    """The present partition of each table and the next."""
    return {partition_of(t, now_ms + step * width) for t, width in WIDTH_MS.items() for step in (0, 1)}


async def create(connection: Connection, partitions: Iterable[Partition]) -> None:
    """Make those that do not exist."""
    for partition in partitions:
        await connection.execute(
            sql.SQL("CREATE TABLE IF NOT EXISTS {} PARTITION OF {} FOR VALUES FROM ({}) TO ({})").format(
                sql.Identifier(partition.name),
                sql.Identifier(partition.table),
                sql.Literal(at_ms(partition.start_ms)),
                sql.Literal(at_ms(partition.end_ms)),
            )
        )


async def sizes(connection: Connection) -> dict[Partition, int]:
    """Every partition with its bytes on disk, indexes and out-of-line values included."""
    cursor = await connection.execute(
        """
        SELECT parent.relname, child.relname, pg_total_relation_size(child.oid)
        FROM pg_inherits
        JOIN pg_class child ON child.oid = inhrelid
        JOIN pg_class parent ON parent.oid = inhparent
        WHERE parent.relname = ANY(%s) AND parent.relkind = 'p'
        """,
        (list(WIDTH_MS),),
    )
    found = {}
    for table, name, size in await cursor.fetchall():
        start = datetime.strptime(name.removeprefix(f"{table}_") + "+0000", "%Y%m%dt%H%M%z")
        found[Partition(table, round(start.timestamp() * 1000))] = size
    return found


def surplus(
    present: dict[Partition, int], now_ms: int, *, keep_ms: dict[str, int], most_bytes: int
) -> dict[Partition, str]:
    """What is to be dropped and why: all that is too old, then the oldest until the rest fits into most_bytes.

    A partition whose time is not over is never dropped.
    """
    drop: dict[Partition, str] = {}
    total = sum(present.values())
    for partition in sorted(present, key=lambda p: (p.end_ms, p.table)):
        if partition.end_ms > now_ms:
            continue
        if partition.end_ms <= now_ms - keep_ms[partition.table]:
            drop[partition] = "age"
        elif total > most_bytes:
            drop[partition] = "bytes"
        else:
            continue
        total -= present[partition]
    return drop


async def retain(database: Database, now_ms: int, *, keep_ms: dict[str, int], most_bytes: int) -> set[Partition]:
    """Drop what is surplus, with an entry in the audit log for each; what was dropped."""
    async with database.pool.connection() as connection:
        present = await sizes(connection)
    dropped = surplus(present, now_ms, keep_ms=keep_ms, most_bytes=most_bytes)
    for partition, why in dropped.items():
        async with database.session() as session:
            connected = await session.connection()
            await connected.exec_driver_sql(f"SET LOCAL lock_timeout = '{_LOCK_TIMEOUT}'")
            await connected.exec_driver_sql(f'DROP TABLE IF EXISTS "{partition.name}"')
            record(
                session,
                actor="coresteer",
                action="retention.drop",
                target=partition.name,
                detail={"why": why, "bytes": present[partition]},
            )
        log.info("Dropped %s (%s, %d bytes).", partition.name, why, present[partition])
    return set(dropped)
