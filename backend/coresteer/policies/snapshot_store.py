"""Stores what backtests need besides samples: flows as they arrive, topology and inventory when they change."""

import asyncio
import hashlib
import logging
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import msgspec
import psycopg

from coresteer.background import cancel, repeat
from coresteer.config import Config
from coresteer.db import Database
from coresteer.quotas import Peer, Quotas, Stored
from coresteer.telemetry import partitions
from coresteer.telemetry.byte_columns import compress, decompress
from coresteer.telemetry.repository import Connection, from_unix_ms, to_unix_ms
from coresteer_core.node.inventory import Inventory
from coresteer_core.node.topology import Topology
from coresteer_core.policies.base import ROUND_PERIOD_S
from coresteer_core.protocol import FlowsMessage

log = logging.getLogger("coresteer.policies")

_WRITE_EVERY_S = 1.0
_ROWS_A_TRANSACTION = 500
_MAX_QUEUED = 20_000
_MIN_INTERVAL_MS = ROUND_PERIOD_S * 1000 / 2
_DELETE_EXPIRED_EVERY_S = 600.0
_NOT_DELETED = "Deleting expired decisions, drifts and snapshots failed; retrying in 10 minutes."
_EARLY_REPORTS_LAST = timedelta(days=1)


@dataclass(frozen=True)
class _Snapshot:
    node_id: int
    kind: str
    at: datetime
    data: bytes


class SnapshotStore:
    """Stores flows, topologies and inventories in the background.

    Queues are bounded: while the database is unavailable, the oldest flows are dropped.
    """

    def __init__(
        self, database: Database, config: Config, skew_ms: Callable[[int], float | None], quotas: Quotas
    ) -> None:
        self._database = database
        self._quotas = quotas
        self._config = config
        self._skew_ms = skew_ms
        self._flows: deque[tuple[int, int, bytes]] = deque(maxlen=_MAX_QUEUED)
        self._last_ms: dict[int, int] = {}
        self._snapshots: dict[tuple[int, str], _Snapshot] = {}
        self._partitions: set[partitions.Partition] = set()
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Start writing queued flows and snapshots once a second."""
        write = repeat(self.flush, _WRITE_EVERY_S, log, "Storing flows failed; retrying.")
        delete = repeat(lambda: self.delete_expired(datetime.now(UTC)), _DELETE_EXPIRED_EVERY_S, log, _NOT_DELETED)
        self._tasks = [asyncio.create_task(write), asyncio.create_task(delete)]

    async def stop(self) -> None:
        """Stop after one attempt to write what is queued."""
        await cancel(self._tasks)
        try:
            await self.flush()
        except Exception as error:
            log.warning("Queued flows were lost at shutdown: %r", error)

    def add_flows(self, node_id: int, time_ms: int, data: bytes) -> None:
        """Queue flows of a node; those above its quota or between two evaluations of policies are dropped.

        data: the validated FlowsMessage, encoded and compressed.
        """
        if abs(time_ms - self._last_ms.get(node_id, 0)) < _MIN_INTERVAL_MS:
            return
        self._last_ms[node_id] = time_ms
        if self._quotas.admit(Peer("node", node_id), Stored.TELEMETRY, len(data)):
            self._flows.append((node_id, time_ms, data))

    def add_snapshot(self, node_id: int, what: Topology | Inventory) -> None:
        """Queue a validated topology or inventory of a node, timed by the node's clock."""
        kind = "topology" if isinstance(what, Topology) else "inventory"
        at = datetime.now(UTC) + timedelta(milliseconds=self._skew_ms(node_id) or 0)
        self._snapshots[node_id, kind] = _Snapshot(node_id, kind, at, msgspec.msgpack.encode(what))

    async def flush(self) -> None:
        """Write everything queued to the database; what fails stays queued."""
        while self._flows or self._snapshots:
            flows = [self._flows[at] for at in range(min(len(self._flows), _ROWS_A_TRANSACTION))]
            snapshots = dict(list(self._snapshots.items())[:_ROWS_A_TRANSACTION])
            try:
                async with self._database.pool.connection() as connection:
                    needed = {partitions.partition_of("telemetry_flows", time_ms) for _, time_ms, _ in flows}
                    await partitions.create_missing(connection, self._partitions, needed)
                    await _insert(connection, flows, list(snapshots.values()))
            except psycopg.IntegrityError:  # a partition that was dropped meanwhile is created again
                self._partitions.clear()
                raise
            for row in flows:
                if self._flows and self._flows[0] is row:  # else the bounded queue has dropped it
                    self._flows.popleft()
            for key, snapshot in snapshots.items():
                if self._snapshots.get(key) is snapshot:
                    del self._snapshots[key]

    async def delete_expired(self, now: datetime) -> None:
        """Delete expired decisions, drifts, early reports and snapshots.

        The newest snapshot before the oldest sample is still needed and stays.
        """
        self._partitions.clear()
        samples_begin = now - timedelta(days=self._config.retention_days)
        rollups_begin = now - timedelta(days=self._config.rollup_retention_days)
        async with self._database.pool.connection() as connection:
            await connection.execute(
                """
                DELETE FROM node_snapshot old WHERE at < %s AND EXISTS (
                    SELECT FROM node_snapshot newer WHERE newer.node_id = old.node_id AND newer.kind = old.kind
                    AND newer.at > old.at AND newer.at <= %s
                )
                """,
                (samples_begin, samples_begin),
            )
            # decisions without a change are frequent and large (a sentence for each interrupt); without the samples
            # that they can be compared with in a backtest they have no use
            await connection.execute(
                """
                DELETE FROM decision old WHERE at < %s AND change_id IS NULL AND EXISTS (
                    SELECT FROM decision newer
                    WHERE newer.node_id = old.node_id AND newer.policy_id = old.policy_id AND newer.id > old.id
                )
                """,
                (samples_begin,),
            )
            await connection.execute("DELETE FROM decision WHERE at < %s", (rollups_begin,))
            await connection.execute("DELETE FROM drift WHERE at < %s", (rollups_begin,))
            await connection.execute("DELETE FROM early_report WHERE at < %s", (now - _EARLY_REPORTS_LAST,))


