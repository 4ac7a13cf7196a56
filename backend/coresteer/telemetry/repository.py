"""SQL of samples and roll-ups, through psycopg because of thousands of rows a second."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import LiteralString
from uuid import UUID

import psycopg
from psycopg import AsyncConnection, AsyncCopy, sql
from psycopg.rows import TupleRow
from psycopg.types.json import Jsonb

from coresteer.telemetry.chunks import Chunk
from coresteer.telemetry.rollup import MAX_SUM, Rollup, pack_netdevs, pack_shares, unpack_netdevs, unpack_shares
from coresteer.telemetry.sample_columns import COLUMNS

Connection = AsyncConnection[TupleRow]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_ROW_BYTES = 256
"""Of a row without its columns of bytes: its header, its numbers and its entry in the index."""
_REACH = timedelta(minutes=3)
"""Longer than any chunk or minute: rows that reach into a range start at most this long before it."""

_CHUNK_NAMES = ("node_id", "t0", "t1", "first_seq", "last_seq", "samples", "cpus", "scalars", *COLUMNS)
_CHUNK_TYPES = [
    "int4",
    "timestamptz",
    "timestamptz",
    "int8",
    "int8",
    "int4",
    "int4",
    "bytea",
    *["bytea"] * len(COLUMNS),
]
_ROLLUP_HEAD = ("node_id", "t0", "t1", "samples", "cpus", "duration_s", "shares", "netdevs")
_ROLLUP_COLUMNS = {
    "interrupts": "interrupts",
    "dropped": "dropped",
    "squeezed": "squeezed",
    "rtt_p50_us": "rtt_p50_us",
    "rtt_p95_us": "rtt_p95_us",
    "rtt_p99_us": "rtt_p99_us",
    "retransmits": "tcp_retransmits",
    "agent_cpu_s": "agent_cpu_s",
    "agent_rss_bytes": "agent_rss_bytes",
}
"""Columns of scalars, with their fields in Rollup.amounts; scalars without one are in the column ``amounts``."""
_ROLLUP_NAMES = (*_ROLLUP_HEAD, *_ROLLUP_COLUMNS, "amounts")
_ROLLUP_TYPES = ["int4", "timestamptz", "timestamptz", "int4", "int4", "float8", "bytea", "bytea"]
_ROLLUP_TYPES += ["float8" if column == "agent_cpu_s" else "int8" for column in _ROLLUP_COLUMNS]
_ROLLUP_TYPES += ["jsonb"]
_OWN_FIELDS = frozenset(_ROLLUP_COLUMNS.values())
_ROLLUP_LIST = sql.SQL(", ").join(map(sql.Identifier, _ROLLUP_NAMES))
# columns by name: the next release may add some while this one still writes
_COPY_CHUNKS = sql.SQL("COPY telemetry_chunk ({}) FROM STDIN (FORMAT BINARY)").format(
    sql.SQL(", ").join(map(sql.Identifier, _CHUNK_NAMES))
)

_VIOLATIONS: dict[str, type[psycopg.IntegrityError]] = {
    "duplicate key value": psycopg.errors.UniqueViolation,
    "no partition of relation": psycopg.errors.CheckViolation,
}


def from_unix_ms(milliseconds: float, microseconds: int = 0) -> datetime:
    """Return a Unix time in ms as a datetime in UTC, exact to the microsecond."""
    return _EPOCH + timedelta(milliseconds=milliseconds, microseconds=microseconds)


def to_unix_ms(time: datetime) -> float:
    """Return a datetime as Unix time in milliseconds."""
    return (time - _EPOCH) / timedelta(milliseconds=1)


@dataclass(frozen=True)
class EncodedChunk:
    """An encoded chunk of a node's samples with its roll-ups of minutes.

    rejected: invalid samples before or between them. refusal: why the chunk itself is not stored, None if it is.
    microsecond: of its t0, which makes keys of the same millisecond unique.
    """

    node_id: int
    stream: str
    chunk: Chunk
    minutes: list[Rollup]
    rejected: int = 0
    refusal: str | None = None
    microsecond: int = 0

    def size(self) -> int:
        """Return about how many bytes the chunk and its roll-ups take in the database."""
        columns = sum(len(column) for column in self.chunk.columns.values() if column is not None)
        shares = sum(minute.peaks.size + minute.means.size for minute in self.minutes)
        return len(self.chunk.scalars) + columns + shares + _ROW_BYTES * (1 + len(self.minutes))


@dataclass(frozen=True)
class StreamPosition:
    """The last stored sample of a node's stream. rejected: how many up to it are not stored."""

    stream: str | None
    acked_seq: int
    rejected: int = 0


