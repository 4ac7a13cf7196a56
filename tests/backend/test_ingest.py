"""The ingest by itself: what it keeps in memory, what it refuses, what it does when the database will not."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import psycopg
import pytest
from msgspec.structs import replace
from prometheus_client import REGISTRY
from tests.backend.fake_agent import FakeAgent, enrolled, now_ms, rates, stored_seqs
from tests.support.polling import PATIENCE_S

from coresteer.config import Config
from coresteer.db import Database
from coresteer.presence.connections import Connections
from coresteer.presence.registry import NodeState
from coresteer.quotas import Quota, Quotas, Stored, quotas_of
from coresteer.telemetry import partitions, repository, service
from coresteer.telemetry.chunks import start_ms
from coresteer.telemetry.repository import StreamPosition, from_unix_ms
from coresteer.telemetry.sample_buffer import Batch, encode_batch
from coresteer.telemetry.service import NODE_LIMIT_BYTES, Ingest
from coresteer_core.node.rates import NetdevCounts
from coresteer_core.node.rates_block import MAX_BLOCK_ROWS
from coresteer_core.protocol import Ack, Rejected, ToAgent


@dataclass
class Peer:
    """A connection that records what is sent to the agent."""

    stream: str = "s1"
    epoch: int = 1
    host: str = "127.0.0.1"
    obeys_stops: bool = True
    sends_columns: bool = False
    said: list[ToAgent] = field(default_factory=list)
    closed: list[tuple[int, str]] = field(default_factory=list)
    ended: asyncio.Event = field(default_factory=asyncio.Event)

    def post(self, message: ToAgent) -> None:
        self.said.append(message)

    def close(self, code: int, reason: str) -> None:
        self.closed.append((code, reason))
        self.ended.set()


@dataclass
class World:
    """An ingest with one connected node."""

    ingest: Ingest
    peer: Peer
    agent: FakeAgent


async def _world(
    database: Database, name: str, *, hard_limit_bytes: int = 1 << 30, limits: dict[Stored, Quota] | None = None
) -> World:
    connections, peer = Connections(), Peer()
    config = Config.model_validate({"chunk_seconds": 1})
    quotas = Quotas(database, quotas_of(config) if limits is None else limits)
    ingest = Ingest(database, connections, config, lambda _: 3.5, quotas, hard_limit_bytes=hard_limit_bytes)
    agent = await enrolled(database, "", name)
    connections.register(agent.node_id, peer)
    return World(ingest, peer, agent)


def _rejected() -> float:
    return REGISTRY.get_sample_value("coresteer_samples_rejected_total") or 0.0


async def test_nothing_is_acknowledged_before_it_is_stored_and_all_is_at_the_stop(database: Database) -> None:
    w = await _world(database, "stops")
    buffer = w.ingest.open_buffer(w.agent.node_id, "s1", StreamPosition(None, 0))
    for seq in range(1, 4):
        w.ingest.add(buffer, rates(seq), 100)
    assert w.peer.said == [] and [r.seq for r in w.ingest.unstored(w.agent.node_id)] == [1, 2, 3]
    await w.ingest.stop()
    assert w.peer.said[-1] == Ack(3) and w.ingest.unstored(w.agent.node_id) == []
    assert await stored_seqs(database.url, w.agent.node_id) == [1, 2, 3]


async def test_a_commit_whose_answer_was_lost_is_not_repeated(database: Database) -> None:
    w = await _world(database, "ambiguous")
    for _ in range(2):  # the second ingest knows nothing of what the first one stored
        config = Config.model_validate({"chunk_seconds": 1})
        other = Ingest(database, Connections(), config, lambda _: None, Quotas(database, quotas_of(config)))
        buffer = other.open_buffer(w.agent.node_id, "s1", StreamPosition(None, 0))
        for seq in range(1, 4):
            other.add(buffer, rates(seq), 100)
        await other.stop()
    assert await stored_seqs(database.url, w.agent.node_id) == [1, 2, 3]


async def test_a_chunk_that_overlaps_what_is_stored_is_asked_for_again(database: Database) -> None:
    w = await _world(database, "overlaps")
    buffer = w.ingest.open_buffer(w.agent.node_id, "s1", StreamPosition(None, 0))
    w.ingest.add(buffer, rates(1), 100)
    w.ingest.add(buffer, rates(2), 100)
    async with database.pool.connection() as connection:
        await connection.execute("UPDATE node SET stream = 's1', acked_seq = 1 WHERE id = %s", (w.agent.node_id,))
    await w.ingest.stop()
    assert [code for code, _ in w.peer.closed] == [1013] and w.peer.said == []
    assert await stored_seqs(database.url, w.agent.node_id) == []


async def test_memory_is_bounded_and_what_was_not_taken_is_asked_for_again(database: Database) -> None:
    w = await _world(database, "held", hard_limit_bytes=1000)
    buffer = w.ingest.open_buffer(w.agent.node_id, "s1", StreamPosition(None, 0))
    for seq in range(1, 100):
        w.ingest.add(buffer, rates(seq), 100)
    assert len(w.ingest.unstored(w.agent.node_id)) == 10
    w.ingest.start()
    async with asyncio.timeout(PATIENCE_S):
        await w.peer.ended.wait()
    await w.ingest.stop()
    assert w.peer.said[-1] == Ack(10) and w.peer.closed[0][0] == 1013
    assert await stored_seqs(database.url, w.agent.node_id) == list(range(1, 11))


async def test_two_chunks_of_the_same_node_and_millisecond_are_both_stored(database: Database) -> None:
    w = await _world(database, "same-millisecond")
    time_ms = now_ms()
    buffer = w.ingest.open_buffer(w.agent.node_id, "s1", StreamPosition(None, 0))
    w.ingest.add(buffer, rates(1, time_ms=time_ms), 100)
    w.ingest.open_buffer(w.agent.node_id, "s2", StreamPosition(None, 0))  # restarted: the same time and number again
    w.ingest.add(buffer, rates(1, time_ms=time_ms), 100)
    await w.ingest.stop()
    assert await stored_seqs(database.url, w.agent.node_id) == [1, 1]
    async with database.pool.connection() as connection:
        cursor = await connection.execute(
            "SELECT count(*) FROM telemetry_minute WHERE node_id = %s", (w.agent.node_id,)
        )
        assert await cursor.fetchone() == (2,)


async def test_what_the_database_refuses_is_rejected_and_costs_no_other_node_its_samples(
    database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    w = await _world(database, "refused")
    others = [await enrolled(database, "", f"beside-{number}") for number in range(3)]
    sample = rates(1)
    async with database.pool.connection() as connection:  # every key of the millisecond is taken
        await partitions.create_partitions(connection, partitions.present_and_next(start_ms(sample)))
        await connection.execute(
            """
            INSERT INTO telemetry_chunk (node_id, t0, t1, first_seq, last_seq, samples, cpus, scalars)
            SELECT %s, %s + n * interval '1 microsecond', now(), 1, 1, 1, 1, '' FROM generate_series(0, 999) AS n
            """,
            (w.agent.node_id, from_unix_ms(start_ms(sample))),
        )
    for agent in (w.agent, *others):
        w.ingest.add(w.ingest.open_buffer(agent.node_id, "s1", StreamPosition(None, 0)), sample, 100)
    await w.ingest.stop()
    for other in others:
        assert await stored_seqs(database.url, other.node_id) == [1]
    assert w.peer.said == [Rejected(1, 1, "The database cannot store these samples.")]
    assert "refused a chunk of node" in caplog.text
    async with database.pool.connection() as connection:
        cursor = await connection.execute(
            "SELECT acked_seq, rejected_samples FROM node WHERE id = %s", (w.agent.node_id,)
        )
        assert await cursor.fetchone() == (1, 1)


async def test_samples_that_cannot_be_written_are_rejected_and_cost_no_other_node_its_samples(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    w = await _world(database, "unwritable")
    other = await enrolled(database, "", "beside-unwritable")
    copy_chunks = repository.copy_chunks

    async def fails_for_one(connection: repository.Connection, encoded: Sequence[repository.EncodedChunk]) -> None:
        if any(item.node_id == w.agent.node_id for item in encoded):
            raise OverflowError("int too big to convert")
        await copy_chunks(connection, encoded)

    monkeypatch.setattr(repository, "copy_chunks", fails_for_one)
    for node_id in (w.agent.node_id, other.node_id):
        w.ingest.add(w.ingest.open_buffer(node_id, "s1", StreamPosition(None, 0)), rates(1), 100)
    await w.ingest.stop()
    assert await stored_seqs(database.url, other.node_id) == [1]
    assert w.peer.said == [Rejected(1, 1, "The database cannot store these samples.")]


async def test_samples_that_the_database_refuses_are_counted_once_however_often_they_are_written(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    w = await _world(database, "counted-once")
    set_positions, failures = repository.set_positions, [psycopg.OperationalError("the database has gone away")]

    async def refuses(_: repository.Connection, __: Sequence[repository.EncodedChunk]) -> None:
        raise OverflowError("int too big to convert")

    async def fails_once(*arguments: Any) -> None:  # noqa: ANN401 - those of set_positions
        if failures:
            raise failures.pop()
        await set_positions(*arguments)

    monkeypatch.setattr(repository, "copy_chunks", refuses)
    monkeypatch.setattr(repository, "set_positions", fails_once)
    before = _rejected()
    w.ingest.add(w.ingest.open_buffer(w.agent.node_id, "s1", StreamPosition(None, 0)), rates(1), 100)
    for _ in "12":
        await w.ingest.stop()
    assert w.peer.said == [Rejected(1, 1, "The database cannot store these samples.")]
    assert _rejected() - before == 1


async def test_samples_that_cannot_be_encoded_are_rejected_and_cost_no_other_node_its_samples(
    database: Database, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    w = await _world(database, "unencodable")
    other = await enrolled(database, "", "beside-unencodable")

    def fails_for_one(node_id: int, batch: Batch) -> repository.EncodedChunk:
        if node_id == w.agent.node_id:
            raise OverflowError("int too big to convert")
        return encode_batch(node_id, batch)

    monkeypatch.setattr(service, "encode_batch", fails_for_one)
    for node_id in (w.agent.node_id, other.node_id):
        buffer = w.ingest.open_buffer(node_id, "s1", StreamPosition(None, 0))
        for seq in (1, 2):
            w.ingest.add(buffer, rates(seq), 100)
    await w.ingest.stop()
    assert await stored_seqs(database.url, other.node_id) == [1, 2]
    assert w.peer.said == [Rejected(1, 2, "The backend cannot encode these samples.")]
    assert f"Samples of node {w.agent.node_id} cannot be encoded" in caplog.text


async def test_new_names_of_netdevs_in_every_sample_do_not_multiply_into_memory(database: Database) -> None:
    w = await _world(database, "netdevs")
    buffer = w.ingest.open_buffer(w.agent.node_id, "s1", StreamPosition(None, 0))
    now = now_ms()
    for seq in range(1, 21):
        netdevs = [NetdevCounts(f"v{seq}-{n}", *[0] * 8) for n in range(4096)]
        w.ingest.add(buffer, replace(rates(seq, time_ms=now + seq), netdevs=netdevs), 100)
    batches = [*buffer.waiting, buffer.open]
    assert sum(batch.samples for batch in batches) == 20
    for batch in batches:
        assert batch.columns().netdev_counts.nbytes <= 64 * MAX_BLOCK_ROWS


async def test_the_largest_counts_of_a_minute_are_stored(database: Database) -> None:
    w = await _world(database, "largest-counts")
    buffer = w.ingest.open_buffer(w.agent.node_id, "s1", StreamPosition(None, 0))
    sample = replace(rates(1), counters={"tcp_retransmits": 2**53 - 1}, irq_ids=None, irq_cpus=None, irq_counts=None)
    for seq in range(1, 1101):
        w.ingest.add(buffer, replace(sample, seq=seq), 100)
    await w.ingest.stop()
    assert w.peer.said == [Ack(1100)]
    async with database.pool.connection() as connection:
        cursor = await connection.execute(
            "SELECT retransmits FROM telemetry_minute WHERE node_id = %s", (w.agent.node_id,)
        )
        assert await cursor.fetchall() == [(2**63 - 1,)]


async def test_samples_above_the_nodes_quota_are_rejected_and_not_acknowledged(database: Database) -> None:
    w = await _world(database, "over-quota", limits={Stored.TELEMETRY: Quota(rows=5, rows_per_s=0, bytes_per_s=0)})
    minute_ms = 60_000
    buffer = w.ingest.open_buffer(w.agent.node_id, "s1", StreamPosition(None, 0))
    for seq in range(1, 5):  # a chunk and a roll-up each: two rows
        w.ingest.add(buffer, rates(seq, time_ms=now_ms() - (10 - seq) * minute_ms), 100)
    before = _rejected()
    await w.ingest.stop()
    assert _rejected() - before == 2
    assert await stored_seqs(database.url, w.agent.node_id) == [1, 2]
    rejected = [(message.first_seq, message.last_seq) for message in w.peer.said if isinstance(message, Rejected)]
    assert rejected == [(3, 3), (4, 4)]
    assert max(message.seq for message in w.peer.said if isinstance(message, Ack)) == 2
    assert "CORESTEER_RETENTION_BYTES" in w.peer.said[-1].reason  # type: ignore[union-attr]  # it is Rejected


async def test_the_nodes_clock_skew_is_kept_with_its_mark(database: Database) -> None:
    w = await _world(database, "skew-kept")
    w.ingest.add(w.ingest.open_buffer(w.agent.node_id, "s1", StreamPosition(None, 0)), rates(1), 100)
    await w.ingest.stop()
    async with database.pool.connection() as connection:
        cursor = await connection.execute(
            "SELECT clock_skew_ms, stream, acked_seq FROM node WHERE id = %s", (w.agent.node_id,)
        )
        assert await cursor.fetchone() == (3.5, "s1", 1)


async def test_large_samples_of_one_node_are_stored_early_and_bounded_in_memory(database: Database) -> None:
    w = await _world(database, "large-samples")
    buffer = w.ingest.open_buffer(w.agent.node_id, "s1", StreamPosition(None, 0))
    time_ms, mebibyte = now_ms(), 1024**2
    for seq in range(1, 100):
        w.ingest.add(buffer, rates(seq, time_ms=time_ms), mebibyte)
    assert [batch.samples for batch in buffer.waiting] == [2] * 15  # the last two are open
    assert buffer.size == NODE_LIMIT_BYTES == 32 * mebibyte and buffer.rejecting
    other = await enrolled(database, "", "beside-large-samples")
    w.ingest.add(w.ingest.open_buffer(other.node_id, "s1", StreamPosition(None, 0)), rates(1), mebibyte)
    assert len(w.ingest.unstored(other.node_id)) == 1


def test_the_recent_intervals_of_a_node_in_memory_are_bounded_in_bytes() -> None:
    state = NodeState()
    for seq in range(1, 50):
        state.add_rates(rates(seq, time_ms=1000), 3 * 1024**2)
    assert [each.seq for each in state.recent] == [48, 49]
    for seq in range(50, 60):
        state.add_rates(rates(seq, time_ms=1000), 3000)
    assert len(state.recent) == 12
    state.add_rates(rates(60, time_ms=1000), 100 * 1024**2)
    assert [each.seq for each in state.recent] == [60]
