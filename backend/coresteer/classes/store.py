"""Keeps what agents tell of their service classes, a row for each minute of a policy on a node."""

import asyncio
import logging
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

import psycopg

from coresteer.classes import repository
from coresteer.classes.chunks import LONGEST_MS, encode
from coresteer.classes.repository import Row
from coresteer.db import Database
from coresteer.errors import is_database_away
from coresteer.telemetry import partitions
from coresteer.telemetry.repository import Connection
from coresteer_core.protocol import ClassesMessage

log = logging.getLogger("coresteer.classes")

MOST_POLICIES = 16
"""Of one node at once; the words of others are not kept."""
_WRITE_EVERY_S = 1.0
_ROWS_A_TRANSACTION = 500
_MOST_WAITING = 20_000
_LEAST_APART_MS = 500


@dataclass(frozen=True)
class _Open:
    """Words that become one row, and when the first came (monotonic)."""

    since_s: float
    messages: list[ClassesMessage]

    def takes(self, message: ClassesMessage) -> bool:
        first, names = self.messages[0], [one.name for one in message.classes]
        is_near = 0 < message.time_ms - first.time_ms < LONGEST_MS
        return is_near and names == [one.name for one in first.classes]


class ClassReportStore:
    """What waits is bounded: what the database cannot take for long is lost, oldest first."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._open: dict[int, dict[int, _Open]] = {}
        self._waiting: deque[Row] = deque(maxlen=_MOST_WAITING)
        self._partitions: set[partitions.Partition] = set()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to keep."""
        self._task = asyncio.create_task(self._write_forever())

    async def stop(self) -> None:
        """End, with what waits written if that is possible."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        try:
            await self.write(everything=True)
        except Exception as error:
            log.warning("Figures of service classes that were not stored before the end are lost: %r", error)

    def add(self, node_id: int, message: ClassesMessage) -> None:
        """Checked word of a node; more often than twice a second, and without any class, it is not kept."""
        if not message.classes:
            return
        of_node, policy_id = self._open.setdefault(node_id, {}), int(message.policy_id)
        opened = of_node.get(policy_id)
        if opened is not None:
            if abs(message.time_ms - opened.messages[-1].time_ms) < _LEAST_APART_MS:
                return
            if opened.takes(message) and message.time_ms > opened.messages[-1].time_ms:
                opened.messages.append(message)
                return
            self._seal(node_id, policy_id)
        if len(of_node) < MOST_POLICIES:
            self._open.setdefault(node_id, {})[policy_id] = _Open(time.monotonic(), [message])

    async def read(self, node_id: int, start_ms: float, end_ms: float) -> list[tuple[int, bytes]]:
        """Policy ids and chunks of a node's range in order of time, also of what is not stored yet."""
        unstored = [(row.policy_id, row.data) for row in self._waiting if row.node_id == node_id]
        unstored += [(policy_id, encode(one.messages)) for policy_id, one in self._open.get(node_id, {}).items()]
        # what is stored meanwhile is read twice, which changes nothing
        async with self._database.pool.connection() as connection:
            return await repository.read(connection, node_id, start_ms, end_ms) + unstored

    def _seal(self, node_id: int, policy_id: int) -> None:
        messages = self._open[node_id].pop(policy_id).messages
        self._waiting.append(Row(node_id, policy_id, messages[0].time_ms, encode(messages)))

    def _seal_older_than(self, since_s: float) -> None:
        for node_id, opened in list(self._open.items()):
            for policy_id in [policy_id for policy_id, one in opened.items() if one.since_s <= since_s]:
                self._seal(node_id, policy_id)
            if not opened:
                del self._open[node_id]

    async def _write_forever(self) -> None:
        while True:
            await asyncio.sleep(_WRITE_EVERY_S)
            try:
                await self.write()
            except Exception as error:
                if not is_database_away(error):
                    log.exception("Figures of service classes could not be stored; trying again.")

    async def write(self, *, everything: bool = False) -> None:
        """What is due, or everything. What fails stays and is tried again."""
        now_s = time.monotonic()
        self._seal_older_than(now_s if everything else now_s - LONGEST_MS / 1000)
        while self._waiting:
            rows = [self._waiting[at] for at in range(min(len(self._waiting), _ROWS_A_TRANSACTION))]
            try:
                async with self._database.pool.connection() as connection:
                    await self._make_partitions(connection, rows)
                    await repository.insert(connection, rows)
            except psycopg.IntegrityError:  # a partition that was dropped meanwhile is made again
                self._partitions.clear()
                raise
            for row in rows:
                if self._waiting and self._waiting[0] is row:  # else it was lost already
                    self._waiting.popleft()

    async def _make_partitions(self, connection: Connection, rows: Sequence[Row]) -> None:
        needed = {partitions.partition_of("telemetry_classes", row.time_ms) for row in rows}
        if missing := needed - self._partitions:
            await partitions.create(connection, missing)
            await connection.commit()
            self._partitions |= missing
