"""Partitions of the telemetry tables: created in advance, dropped when they exceed the retention in time or bytes.

The tables are not the backend's role's: functions of their owner (migration 0023) create and drop partitions.
"""

import logging
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

import psycopg
from sqlalchemy.exc import OperationalError

from coresteer.audit.service import record
from coresteer.db import Database
from coresteer.telemetry.repository import Connection, from_unix_ms

log = logging.getLogger("coresteer.telemetry")

HOUR_MS = 3_600_000
PARTITION_WIDTH_MS = {
    "telemetry_chunk": HOUR_MS,
    "telemetry_flows": HOUR_MS,
    "telemetry_classes": HOUR_MS,
    "telemetry_minute": 24 * HOUR_MS,
    "telemetry_hour": 30 * 24 * HOUR_MS,
}
_LOCK_TIMEOUT = "2s"  # a long query, such as a dump, postpones this instead of blocking everybody behind it
_BYTES_ON_WORKERS = """
    SELECT relname, sum(size)::bigint FROM citus_shard_sizes() JOIN pg_dist_shard ON shardid = shard_id
    JOIN pg_class ON pg_class.oid = logicalrelid GROUP BY relname
"""


@dataclass(frozen=True)
class Partition:
    """One partition of a telemetry table. start_ms: of its range, Unix ms, a multiple of the table's width."""

    table: str
    start_ms: int

    @property
    def end_ms(self) -> int:
        """Return the end of the partition's range in Unix ms."""
        return self.start_ms + PARTITION_WIDTH_MS[self.table]

    @property
    def name(self) -> str:
        """Return the name of the partition's table, ``telemetry_chunk_20261121T0900`` in UTC."""
        return f"{self.table}_{from_unix_ms(self.start_ms):%Y%m%dt%H%M}"


def partition_of(table: str, time_ms: int) -> Partition:
    """Return the partition of a telemetry table for a row that begins at time_ms (Unix)."""
    return Partition(table, time_ms - time_ms % PARTITION_WIDTH_MS[table])


def present_and_next(now_ms: int) -> set[Partition]:
    """Return the current and the next partition of each telemetry table."""
    return {partition_of(t, now_ms + step * width) for t, width in PARTITION_WIDTH_MS.items() for step in (0, 1)}


async def create_partitions(connection: Connection, partitions: Iterable[Partition]) -> None:
    """Create the partitions that do not exist yet. Raises psycopg.Error, LockNotAvailable during a long query.

    Rows are for the next transaction: in one, Citus takes nothing from the backend's role after the owner's function.
    """
    await connection.execute("SELECT set_config('lock_timeout', %s, true)", (_LOCK_TIMEOUT,))
    # of two that create one at the same time, CREATE TABLE IF NOT EXISTS of the second fails
    await connection.execute("SELECT pg_advisory_xact_lock(hashtext('coresteer.partition'))")
    for partition in partitions:
        await connection.execute(
            "SELECT create_partition(%s, %s, %s, %s)",
            (partition.table, partition.name, from_unix_ms(partition.start_ms), from_unix_ms(partition.end_ms)),
        )


async def create_missing(connection: Connection, known: set[Partition], needed: set[Partition]) -> None:
    """Create and commit the needed partitions that are not known to exist, and add them to known.

    Raises psycopg.Error.
    """
    if missing := needed - known:
        await create_partitions(connection, missing)
        await connection.commit()
        known |= missing


async def partition_sizes(connection: Connection) -> dict[Partition, int]:
    """Return every telemetry partition with its bytes on disk, including indexes and out-of-line values.

    Where history is distributed, those are the bytes of all its workers together.
    """
    distributed = await connection.execute("SELECT to_regclass('pg_dist_shard') IS NOT NULL")
    on_workers: dict[str, int] = {}
    if await distributed.fetchone() == (True,):
        on_workers = dict(await (await connection.execute(_BYTES_ON_WORKERS)).fetchall())
    cursor = await connection.execute(
        """
        SELECT parent.relname, child.relname, pg_total_relation_size(child.oid)
        FROM pg_inherits
        JOIN pg_class child ON child.oid = inhrelid
        JOIN pg_class parent ON parent.oid = inhparent
        WHERE parent.relname = ANY(%s) AND parent.relkind = 'p'
        """,
        (list(PARTITION_WIDTH_MS),),
    )
    found = {}
    for table, name, size in await cursor.fetchall():
        start = datetime.strptime(name.removeprefix(f"{table}_") + "+0000", "%Y%m%dt%H%M%z")
        found[Partition(table, round(start.timestamp() * 1000))] = size + on_workers.get(name, 0)
    return found


def surplus_partitions(
    present: dict[Partition, int], now_ms: int, *, retain_ms: dict[str, int], most_bytes: float
) -> dict[Partition, str]:
    """Return the partitions to drop with the reason: all that are too old, then the oldest above most_bytes in total.

    A partition whose range has not ended is never dropped.
    """
    ended = sorted((p for p in present if p.end_ms <= now_ms), key=lambda p: (p.end_ms, p.table))
    drop = {p: "age" for p in ended if p.end_ms <= now_ms - retain_ms[p.table]}
    total = sum(size for partition, size in present.items() if partition not in drop)
    for partition in ended:
        if total > most_bytes and partition not in drop:
            drop[partition] = "bytes"
            total -= present[partition]
    return drop


async def drop_surplus(
    database: Database, now_ms: int, *, retain_ms: dict[str, int], most_bytes: float
) -> set[Partition]:
    """Apply retention: drop surplus partitions, each with an entry in the audit log, and return them.

    Those of a table that a long query reads stay for now. Raises psycopg.Error.
    """
    async with database.pool.connection() as connection:
        present = await partition_sizes(connection)
    surplus = surplus_partitions(present, now_ms, retain_ms=retain_ms, most_bytes=most_bytes)
    dropped: set[Partition] = set()
    busy: set[str] = set()
    for partition, why in surplus.items():
        if partition.table in busy:
            continue
        try:
            await _drop(database, partition, {"why": why, "bytes": present[partition]})
        except OperationalError as error:
            if not isinstance(error.orig, psycopg.errors.LockNotAvailable):
                raise
            busy.add(partition.table)
        else:
            dropped.add(partition)
    return dropped


async def _drop(database: Database, partition: Partition, detail: dict[str, str | int]) -> None:
    async with database.session() as session:
        connected = await session.connection()
        await connected.exec_driver_sql(f"SET LOCAL lock_timeout = '{_LOCK_TIMEOUT}'")
        await connected.exec_driver_sql("SELECT drop_partition(%s)", (partition.name,))
        record(session, actor="coresteer", action="retention.drop", target=partition.name, detail=detail)
    log.info("Dropped %s (%s, %d bytes).", partition.name, detail["why"], detail["bytes"])