async def _insert(
    connection: Connection, flows: Sequence[tuple[int, int, bytes]], snapshots: Sequence[_Snapshot]
) -> None:
    async with connection.cursor() as cursor:
        # both skip nodes that were deleted meanwhile; %b, because as text each byte is two digits
        await cursor.execute(
            """
            INSERT INTO telemetry_flows (node_id, t0, data)
            SELECT node.id, new.t0, new.data
            FROM unnest(%b::int[], %b::timestamptz[], %b::bytea[]) AS new (node_id, t0, data)
            JOIN node ON node.id = new.node_id
            FOR KEY SHARE OF node ON CONFLICT DO NOTHING
            """,
            (
                [node_id for node_id, _, _ in flows],
                [from_unix_ms(time_ms) for _, time_ms, _ in flows],
                [data for _, _, data in flows],
            ),
        )
        if not snapshots:
            return
        await cursor.executemany(
            """
            INSERT INTO node_snapshot (node_id, kind, at, digest, data)
            SELECT id, %(kind)s, %(at)s, %(digest)s, %(data)s FROM node
            WHERE id = %(node_id)s AND %(digest)s IS DISTINCT FROM (
                SELECT digest FROM node_snapshot
                WHERE node_id = %(node_id)s AND kind = %(kind)s ORDER BY at DESC LIMIT 1
            )
            ON CONFLICT DO NOTHING
            """,
            [
                {
                    "node_id": snapshot.node_id,
                    "kind": snapshot.kind,
                    "at": snapshot.at,
                    "digest": hashlib.sha256(snapshot.data).digest(),
                    "data": compress(snapshot.data),
                }
                for snapshot in snapshots
            ],
        )


async def read_flows(connection: Connection, node_id: int, start: datetime, end: datetime) -> list[bytes]:
    """Return a node's encoded flows of a time range, in order; decode_flows decodes them."""
    cursor = await connection.execute(
        "SELECT data FROM telemetry_flows WHERE node_id = %s AND t0 >= %s AND t0 <= %s ORDER BY t0",
        (node_id, start, end),
    )
    return [data for (data,) in await cursor.fetchall()]


def decode_flows(data: bytes) -> FlowsMessage:
    """Decode one item of read_flows, also one that commit 602788d stored, where RX placements are called landings."""
    stored = decompress(data)
    try:
        return msgspec.msgpack.decode(stored, type=FlowsMessage)
    except msgspec.ValidationError:
        message = msgspec.msgpack.decode(stored)
        for task in message["tasks"]:
            task["rx_placements"] = task.pop("landings")
        return msgspec.convert(message, FlowsMessage)


async def read_topologies(
    connection: Connection, node_id: int, start: datetime, end: datetime
) -> list[tuple[float, Topology]]:
    """Return the node's topologies valid in a range, each with its Unix ms; the first may begin before it."""
    rows = await _read_snapshots(connection, node_id, "topology", start, end)
    return [(since_ms, msgspec.msgpack.decode(data, type=Topology)) for since_ms, data in rows]


async def read_inventories(
    connection: Connection, node_id: int, start: datetime, end: datetime
) -> list[tuple[float, Inventory]]:
    """Return the node's inventories valid in a range, each with its Unix ms; the first may begin before it."""
    rows = await _read_snapshots(connection, node_id, "inventory", start, end)
    return [(since_ms, msgspec.msgpack.decode(data, type=Inventory)) for since_ms, data in rows]


async def _read_snapshots(
    connection: Connection, node_id: int, kind: str, start: datetime, end: datetime
) -> list[tuple[float, bytes]]:
    cursor = await connection.execute(
        """
        WITH of_kind AS (SELECT at, data FROM node_snapshot WHERE node_id = %(node)s AND kind = %(kind)s)
        SELECT at, data FROM of_kind
        WHERE at <= %(end)s AND at >= coalesce((SELECT max(at) FROM of_kind WHERE at <= %(start)s), %(start)s)
        ORDER BY at
        """,
        {"node": node_id, "kind": kind, "start": start, "end": end},
    )
    return [(to_unix_ms(at), decompress(data)) for at, data in await cursor.fetchall()]
