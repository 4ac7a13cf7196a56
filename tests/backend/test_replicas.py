"""Several backends on one database: who is alive, who leads, and that a leader of the past cannot write."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest
from psycopg_pool import PoolTimeout
from sqlalchemy import text
from tests.backend.fake_agent import enrolled
from tests.backend.test_ingest import Peer
from tests.support.polling import PATIENCE_S, poll_async

from coresteer.background import cancel
from coresteer.bus import Bus, Event, NodeEvent
from coresteer.db import Database
from coresteer.errors import DeposedError
from coresteer.presence import repository
from coresteer.presence.connections import Connections
from coresteer.presence.locations import Announcement, Locations
from coresteer.presence.registry import NodeRegistry
from coresteer.presence.service import Presence
from coresteer.replicas.leadership import Leadership
from coresteer.replicas.membership import Membership
from coresteer.replicas.relay import Id, Relay, Relayed
from coresteer.replicas.repository import fence


@dataclass
class Task:
    """A feature of the leader that writes whenever the test lets it, and says what came of it."""

    database: Database
    starts: int = 0
    go: asyncio.Event = field(default_factory=asyncio.Event)
    outcome: asyncio.Queue[str] = field(default_factory=asyncio.Queue)
    started: asyncio.Event = field(default_factory=asyncio.Event)
    stopped: asyncio.Event = field(default_factory=asyncio.Event)
    _tasks: list[asyncio.Task[None]] = field(default_factory=list)
    _writes: set[asyncio.Task[None]] = field(default_factory=set)

    def start(self) -> None:
        self.starts += 1
        self._tasks = [asyncio.create_task(self._run())]
        self.started.set()

    async def stop(self) -> None:
        await cancel(self._tasks)
        self.started.clear()
        self.stopped.set()

    async def _run(self) -> None:
        while True:
            await self.go.wait()
            self.go.clear()
            self._writes.add(asyncio.create_task(self._write()))  # which stop() does not cancel

    async def _write(self) -> None:
        for write in (self.by_session, self.by_connection):
            try:
                await write()
                await self.outcome.put("written")
            except DeposedError:
                await self.outcome.put("deposed")

    async def by_session(self) -> None:
        async with self.database.session() as session:
            await session.execute(text("INSERT INTO audit_export VALUES (gen_random_uuid()::text, 1)"))

    async def by_connection(self) -> None:
        async with self.database.connection() as connection:
            await connection.execute("INSERT INTO audit_export VALUES (gen_random_uuid()::text, 1)")

    async def writes(self) -> list[str]:
        """What came of a write by either way."""
        self.go.set()
        async with asyncio.timeout(PATIENCE_S):
            return [await self.outcome.get(), await self.outcome.get()]


@dataclass
class Replica:
    """A backend with membership and leadership only, which run when the test calls them."""

    membership: Membership
    leadership: Leadership
    task: Task


@asynccontextmanager
async def replica(database: Database, name: str) -> AsyncIterator[Replica]:
    membership = Membership(database, name, "0")
    task = Task(database)
    leadership = Leadership(membership, [task])
    await membership.join()
    await leadership.start()
    try:
        yield Replica(membership, leadership, task)
    finally:
        await leadership.stop()
        await membership.stop()


async def silence(database: Database, membership: Membership) -> None:
    """A minute goes by for the database in which a replica has not renewed its heartbeat."""
    async with database.pool.connection() as connection:
        await connection.execute(
            "UPDATE replica SET heartbeat_at = heartbeat_at - interval '1 minute' WHERE id = %s", (membership.id,)
        )


async def rows(database: Database) -> int:
    async with database.pool.connection() as connection:
        cursor = await connection.execute("SELECT count(*) FROM audit_export")
        return int((await cursor.fetchone() or (0,))[0])


async def test_the_first_leads_at_once_and_the_next_when_it_stops(database: Database) -> None:
    async with replica(database, "second") as second:
        await second.membership.stop()  # so that the first has the smaller id and nobody leads
        async with replica(database, "first") as first:
            assert first.task.starts == 1
            await second.membership.renew()
            assert second.membership.token is None
            assert [each.name for each in second.membership.others] == ["first"]
        await second.membership.renew()
        assert second.membership.others == []
        assert second.membership.summary()[0] is not None


async def test_a_leader_that_was_frozen_cannot_write_after_another_has_taken_over(database: Database) -> None:
    async with replica(database, "frozen") as frozen, replica(database, "next") as other:
        assert await frozen.task.writes() == ["written", "written"]
        token = frozen.membership.token
        await silence(database, frozen.membership)
        await other.membership.renew()
        async with asyncio.timeout(PATIENCE_S):
            await other.task.started.wait()
        assert other.membership.token == (token or 0) + 1
        before = await rows(database)
        assert frozen.membership.token == token, "it has not noticed yet"
        assert await frozen.task.writes() == ["deposed", "deposed"]
        assert await rows(database) == before
        assert await other.task.writes() == ["written", "written"]
        await frozen.membership.renew()
        async with asyncio.timeout(PATIENCE_S):
            await frozen.task.stopped.wait()
        assert frozen.membership.token is None


async def test_a_leader_whose_lease_has_lapsed_starts_anew_although_nobody_took_it(database: Database) -> None:
    async with replica(database, "alone") as alone:
        token = alone.membership.token
        await silence(database, alone.membership)
        assert await alone.task.writes() == ["deposed", "deposed"]
        await alone.membership.renew()
        async with asyncio.timeout(PATIENCE_S):
            await alone.task.stopped.wait()
        assert alone.membership.token == (token or 0) + 1
        async with asyncio.timeout(PATIENCE_S):
            await alone.task.started.wait()
        assert alone.task.starts == 2
        assert await alone.task.writes() == ["written", "written"]


async def test_a_leader_whose_tasks_ended_starts_anew_although_its_token_is_the_same(database: Database) -> None:
    async with replica(database, "alone") as alone:
        token = alone.membership.token
        await silence(database, alone.membership)
        assert await alone.task.writes() == ["deposed", "deposed"]
        async with asyncio.timeout(PATIENCE_S):
            await alone.task.stopped.wait()
        async with database.pool.connection() as connection:
            await connection.execute("SELECT FROM lease FOR UPDATE")
            await alone.membership.renew()
        assert alone.membership.token == token, "the lease was locked, so it was not seen to have lapsed"
        async with asyncio.timeout(PATIENCE_S):
            await alone.task.started.wait()
        assert alone.task.starts == 2
        assert await alone.task.writes() == ["written", "written"]


class Unread:
    """Events whose ids cannot be read at first."""

    def __init__(self) -> None:
        self.loads: list[list[Id]] = []

    async def load(self, ids: Sequence[Id]) -> list[Event]:
        self.loads.append(list(ids))
        if len(self.loads) == 1:
            raise PoolTimeout
        return [NodeEvent(int(each or 0)) for each in ids]


async def test_events_of_another_backend_are_read_again_after_the_database_was_unavailable(database: Database) -> None:
    bus, unread = Bus(), Unread()
    relayed = Relayed[NodeEvent]("node", NodeEvent, lambda event: event.node_id, unread.load)
    relay = Relay(database, bus, Membership(database, "reads", "0"), relayed=[relayed], gap=())
    relay.start()
    try:
        with bus.subscribe() as events:
            relay.receive('{"sender": 7, "events": [["node", 1], ["node", 2]]}')
            async with asyncio.timeout(PATIENCE_S):
                found = [await anext(events), await anext(events)]
    finally:
        await relay.stop()
    assert found == [NodeEvent(1), NodeEvent(2)]
    assert unread.loads == [[1, 2], [1, 2]]


async def test_only_a_connection_that_lacks_its_peer_at_two_checks_has_ended(database: Database) -> None:
    async with replica(database, "connects") as own:
        membership = own.membership
        locations = Locations(lambda: membership.id, membership.is_alive)
        connections, registry = Connections(locations), NodeRegistry(locations)
        presence = Presence(
            database, Bus(), membership=membership, connections=connections, registry=registry, locations=locations
        )
        slow, lost = [(await enrolled(database, "", name)).node_id for name in ("slow", "lost")]
        hellos = [Announcement(node_id, "s1", "", 1.0, obeys_stops=True) for node_id in (slow, lost)]
        epochs = {hello.node_id: epoch for hello, epoch in (await presence.announce(hellos)).items()}
        assert presence.check_peers() == set()
        connections.register(slow, Peer(epoch=epochs[slow]))
        assert presence.check_peers() == {(lost, epochs[lost])}


@pytest.mark.parametrize("writes", ["that connections ended", "that connections are stale"])
async def test_rows_of_connections_are_locked_in_the_order_of_their_nodes(database: Database, writes: str) -> None:
    nodes = sorted([(await enrolled(database, "", f"locked-{n}-{writes}"[:30])).node_id for n in "12"])
    epochs = {}
    for node_id in reversed(nodes):  # the order in which a scan finds the rows
        hello = Announcement(node_id, "s1", "", 1.0, obeys_stops=True)
        async with database.pool.connection() as connection:
            (stored,) = await repository.announce(connection, 1, [hello])
        epochs[node_id] = stored.epoch

    async def write() -> None:
        async with database.pool.connection() as connection:
            if writes == "that connections ended":
                await repository.end(connection, epochs)
            else:
                await repository.set_stale(connection, dict.fromkeys(epochs.items(), True))

    async def waits() -> bool:
        async with database.pool.connection() as connection:
            return (await connection.execute("SELECT FROM pg_locks WHERE NOT granted")).rowcount > 0

    lock = "SELECT FROM node_presence WHERE node_id = %s FOR UPDATE NOWAIT"
    async with asyncio.timeout(PATIENCE_S):
        async with database.pool.connection() as holder:
            await holder.execute(lock, (nodes[0],))
            writing = asyncio.create_task(write())
            await poll_async(waits)
            async with database.pool.connection() as other:
                await other.execute(lock, (nodes[1],))
        await writing


async def test_a_leader_that_ends_while_it_stops_its_features_stops_all_of_them(database: Database) -> None:
    stopping, release = asyncio.Event(), asyncio.Event()

    class Slow(Task):
        async def stop(self) -> None:
            stopping.set()
            await release.wait()

    membership = Membership(database, "ends", "0")
    first, slow = Task(database), Slow(database)
    leadership = Leadership(membership, [first, slow])  # stopped in the reverse order
    await membership.join()
    await leadership.start()
    await membership.stop()  # the lease is gone
    async with asyncio.timeout(PATIENCE_S):
        await stopping.wait()
        stopped = asyncio.create_task(leadership.stop())
        await asyncio.sleep(0)
        release.set()
        await stopped
    assert first.stopped.is_set()


async def test_nobody_takes_over_between_a_leaders_check_and_its_commit(database: Database) -> None:
    async with replica(database, "leader") as leader, replica(database, "waiting") as other:
        assert leader.membership.token is not None
        held = fence(leader.membership.id, leader.membership.token, lambda: None)
        async with database.pool.connection() as connection:
            await connection.execute("INSERT INTO audit_export VALUES ('between', 1)")
            cursor = await connection.execute(held.query, held.parameters)
            assert await cursor.fetchone() == (True,)
            await silence(database, leader.membership)
            await other.membership.renew()
            assert other.membership.token is None
        await other.membership.renew()
        assert other.membership.token is not None


async def test_a_replica_that_was_removed_as_gone_is_alive_again_under_its_id(database: Database) -> None:
    async with replica(database, "back") as back, replica(database, "other") as other:
        async with database.pool.connection() as connection:
            await connection.execute("DELETE FROM replica WHERE id = %s", (back.membership.id,))
        await other.membership.renew()
        assert other.membership.others == []
        await back.membership.renew()
        await other.membership.renew()
        assert [each.id for each in other.membership.others] == [back.membership.id]
