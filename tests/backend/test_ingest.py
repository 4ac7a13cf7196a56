"""The ingest by itself: what it keeps in memory, what it refuses, what it does when the database will not."""

import asyncio
from dataclasses import dataclass, field

import pytest
from tests.backend.fake_agent import FakeAgent, enrolled, now_ms, rates, stored_seqs

from coresteer.config import Config
from coresteer.db import Database
from coresteer.presence.connections import Connections
from coresteer.telemetry.repository import StreamPosition
from coresteer.telemetry.service import Ingest
from coresteer_core.protocol import Ack, ToAgent


@dataclass
class Peer:
    """A connection of which only what is said through it matters."""

    stream: str = "s1"
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


async def _world(database: Database, name: str, *, hard_limit_bytes: int = 1 << 30) -> World:
    connections, peer = Connections(), Peer()
    config = Config.model_validate({"chunk_seconds": 1})
    ingest = Ingest(database, connections, config, lambda _: 3.5, hard_limit_bytes=hard_limit_bytes)
    agent = await enrolled(database, "", name)
    connections.register(agent.node_id, peer)
    return World(ingest, peer, agent)


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
        other = Ingest(database, Connections(), Config.model_validate({"chunk_seconds": 1}), lambda _: None)
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
    async with asyncio.timeout(20):
        await w.peer.ended.wait()
    await w.ingest.stop()
    assert w.peer.said[-1] == Ack(10) and w.peer.closed[0][0] == 1013
    assert await stored_seqs(database.url, w.agent.node_id) == list(range(1, 11))


async def test_data_that_the_database_refuses_costs_no_other_node_its_samples(
    database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    w = await _world(database, "refused")
    time_ms = now_ms()
    others = [await enrolled(database, "", f"beside-{number}") for number in range(3)]
    buffer = w.ingest.open_buffer(w.agent.node_id, "s1", StreamPosition(None, 0))
    w.ingest.add(buffer, rates(1, time_ms=time_ms), 100)
    w.ingest.open_buffer(w.agent.node_id, "s2", StreamPosition(None, 0))  # the same time again: the same primary key
    w.ingest.add(buffer, rates(1, time_ms=time_ms), 100)
    for other in others:
        w.ingest.add(w.ingest.open_buffer(other.node_id, "s1", StreamPosition(None, 0)), rates(1), 100)
    await w.ingest.stop()
    for agent in (w.agent, *others):
        assert await stored_seqs(database.url, agent.node_id) == [1]
    assert "refused a chunk of node" in caplog.text


async def test_the_nodes_clock_skew_is_kept_with_its_mark(database: Database) -> None:
    w = await _world(database, "skew-kept")
    w.ingest.add(w.ingest.open_buffer(w.agent.node_id, "s1", StreamPosition(None, 0)), rates(1), 100)
    await w.ingest.stop()
    async with database.pool.connection() as connection:
        cursor = await connection.execute(
            "SELECT clock_skew_ms, stream, acked_seq FROM node WHERE id = %s", (w.agent.node_id,)
        )
        assert await cursor.fetchone() == (3.5, "s1", 1)