async def lock_positions(connection: Connection, node_ids: Sequence[int]) -> dict[int, StreamPosition]:
    """Return the last stored samples of existing nodes and lock them, so that no sample is stored twice.

    The lock lets others insert rows that refer to the nodes, in any order.
    """
    cursor = await connection.execute(
        "SELECT id, stream, acked_seq, rejected_samples FROM node WHERE id = ANY(%s) ORDER BY id FOR NO KEY UPDATE",
        (list(node_ids),),
    )
    return {node_id: StreamPosition(*position) for node_id, *position in await cursor.fetchall()}


async def set_positions(
    connection: Connection, positions: dict[int, StreamPosition], skews: Sequence[float | None]
) -> None:
    """Write the last stored samples of nodes and the time of the last contact.

    skews: clock skews in ms of the same nodes in order.
    """
    await connection.execute(
        """
        UPDATE node SET stream = new.stream, acked_seq = new.acked_seq, rejected_samples = new.rejected,
                        last_seen_at = now(), clock_skew_ms = coalesce(new.skew, node.clock_skew_ms)
        FROM unnest(%s::int[], %s::text[], %s::bigint[], %s::bigint[], %s::float8[])
          AS new (id, stream, acked_seq, rejected, skew)
        WHERE node.id = new.id
        """,
        (
            list(positions),
            [m.stream for m in positions.values()],
            [m.acked_seq for m in positions.values()],
            [m.rejected for m in positions.values()],
            list(skews),
        ),
    )


@asynccontextmanager
async def _copying(connection: Connection, statement: sql.Composed, types: Sequence[str]) -> AsyncIterator[AsyncCopy]:
    """Copy rows; what a row violates is raised as such, also where Citus passes on a worker's message as XX000."""
    try:
        async with connection.cursor() as cursor, cursor.copy(statement) as copy:
            copy.set_types(types)
            yield copy
    except psycopg.errors.InternalError_ as error:
        message = error.diag.message_primary or ""
        for beginning, violation in _VIOLATIONS.items():
            if message.startswith(beginning):
                raise violation(message) from error
        raise


async def copy_chunks(connection: Connection, encoded: Sequence[EncodedChunk]) -> None:
    """Append chunks to telemetry_chunk."""
    async with _copying(connection, _COPY_CHUNKS, _CHUNK_TYPES) as copy:
        for item in encoded:
            c = item.chunk
            t0 = from_unix_ms(c.start_ms, item.microsecond)
            head = (item.node_id, t0, from_unix_ms(c.end_ms), c.first_seq, c.last_seq, c.samples, c.cpus, c.scalars)
            await copy.write_row((*head, *(c.columns[name] for name in COLUMNS)))


async def with_free_keys(connection: Connection, item: EncodedChunk) -> EncodedChunk:
    """Return the chunk with keys that no stored row has; with its own if the node fills a millisecond with 1000 rows.

    Two streams may begin in the same millisecond when an agent restarts after its clock was set back.
    """
    microsecond = await _free_microsecond(connection, "telemetry_chunk", item.node_id, item.chunk.start_ms)
    minutes = [
        replace(each, first_seq=await _free_microsecond(connection, "telemetry_minute", item.node_id, each.start_ms))
        for each in item.minutes
    ]
    return replace(item, microsecond=microsecond, minutes=minutes)


async def _free_microsecond(connection: Connection, table: LiteralString, node_id: int, ms: int) -> int:
    cursor = await connection.execute(
        sql.SQL("SELECT t0 FROM {} WHERE node_id = %s AND t0 >= %s AND t0 < %s").format(sql.Identifier(table)),
        (node_id, from_unix_ms(ms), from_unix_ms(ms + 1)),
    )
    used = {t0.microsecond % 1000 for (t0,) in await cursor.fetchall()}
    return next((free for free in range(1000) if free not in used), 0)


def _rollup_row(node_id: int, r: Rollup) -> tuple[object, ...]:
    head = (
        node_id,
        from_unix_ms(r.start_ms, r.first_seq % 1000),
        from_unix_ms(r.end_ms),
        r.samples,
        r.cpus,
        r.duration_s,
    )
    amounts = map(r.amounts.get, _ROLLUP_COLUMNS.values())
    own = [None if amount is None else min(amount, MAX_SUM) for amount in amounts]
    more = {field: amount for field, amount in r.amounts.items() if field not in _OWN_FIELDS}
    return (*head, pack_shares(r), pack_netdevs(r), *own, Jsonb(more) if more else None)


