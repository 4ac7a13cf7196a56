"""The ingest of telemetry: buffers agents' samples, stores them, and acknowledges them after the commit."""

import asyncio
import itertools
import logging
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

import psycopg

from coresteer.background import cancel
from coresteer.config import Config
from coresteer.db import Database
from coresteer.errors import is_about_rows, is_database_unavailable
from coresteer.instruments import SAMPLES_REJECTED, SAMPLES_STORED
from coresteer.quotas import Peer, Quotas, Stored
from coresteer.telemetry import partitions, repository
from coresteer.telemetry.connections import AgentConnections
from coresteer.telemetry.hours import HourlyRollups
from coresteer.telemetry.repository import EncodedChunk, StreamPosition
from coresteer.telemetry.sample_buffer import Batch, SampleBlock, SampleBuffer, encode_batch, unencoded
from coresteer.telemetry.sample_columns import SampleColumns
from coresteer_core.node.rates import Rates
from coresteer_core.protocol import BLOCK_S, LONG_BLOCKS, SUMMARY_S, Ack, CloseCode, Rejected

log = logging.getLogger("coresteer.telemetry")

TRY_AGAIN_LATER = CloseCode.TRY_AGAIN_LATER
SOFT_LIMIT_BYTES = 384 * 1024**2
"""Above this many unstored bytes, batches are written before they are due. In memory a message takes a third more."""
PAUSE_BYTES = 640 * 1024**2
"""From this many on, sockets are read more slowly, so that samples are buffered by the agents."""
HARD_LIMIT_BYTES = 768 * 1024**2
"""From this many on, samples are rejected until the database has caught up; agents send them again."""
NODE_LIMIT_BYTES = 32 * 1024**2
"""The same for one node, so that no other one's samples are rejected because of it."""
_ENCODE_IN_THREAD_BYTES = 1024**2
_BATCHES_AT_ONCE = 200
_BATCHES_A_TRANSACTION = 50
_ENCODE_AT_ONCE_S = 0.003
"""What else the event loop does waits that long, and a request waits as often as it asks the database."""
_WRITE_TIMEOUT_S = 30
_RETRY_S = 1.0
_TEMPORARY = (TimeoutError, psycopg.errors.LockNotAvailable)
"""Of a transaction, and of a partition that is to be made while a long query reads its table."""
_STOP_TIMEOUT_S = 8.0
_LONGEST_PAUSE_S = 3.0  # less than the timeout of the agents' keepalive
_LATE_S = 15.0
"""Samples are sealed after this much longer than a chunk lasts, if no block completes the chunk before."""


def now_ms() -> int:
    """Return the backend's Unix time in ms."""
    return time.time_ns() // 1_000_000


