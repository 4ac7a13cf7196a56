"""All nodes of the fleet in memory, and queries of the fleet page over them."""

import asyncio
import time
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

from coresteer.background import cancel
from coresteer.bus import Bus, NodeEvent
from coresteer.changes.repository import count_open
from coresteer.db import Database
from coresteer.errors import is_database_unavailable
from coresteer.fleet import past
from coresteer.fleet.figures import FleetNode, FleetValues, live_values, natural
from coresteer.fleet.query import Fleet
from coresteer.nodes import repository
from coresteer.presence.registry import NodeRegistry
from coresteer.telemetry.schemas import Resolution

RELOAD_S = 10.0
"""Age at which the nodes are read again: those that were enrolled since and have not connected."""
_FRESH_S = 1.0
_RETRY_S = 3.0
"""After the database did not answer; who asks meanwhile does not wait for it."""
_NODES_AT_ONCE = 500


@dataclass(frozen=True)
class Moment:
    """A past minute or hour, and how long before it the one begins with which it is compared."""

    at: datetime
    resolution: Resolution
    compared: timedelta | None = None


class FleetDirectory:
    """Answers with the fleet as it is, or was, and reads from the database only what has changed.

    It reads while somebody asks; its queries do not become more with the number of nodes.
    """

    def __init__(self, database: Database, bus: Bus, registry: NodeRegistry) -> None:
        self._database, self._bus, self._registry = database, bus, registry
        self._past = past.FleetPast(database, registry)
        self._by_id: dict[int, FleetNode] = {}
        self._nodes: list[FleetNode] = []
        self._changed: set[int] = set()
        self._loaded_at = float("-inf")
        self._failed_at = float("-inf")
        self._fleet: Fleet | None = None
        self._fleet_at = float("-inf")
        self._lock = asyncio.Lock()
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Start following which nodes change."""
        self._tasks = [asyncio.create_task(self._listen())]

    async def stop(self) -> None:
        """Stop following."""
        await cancel(self._tasks)

    def forget(self) -> None:
        """Read all nodes again with the next question: some were stored without an event."""
        self._loaded_at = float("-inf")

    async def present(self) -> Fleet:
        """Return the fleet with figures that are at most a second old. Raises database errors."""
        async with self._lock:
            try:
                is_new = await self._refresh()
            except Exception as error:
                if not self._nodes or not is_database_unavailable(error):
                    raise
                is_new = False  # samples arrive without a database, and are shown
            now = time.monotonic()
            if self._fleet is None or is_new or now - self._fleet_at >= _FRESH_S / 2:
                nodes = self._nodes
                values = await live_values(nodes, self._registry, time.time_ns() // 1_000_000)
                self._fleet, self._fleet_at = Fleet(nodes, values), now
            return self._fleet

    async def at(self, moment: Moment) -> Fleet:
        """Return the fleet of now with figures of a past minute or hour. Raises Invalid, and database errors."""
        async with self._lock:
            await self._refresh()
            nodes = self._nodes
        values = await self._values(nodes, moment.at, moment.resolution)
        if moment.compared is None:
            return Fleet(nodes, values)
        return Fleet(nodes, values, await self._values(nodes, moment.at - moment.compared, moment.resolution))

    async def _values(self, nodes: list[FleetNode], at: datetime, resolution: Resolution) -> FleetValues:
        return await past.read_values(self._past, nodes, at, resolution)

    async def _listen(self) -> None:
        with self._bus.subscribe() as events:
            async for event in events:
                if isinstance(event, NodeEvent) and event.node_id is not None:
                    self._changed.add(event.node_id)

    async def _refresh(self) -> bool:
        """Read nodes that may have changed, all of them from time to time; return whether any were read."""
        now = time.monotonic()
        is_due = now - self._loaded_at >= RELOAD_S
        if not is_due and not self._changed:
            return False
        if self._nodes and now - self._failed_at < _RETRY_S:
            return False
        changed, self._changed = self._changed, set()  # what changes meanwhile is read the next time
        try:
            read = await self._read(None if is_due else changed)
        except BaseException as error:
            self._changed |= changed
            if is_database_unavailable(error):
                self._failed_at = time.monotonic()
            raise
        if is_due:
            self._by_id, self._loaded_at = read, now
        else:
            self._by_id = {node_id: node for node_id, node in self._by_id.items() if node_id not in changed} | read
        self._nodes = sorted(self._by_id.values(), key=lambda node: natural(node.name))
        return True

    async def _read(self, node_ids: Iterable[int] | None) -> dict[int, FleetNode]:
        """Read some nodes, or all; in two queries."""
        async with self._database.session() as session:
            changes = await count_open(session)
        found: dict[int, FleetNode] = {}
        async with self._database.pool.connection() as connection:
            cursor = await repository.select_attributes(connection, None if node_ids is None else list(node_ids))
            while rows := await cursor.fetchmany(_NODES_AT_ONCE):
                for row in rows:
                    node_id, name, simulated, mode, kernel, drivers, labels, cpus, seen_before = row
                    open_changes = changes.get(node_id, 0)
                    found[node_id] = FleetNode(
                        node_id, name, simulated, mode, kernel, drivers, labels, cpus, open_changes, seen_before
                    )
                await asyncio.sleep(0)
        return found