def _copy_rollups(table: LiteralString) -> sql.Composed:
    return sql.SQL("COPY {} ({}) FROM STDIN (FORMAT BINARY)").format(sql.Identifier(table), _ROLLUP_LIST)


async def copy_minutes(connection: Connection, rollups: Sequence[tuple[int, Rollup]]) -> None:
    """Append (node id, roll-up) pairs to telemetry_minute."""
    async with _copying(connection, _copy_rollups("telemetry_minute"), _ROLLUP_TYPES) as copy:
        for node_id, rollup in rollups:
            await copy.write_row(_rollup_row(node_id, rollup))


async def replace_hours(connection: Connection, start: datetime, rollups: Sequence[tuple[int, Rollup]]) -> None:
    """Replace these nodes' roll-ups of the hour that begins at start in telemetry_hour."""
    # rows that Citus writes on a worker give the transaction no id here, by which the leader's fence knows of a write
    await connection.execute("SELECT pg_current_xact_id()")
    await connection.execute(
        "DELETE FROM telemetry_hour WHERE t0 >= %s AND t0 < %s AND node_id = ANY(%s)",
        (start, start + timedelta(hours=1), [node_id for node_id, _ in rollups]),
    )
    async with _copying(connection, _copy_rollups("telemetry_hour"), _ROLLUP_TYPES) as copy:
        for node_id, rollup in rollups:
            await copy.write_row(_rollup_row(node_id, rollup))


def _to_rollup(row: TupleRow) -> Rollup:
    _, t0, t1, samples, cpus, duration_s, shares, netdevs, *own, more = row
    peaks, means = unpack_shares(shares, cpus)
    head = (int(to_unix_ms(t0)), int(to_unix_ms(t1)), t0.microsecond % 1000, samples, duration_s, cpus)
    amounts = {field: amount for field, amount in zip(_ROLLUP_COLUMNS.values(), own, strict=True) if amount is not None}
    return Rollup(*head, peaks, means, unpack_netdevs(netdevs), amounts | (more or {}))


async def add_due_hours(connection: Connection, hours: Sequence[int]) -> None:
    """Mark hours (their beginnings, Unix ms) as due to be rolled up."""
    starts = [from_unix_ms(hour) for hour in hours]
    await connection.execute("INSERT INTO telemetry_hour_due (hour) SELECT * FROM unnest(%s::timestamptz[])", (starts,))


async def due_hours(connection: Connection) -> dict[int, list[UUID]]:
    """Return the hours that are due (their beginnings, Unix ms), each with the ids of its marks."""
    cursor = await connection.execute("SELECT hour, array_agg(id) FROM telemetry_hour_due GROUP BY hour")
    return {round(to_unix_ms(hour)): ids for hour, ids in await cursor.fetchall()}


async def delete_due_hours(connection: Connection, ids: Sequence[UUID]) -> None:
    """Delete marks of hours that have been rolled up since they were read."""
    await connection.execute("DELETE FROM telemetry_hour_due WHERE id = ANY(%s)", (list(ids),))


async def nodes_to_roll_up(connection: Connection, start: datetime) -> list[int]:
    """Return the ids of nodes whose roll-up of the hour that begins at start lacks samples that their minutes have."""
    cursor = await connection.execute(
        """
        SELECT node_id FROM (
            SELECT node_id, sum(samples) AS samples FROM telemetry_minute
            WHERE t0 >= %(start)s AND t0 < %(end)s GROUP BY node_id
        ) AS minutes LEFT JOIN (
            SELECT node_id, samples FROM telemetry_hour WHERE t0 >= %(start)s AND t0 < %(end)s
        ) AS hours USING (node_id)
        WHERE hours.samples IS DISTINCT FROM minutes.samples ORDER BY node_id
        """,
        {"start": start, "end": start + timedelta(hours=1)},
    )
    return [node_id for (node_id,) in await cursor.fetchall()]


async def read_rollups(
    connection: Connection, table: LiteralString, node_id: int, start: datetime, end: datetime
) -> list[Rollup]:
    """Return a node's roll-ups in telemetry_minute or telemetry_hour that begin in the range, in order."""
    statement = sql.SQL("SELECT {} FROM {} WHERE node_id = %s AND t0 >= %s AND t0 < %s ORDER BY t0").format(
        _ROLLUP_LIST, sql.Identifier(table)
    )
    async with connection.cursor(binary=True) as cursor:
        await cursor.execute(statement, (node_id, start, end))
        return [_to_rollup(row) for row in await cursor.fetchall()]


