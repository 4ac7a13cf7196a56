"""Stores what agents report about service classes: one row per minute, policy and node."""

import asyncio
import logging
import time
from collections import deque
from dataclasses import dataclass

import psycopg

from coresteer.background import cancel, repeat
from coresteer.classes import repository
from coresteer.classes.chunks import MAX_CHUNK_MS, encode
from coresteer.classes.repository import ClassChunkRow
from coresteer.db import Database
from coresteer.presence.registry import MAX_POLICIES
from coresteer.quotas import Peer, Quotas, Stored
from coresteer.telemetry import partitions
from coresteer_core.protocol import ClassesMessage

log = logging.getLogger("coresteer.classes")

_WRITE_EVERY_S = 1.0
_ROWS_PER_TRANSACTION = 500
_MAX_QUEUED = 20_000
_MIN_INTERVAL_MS = 500


@dataclass(frozen=True)
class _Open:
    """Reports that will become one row, and when the first arrived (monotonic seconds)."""

    since_s: float
    messages: list[ClassesMessage]

    def accepts(self, message: ClassesMessage) -> bool:
        first, names = self.messages[0], [one.name for one in message.classes]
        is_near = 0 < message.time_ms - first.time_ms < MAX_CHUNK_MS
        return is_near and names == [one.name for one in first.classes]


class ClassReportStore:
    """Stores figures of service classes in the background.

    The queue is bounded: while the database is unavailable, the oldest rows are dropped.
    """

    def __init__(self, database: Database, quotas: Quotas) -> None:
        self._database = database
        self._quotas = quotas
        self._open: dict[int, dict[int, _Open]] = {}
        self._queue: deque[ClassChunkRow] = deque(maxlen=_MAX_QUEUED)
        self._partitions: set[partitions.Partition] = set()
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Start writing queued reports once a second."""
        failure = "Storing figures of service classes failed; retrying."
        self._tasks = [asyncio.create_task(repeat(self.flush, _WRITE_EVERY_S, log, failure))]

    async def stop(self) -> None:
        """Stop after one attempt to write what is queued."""
        await cancel(self._tasks)
        try:
            await self.flush(everything=True)
        except Exception as error:
            log.warning("Queued figures of service classes were lost at shutdown: %r", error)

    def add_report(self, node_id: int, message: ClassesMessage) -> None:
        """Queue a validated report; those without classes or within 0.5 s of the one before are dropped."""
        if not message.classes:
            return
        of_node, policy_id = self._open.setdefault(node_id, {}), int(message.policy_id)
        opened = of_node.get(policy_id)
        if opened is not None:
            if abs(message.time_ms - opened.messages[-1].time_ms) < _MIN_INTERVAL_MS:
                return
            if opened.accepts(message) and message.time_ms > opened.messages[-1].time_ms:
                opened.messages.append(message)
                return
            self._seal(node_id, policy_id)
        if len(of_node) < MAX_POLICIES:
            self._open.setdefault(node_id, {})[policy_id] = _Open(time.monotonic(), [message])

    async def read_chunks(self, node_id: int, start_ms: float, end_ms: float) -> list[tuple[int, bytes]]:
        """Return policy ids and chunks of a node's range in order of time, including those not yet stored."""
        unstored = [(row.policy_id, row.data) for row in self._queue if row.node_id == node_id]
        unstored += [(policy_id, encode(one.messages)) for policy_id, one in self._open.get(node_id, {}).items()]
        # what is stored meanwhile is read twice, which has no effect
        async with self._database.pool.connection() as connection:
            return await repository.read_chunks(connection, node_id, start_ms, end_ms) + unstored

    def _seal(self, node_id: int, policy_id: int) -> None:
        messages = self._open[node_id].pop(policy_id).messages
        data = encode(messages)
        if self._quotas.admit(Peer("node", node_id), Stored.TELEMETRY, len(data)):
            self._queue.append(ClassChunkRow(node_id, policy_id, messages[0].time_ms, data))

    def _seal_older_than(self, since_s: float) -> None:
        for node_id, opened in list(self._open.items()):
            for policy_id in [policy_id for policy_id, one in opened.items() if one.since_s <= since_s]:
                self._seal(node_id, policy_id)
            if not opened:
                del self._open[node_id]

    async def flush(self, *, everything: bool = False) -> None:
        """Write complete rows, or everything, to the database; what fails stays queued."""
        now_s = time.monotonic()
        self._seal_older_than(now_s if everything else now_s - MAX_CHUNK_MS / 1000)
        while self._queue:
            rows = [self._queue[at] for at in range(min(len(self._queue), _ROWS_PER_TRANSACTION))]
            try:
                async with self._database.pool.connection() as connection:
                    needed = {partitions.partition_of("telemetry_classes", row.time_ms) for row in rows}
                    await partitions.create_missing(connection, self._partitions, needed)
                    await repository.insert_chunks(connection, rows)
            except psycopg.IntegrityError:  # a partition that was dropped meanwhile is created again
                self._partitions.clear()
                raise
            for row in rows:
                if self._queue and self._queue[0] is row:  # else the bounded queue has dropped it
                    self._queue.popleft()