class Ingest:
    """Buffers, stores and acknowledges agents' samples. skew_ms: of a node's clock, positive when it is ahead."""

    def __init__(
        self,
        database: Database,
        connections: AgentConnections,
        config: Config,
        skew_ms: Callable[[int], float | None],
        quotas: Quotas,
        *,
        hard_limit_bytes: int = HARD_LIMIT_BYTES,
    ) -> None:
        self._database = database
        self._connections = connections
        self._config = config
        self._skew_ms = skew_ms
        self._quotas = quotas
        self._hard_limit_bytes = hard_limit_bytes
        self._buffers: dict[int, SampleBuffer] = {}
        self._bytes = 0
        self._room = asyncio.Event()
        self._room.set()
        self._partitions: set[partitions.Partition] = set()
        self.hourly = HourlyRollups(database)
        self._is_away = False
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Start storing samples."""
        self._tasks = [asyncio.create_task(self._store_forever()), asyncio.create_task(self.hourly.follow())]

    async def stop(self) -> None:
        """Store the buffered samples within 8 s; agents send the rest again."""
        await cancel(self._tasks)
        for buffer in self._buffers.values():
            buffer.seal()
        try:
            async with asyncio.timeout(_STOP_TIMEOUT_S):
                await self._store_waiting()
        except (TimeoutError, psycopg.Error) as error:
            log.warning("Samples were not stored before the shutdown; agents will send them again: %r", error)

    @property
    def waiting_bytes(self) -> int:
        """Return how many bytes of samples are in memory and not stored yet."""
        return self._bytes

    @property
    def hours_complete_until_ms(self) -> int:
        """Return the Unix time in ms before which telemetry_hour is complete."""
        return self.hourly.complete_until_ms

    def block_s(self, features: Collection[str]) -> float:
        """Return how long the samples of a block of an agent with these features last: not longer than a chunk's."""
        return min(BLOCK_S if LONG_BLOCKS in features else SUMMARY_S, self._config.chunk_seconds)

    def open_buffer(self, node_id: int, stream: str, position: StreamPosition) -> SampleBuffer:
        """Return the buffer for the stream of an agent's Hello, continued if it exists.

        Welcome reports its acked_seq and rejected.
        """
        buffer = self._buffers.get(node_id)
        acked, rejected = (position.acked_seq, position.rejected) if position.stream == stream else (0, 0)
        if buffer is None:
            # chunks of different nodes are due at different times
            due = time.monotonic() + 1 + node_id * 7919 % self._config.chunk_seconds
            self._buffers[node_id] = buffer = SampleBuffer(node_id, stream, acked, acked, due, Batch(stream), rejected)
        elif buffer.stream != stream:
            buffer.seal()
            buffer.stream, buffer.open = stream, Batch(stream)
            buffer.acked_seq, buffer.last_seq, buffer.rejected = acked, acked, rejected
            buffer.live.clear()  # its numbers are those of the stream before
        elif buffer.is_empty and acked > buffer.acked_seq:  # another replica has stored more since
            buffer.acked_seq, buffer.last_seq, buffer.rejected = acked, max(acked, buffer.last_seq), rejected
        buffer.rejecting = False
        return buffer

    async def wait_for_room(self) -> None:
        """Wait until less than PAUSE_BYTES are buffered, at most 3 s."""
        if not self._room.is_set():
            with suppress(TimeoutError):
                async with asyncio.timeout(_LONGEST_PAUSE_S):
                    await self._room.wait()

    def add(
        self, buffer: SampleBuffer, part: Rates | SampleBlock, size: int, columns: SampleColumns | None = None
    ) -> None:
        """Buffer a validated sample or block of size bytes. columns: the block's, while they are decoded.

        Duplicates are ignored, and everything while the buffer rejects samples.
        """
        first, last = (part.first_seq, part.last_seq) if isinstance(part, SampleBlock) else (part.seq, part.seq)
        if last <= buffer.last_seq or buffer.rejecting or self._buffers.get(buffer.node_id) is not buffer:
            return
        if self._bytes + size > self._hard_limit_bytes or buffer.size + size > NODE_LIMIT_BYTES:
            buffer.rejecting = True
            log.warning("Samples of node %d are rejected: too many bytes wait for the database.", buffer.node_id)
            return
        if isinstance(part, SampleBlock) and first <= buffer.last_seq:
            part, columns = part.after(buffer.last_seq), None
        span_ms = self._config.chunk_seconds * 1000
        if not buffer.open.accepts(part, span_ms):
            buffer.seal()
        buffer.open.add(part, size)
        buffer.last_seq = last
        buffer.drop_live()
        self._count(size)
        if isinstance(part, SampleBlock) and buffer.open.is_complete(part, span_ms):
            if columns is not None and not self._is_away and buffer.open.unpacked <= _ENCODE_IN_THREAD_BYTES:
                self._encode_early(buffer.node_id, buffer.open, columns)
            buffer.seal()
            buffer.seal_at = time.monotonic() + self._config.chunk_seconds + _LATE_S

    def _encode_early(self, node_id: int, batch: Batch, last: SampleColumns) -> None:
        """Encode a complete batch while its last block is decoded."""
        with suppress(Exception):  # it is encoded once more before it is stored, which handles what is wrong
            batch.encoded = encode_batch(node_id, batch, last)
            size = batch.encoded.size()
            batch.size += size
            self._count(size)

    def add_live(self, buffer: SampleBuffer, rates: Rates, size: int) -> None:
        """Keep a sample for the present until a block brings it."""
        if self._buffers.get(buffer.node_id) is buffer:
            buffer.add_live(rates, size)

    def reject(self, buffer: SampleBuffer, first: int, last: int, reason: str) -> None:
        """Tell the agent that these samples are invalid and never stored; they are counted with the next chunk."""
        if buffer.rejecting or self._buffers.get(buffer.node_id) is not buffer:
            return
        if last > buffer.last_seq:  # else the agent has missed the first rejection
            rejected = last - max(first - 1, buffer.last_seq)
            SAMPLES_REJECTED.inc(rejected)
            buffer.open.rejected += rejected
            buffer.last_seq = last
        self._post(buffer.node_id, buffer.stream, Rejected(first, last, reason))

    def _post(self, node_id: int, stream: str, message: Ack | Rejected) -> None:
        peer = self._connections.get(node_id)
        if peer is not None and peer.stream == stream:
            peer.post(message)

    def close_buffer(self, buffer: SampleBuffer) -> None:
        """Make the samples of a closed connection due to be stored."""
        buffer.seal()
        buffer.live.clear()  # the agent may send the block that has them to another replica

    def commit_generation(self, node_id: int) -> int:
        """Return a number that is odd during a commit of the node's samples and greater after it."""
        buffer = self._buffers.get(node_id)
        return buffer.generation if buffer else 0

    def unstored(self, node_id: int) -> list[Rates]:
        """Return the node's samples that are not committed yet, oldest first."""
        buffer = self._buffers.get(node_id)
        return buffer.unstored() if buffer else []

    async def _store_forever(self) -> None:
        tick = min(1.0, self._config.chunk_seconds / 4)
        while True:
            await asyncio.sleep(tick)
            self._seal_due()
            try:
                await self._store_waiting()
                self._reopen_rejecting()
            except Exception as error:
                self._database.note_failure(error)
                if not (is_database_unavailable(error) or isinstance(error, _TEMPORARY)):
                    log.exception("Storing samples failed; retrying.")
                elif not self._is_away:
                    is_locked = isinstance(error, psycopg.errors.LockNotAvailable)
                    why = "A long query locks a table" if is_locked else "The database is unavailable"
                    log.warning("%s; samples are buffered here and by the agents.", why)
                self._is_away = True
                await asyncio.sleep(_RETRY_S)
            else:
                if self._is_away:
                    log.info("Samples are stored again, all that were buffered included.")
                self._is_away = False

    def _seal_due(self) -> None:
        now = time.monotonic()
        excess = self._bytes - SOFT_LIMIT_BYTES
        for buffer in sorted(self._buffers.values(), key=lambda buffer: buffer.seal_at):
            if buffer.seal_at > now and excess <= 0:
                break
            if buffer.seal_at > now:
                excess -= buffer.size
            buffer.seal()
            buffer.seal_at = now + self._config.chunk_seconds

    async def _store_waiting(self) -> None:
        """Store all sealed batches in transactions of bounded size, the oldest of each node first."""
        if self._is_away:
            async with self._database.pool.connection():
                pass  # raises while the database is unavailable, before anything is encoded
        while True:
            buffers = itertools.islice(
                (buffer for buffer in self._buffers.values() if buffer.waiting), _BATCHES_AT_ONCE
            )
            work = [(buffer, buffer.waiting[0]) for buffer in buffers]
            if not work:
                return
            encoded = await self._encode(work)
            parts = range(0, len(work), _BATCHES_A_TRANSACTION)
            # concurrently, because each iteration of a busy event loop moves only one socket buffer
            done = await asyncio.gather(
                *(
                    self._store(work[n : n + _BATCHES_A_TRANSACTION], encoded[n : n + _BATCHES_A_TRANSACTION])
                    for n in parts
                ),
                return_exceptions=True,
            )
            for error in done:
                if error is not None:
                    raise error

    async def _encode(self, work: Sequence[tuple[SampleBuffer, Batch]]) -> list[EncodedChunk]:
        """Encode batches, yielding to other tasks for no longer than encoding takes, else a backlog would only grow."""
        encoded = []
        until = time.monotonic() + _ENCODE_AT_ONCE_S
        for buffer, batch in work:
            encoded.append(await self._encode_one(buffer.node_id, batch))
            if (stopped := time.monotonic()) > until:
                await asyncio.sleep(0)
                until = 2 * time.monotonic() - stopped + _ENCODE_AT_ONCE_S
        return encoded

    async def _encode_one(self, node_id: int, batch: Batch) -> EncodedChunk:
        """Encode a batch; one that cannot be encoded is rejected, so that it does not stop the others."""
        try:
            if batch.encoded is not None:
                item = batch.encoded
            elif batch.unpacked > _ENCODE_IN_THREAD_BYTES:
                item = await asyncio.to_thread(encode_batch, node_id, batch)
            else:
                item = encode_batch(node_id, batch)
        except MemoryError:
            raise  # it says nothing about the samples
        except Exception:
            log.exception("Samples of node %d cannot be encoded; they are rejected.", node_id)
            return unencoded(node_id, batch, "The backend cannot encode these samples.")
        if batch.is_admitted is None:
            rows = 1 + len(item.minutes)
            batch.is_admitted = self._quotas.admit(Peer("node", node_id), Stored.TELEMETRY, item.size(), rows)
        return item if batch.is_admitted else replace(item, refusal=self._quotas.sentence(Stored.TELEMETRY))

    async def _store(self, work: Sequence[tuple[SampleBuffer, Batch]], encoded: Sequence[EncodedChunk]) -> None:
        """Write batches and acknowledge them. Data that the database refuses is found by bisection and rejected."""
        began = time.perf_counter()
        for buffer, _ in work:
            buffer.generation += 1
        done = False
        try:
            async with asyncio.timeout(_WRITE_TIMEOUT_S):
                positions = await self._write(encoded)
            done = True
        except Exception as error:
            if not is_about_rows(error):
                raise
            self._partitions.clear()
            if len(work) == 1:
                item, positions = await self._write_alone(encoded[0], error)
                encoded, done = [item], True
        finally:
            if done:
                self._committed(work, encoded, positions)
            for buffer, _ in work:
                buffer.generation += 1
        if not done:
            middle = len(work) // 2
            await self._store(work[:middle], encoded[:middle])
            await self._store(work[middle:], encoded[middle:])
            return
        log.debug("stored chunks=%d ms=%.1f", len(work), (time.perf_counter() - began) * 1000)

    async def _write(self, encoded: Sequence[EncodedChunk]) -> dict[int, StreamPosition | None]:
        """Write chunks in one transaction; return the last stored sample of each node.

        None where the node is deleted or its agent must send again.

        After a commit whose confirmation was lost, the positions show what is stored; that is not stored again.
        """
        async with self._database.pool.connection() as connection:
            await self._create_partitions(connection, encoded)
            found = await repository.lock_positions(connection, [item.node_id for item in encoded])
            positions: dict[int, StreamPosition | None] = {}
            new: dict[int, StreamPosition] = {}
            fresh: list[EncodedChunk] = []
            for item in encoded:
                position = found.get(item.node_id)
                stored = position.acked_seq if position is not None and position.stream == item.stream else -1
                if position is None or item.chunk.first_seq <= stored < item.chunk.last_seq:
                    positions[item.node_id] = None
                elif item.chunk.last_seq <= stored:
                    positions[item.node_id] = position
                else:
                    rejected = item.rejected + (item.chunk.samples if item.refusal is not None else 0)
                    before = position.rejected if position.stream == item.stream else 0
                    new[item.node_id] = StreamPosition(item.stream, item.chunk.last_seq, before + rejected)
                    if item.refusal is None:
                        fresh.append(item)
            if fresh:
                await repository.copy_chunks(connection, fresh)
                await repository.copy_minutes(connection, [(i.node_id, minute) for i in fresh for minute in i.minutes])
                due = await self.hourly.mark_due(
                    connection, [minute.start_ms for item in fresh for minute in item.minutes], now_ms()
                )
            if new:
                await repository.set_positions(connection, new, [self._skew_ms(node_id) for node_id in new])
        if fresh:
            self.hourly.note_marked(due)
        SAMPLES_STORED.inc(sum(item.chunk.samples for item in fresh))
        refused = (item for item in encoded if item.node_id in new and item.refusal is not None)
        SAMPLES_REJECTED.inc(sum(item.chunk.samples for item in refused))
        return positions | new

    async def _write_alone(
        self, item: EncodedChunk, error: Exception
    ) -> tuple[EncodedChunk, dict[int, StreamPosition | None]]:
        """Write a chunk that the database refused: with other keys if its own are taken, else as rejected."""
        try:
            if isinstance(error, psycopg.errors.UniqueViolation):
                async with self._database.pool.connection() as connection:
                    item = await repository.with_free_keys(connection, item)
            return item, await self._write([item])
        except Exception as again:
            if not is_about_rows(again):
                raise
            log.error("The database refused a chunk of node %d; it is rejected: %r", item.node_id, again)
            item = replace(item, refusal="The database cannot store these samples.")
            return item, await self._write([item])

    async def _create_partitions(self, connection: repository.Connection, encoded: Sequence[EncodedChunk]) -> None:
        needed = {partitions.partition_of("telemetry_chunk", item.chunk.start_ms) for item in encoded}
        for item in encoded:
            needed |= {partitions.partition_of("telemetry_minute", minute.start_ms) for minute in item.minutes}
        await partitions.create_missing(connection, self._partitions, needed)

    def _committed(
        self,
        work: Sequence[tuple[SampleBuffer, Batch]],
        encoded: Sequence[EncodedChunk],
        positions: Mapping[int, StreamPosition | None],
    ) -> None:
        for (buffer, batch), item in zip(work, encoded, strict=True):
            buffer.waiting.remove(batch)
            self._count(-batch.size)
            position = positions[buffer.node_id]
            if position is None:
                self._drop(buffer, "The samples overlap those that are stored; send them again.")
                continue
            if item.refusal is not None:
                self._post(
                    buffer.node_id, item.stream, Rejected(item.chunk.first_seq, item.chunk.last_seq, item.refusal)
                )
            if position.stream == buffer.stream:
                buffer.acked_seq, buffer.rejected = position.acked_seq, position.rejected
                if item.refusal is None:
                    self._post(buffer.node_id, buffer.stream, Ack(buffer.acked_seq))

    def _count(self, size: int) -> None:
        self._bytes += size
        if self._bytes < PAUSE_BYTES:
            self._room.set()
        else:
            self._room.clear()

    def _reopen_rejecting(self) -> None:
        for buffer in [buffer for buffer in self._buffers.values() if buffer.rejecting and buffer.is_empty]:
            self._drop(buffer, f"Stored up to {buffer.acked_seq}; send the rest again.")

    def _drop(self, buffer: SampleBuffer, reason: str) -> None:
        """Discard a node's buffer and close its connection; the agent reconnects and sends again what is not stored."""
        self._count(-buffer.size)
        del self._buffers[buffer.node_id]
        self._connections.close(buffer.node_id, TRY_AGAIN_LATER, reason)