async def read_rollups_of_nodes(
    connection: Connection, table: LiteralString, node_ids: Sequence[int], start: datetime, end: datetime
) -> list[TupleRow]:
    """Return rows for decode_rollups: roll-ups of these nodes that begin in the range, ordered by node and time."""
    statement = sql.SQL(
        "SELECT {} FROM {} WHERE node_id = ANY(%s) AND t0 >= %s AND t0 < %s ORDER BY node_id, t0"
    ).format(_ROLLUP_LIST, sql.Identifier(table))
    async with connection.cursor(binary=True) as cursor:
        await cursor.execute(statement, (list(node_ids), start, end))
        return await cursor.fetchall()


def decode_rollups(rows: Sequence[TupleRow]) -> dict[int, list[Rollup]]:
    """Return the roll-ups of read_rollups_of_nodes by node."""
    found: dict[int, list[Rollup]] = {}
    for row in rows:
        found.setdefault(row[0], []).append(_to_rollup(row))
    return found


async def read_chunks(
    connection: Connection, node_id: int, start: datetime, end: datetime, columns: Sequence[str]
) -> list[TupleRow]:
    """Return (samples, cpus, scalars, *columns) of a node's chunks that overlap the range, in order."""
    names = ("samples", "cpus", "scalars", *columns)
    return await _read_together(connection, "telemetry_chunk", names, (node_id, start - _REACH, end, start), "t1 >= %s")


async def read_shares(
    connection: Connection, table: LiteralString, node_id: int, start: datetime, end: datetime
) -> list[TupleRow]:
    """Return (t0, t1, cpus, shares) of a node's roll-ups that begin in the range, in order; see unpack_shares."""
    return await _read_together(connection, table, ("t0", "t1", "cpus", "shares"), (node_id, start, end))


async def _read_together(
    connection: Connection,
    table: LiteralString,
    names: Sequence[LiteralString],
    parameters: Sequence[object],
    condition: LiteralString = "true",
) -> list[TupleRow]:
    """Return columns of a node's rows in order.

    The server sends the rows of a quarter of an hour as arrays in one message: of a row by itself a busy event loop
    reads one or few in each iteration.
    """
    arrays = sql.SQL(", ").join(sql.SQL("array_agg({} ORDER BY t0)").format(sql.Identifier(name)) for name in names)
    statement = sql.SQL(
        "SELECT {} FROM {} WHERE node_id = %s AND t0 >= %s AND t0 < %s AND {}"
        " GROUP BY date_bin('15 minutes', t0, 'epoch') ORDER BY date_bin('15 minutes', t0, 'epoch')"
    ).format(arrays, sql.Identifier(table), sql.SQL(condition))
    async with connection.cursor(binary=True) as cursor:
        await cursor.execute(statement, parameters)
        return [row for arrays in await cursor.fetchall() for row in zip(*arrays, strict=True)]


async def has_older_minutes(connection: Connection, node_id: int, start: datetime, end: datetime) -> bool:
    """Return whether a node has roll-ups of minutes in a range from before its oldest samples of the range."""
    cursor = await connection.execute(
        """
        SELECT EXISTS (
            SELECT FROM telemetry_minute
            WHERE node_id = %(node)s AND t0 >= %(minutes)s AND t0 < %(end)s AND t1 <= coalesce((
                SELECT min(t0) FROM telemetry_chunk WHERE node_id = %(node)s AND t0 >= %(chunks)s AND t0 < %(end)s
            ), 'infinity')
        )
        """,
        {"node": node_id, "minutes": start - timedelta(minutes=1), "chunks": start - 2 * _REACH, "end": end},
    )
    return await cursor.fetchone() == (True,)


async def stored_span(connection: Connection, node_id: int) -> tuple[datetime, datetime] | None:
    """Return from when until when samples of a node are stored, None without any."""
    cursor = await connection.execute(
        "SELECT (SELECT t0 FROM telemetry_chunk WHERE node_id = %(node)s ORDER BY t0 LIMIT 1),"
        " (SELECT t1 FROM telemetry_chunk WHERE node_id = %(node)s ORDER BY t0 DESC LIMIT 1)",
        {"node": node_id},
    )
    first, last = await cursor.fetchone() or (None, None)
    return None if first is None or last is None else (first, last)
