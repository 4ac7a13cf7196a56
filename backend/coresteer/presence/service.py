"""Stores which agents are connected to this replica, and learns which are connected to the others."""

import asyncio
import logging
import time
from collections.abc import Sequence

from coresteer.background import cancel
from coresteer.bus import Bus, LocationsEvent, NodeEvent
from coresteer.db import Database
from coresteer.errors import is_database_unavailable
from coresteer.presence import repository
from coresteer.presence.connections import Connections
from coresteer.presence.locations import Announcement, Locations
from coresteer.presence.registry import NodeRegistry
from coresteer.presence.schemas import Health
from coresteer.replicas.membership import Membership
from coresteer_core.protocol import CloseCode

log = logging.getLogger("coresteer.nodes")

_NODES_A_TRANSACTION = 500
_PAUSE_S = 0.1
_FOLLOW_S = 3.0
_CHECK_S = 1.0


class Presence:
    """Writes this replica's connections to node_presence, and keeps Locations up to date.

    While the database does not answer, Locations stay as they are.
    """

    def __init__(
        self,
        database: Database,
        bus: Bus,
        *,
        membership: Membership,
        connections: Connections,
        registry: NodeRegistry,
        locations: Locations,
    ) -> None:
        self._database, self._bus, self._membership = database, bus, membership
        self._connections, self._registry, self._locations = connections, registry, locations
        self._position = 0
        self._ended: dict[int, int] = {}
        self._silent: set[tuple[int, int]] = set()
        self._stale: set[tuple[int, int]] = set()
        """Node and epoch of the connections that are stored as stale."""
        self._without_peer: set[tuple[int, int]] = set()
        self._check_at = 0.0
        self._alive: frozenset[int] = frozenset()
        self._wake = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        membership.on_change.append(self._wake.set)

    async def load(self) -> None:
        """Learn where all nodes are. Raises database errors."""
        self._position = 0
        await self.follow()

    def start(self) -> None:
        """Start writing and following."""
        self._tasks = [
            asyncio.create_task(self._run()),
            asyncio.create_task(self._listen()),
            asyncio.create_task(self._hand_over()),
        ]

    async def stop(self) -> None:
        """Stop; the connections of a replica that stops are those of nobody."""
        await cancel(self._tasks)

    def wake(self) -> None:
        """Read soon what has changed."""
        self._wake.set()

    async def announce(self, hellos: Sequence[Announcement]) -> dict[Announcement, int]:
        """Store connections that begin, and return their epochs.

        Left out are connections of deleted nodes, and all but the last of a node. Raises database errors.
        """
        latest = {each.node_id: each for each in hellos}
        async with self._database.pool.connection() as connection:
            stored = await repository.announce(connection, self._membership.id, latest.values())
        self._locations.update(stored)
        self._bus.publish(LocationsEvent())
        return {latest[each.node_id]: each.epoch for each in stored}

    def end(self, node_id: int, epoch: int) -> None:
        """Store in the background that a connection has ended."""
        self._ended[node_id] = max(epoch, self._ended.get(node_id, 0))
        self._wake.set()

    async def _listen(self) -> None:
        with self._bus.subscribe() as events:
            async for event in events:
                if event == LocationsEvent():
                    self._wake.set()

    async def _run(self) -> None:
        while True:
            try:
                async with asyncio.timeout(_FOLLOW_S):
                    await self._wake.wait()
            except TimeoutError:
                pass
            self._wake.clear()
            try:
                await self._write()
                await self._write_stale()
                await self.follow()
            except Exception as error:
                if not is_database_unavailable(error):
                    log.exception("Storing which nodes are connected failed; retrying.")
            await asyncio.sleep(_PAUSE_S)

    async def _write(self) -> None:
        while self._ended:
            some = {node_id: self._ended[node_id] for node_id in list(self._ended)[:_NODES_A_TRANSACTION]}
            async with self._database.pool.connection() as connection:
                await repository.end(connection, some)
            for node_id, epoch in some.items():
                if self._ended.get(node_id) == epoch:
                    del self._ended[node_id]
                self._locations.end(node_id, epoch)
            self._bus.publish(LocationsEvent())

    async def follow(self) -> None:
        """Read where agents have connected and disconnected, and act on it. Raises database errors."""
        async with self._database.pool.connection() as connection:
            rows, position = await repository.changed_since(connection, self._position)
        news = self._locations.update(rows)
        self._position = position
        own_id = self._membership.id
        for location in news:
            if location.replica_id not in (None, own_id):
                if self._registry.get(location.node_id).epoch < location.epoch:
                    self._registry.remove(location.node_id)  # its figures are those of another time
                peer = self._connections.get(location.node_id)
                if peer is not None and peer.epoch < location.epoch:
                    name = self._membership.name_of(location.replica_id)
                    peer.close(CloseCode.REPLACED, f"The agent has connected to the backend {name} since.")
            self._bus.deliver(NodeEvent(location.node_id))
        alive = frozenset(replica.id for replica in self._membership.others)
        for replica_id in alive ^ self._alive:
            for location in self._locations.of_replica(replica_id):
                self._bus.deliver(NodeEvent(location.node_id))
        self._alive = alive

    async def _write_stale(self) -> None:
        """Store which connections have begun or ceased to send samples, as of two checks; the others show it."""
        if not self._membership.others or time.monotonic() < self._check_at:
            return
        self._check_at = time.monotonic() + _FOLLOW_S
        states = {node_id: state for node_id, state in self._registry.items() if state.connected}
        silent = {
            (node_id, state.epoch)
            for node_id, state in states.items()
            if state.health(seen_before=True) is Health.STALE
        }
        stale, self._silent = silent & self._silent, silent
        changed = {key: key in stale for key in stale ^ self._stale}
        if changed:
            async with self._database.pool.connection() as connection:
                await repository.set_stale(connection, changed)
            self._stale = stale
            self._bus.publish(LocationsEvent())
        for node_id, epoch in self.check_peers():
            self.end(node_id, epoch)

    def check_peers(self) -> set[tuple[int, int]]:
        """Return node and epoch of the connections of this replica that ended before they were registered.

        They lacked their peer at this check and at the one before: one that was just announced is registered soon.
        """
        without_peer = {
            (location.node_id, location.epoch)
            for location in self._locations.of_replica(self._membership.id)
            if (peer := self._connections.get(location.node_id)) is None or peer.epoch != location.epoch
        }
        lost, self._without_peer = without_peer & self._without_peer, without_peer
        return lost

    async def _hand_over(self) -> None:
        """Close all connections when this replica does not reach the database any more, and others may."""
        while True:
            await asyncio.sleep(_CHECK_S)
            if self._membership.is_isolated and self._membership.others:
                for node_id in self._connections.node_ids():
                    reason = "This backend does not reach its database; another one may."
                    self._connections.close(node_id, CloseCode.TRY_AGAIN_LATER, reason)
