"""Keeps what agents tell about their nodes in the database, without making them wait."""

import asyncio
import logging

import msgspec
import psycopg

from coresteer.bus import Bus, InventoryEvent, NodeEvent
from coresteer.db import Database
from coresteer.errors import is_database_away
from coresteer.nodes import repository
from coresteer.nodes.repository import Told
from coresteer_core.node.inventory import Inventory
from coresteer_core.node.nic import Learned
from coresteer_core.node.topology import Topology
from coresteer_core.protocol import Hello

log = logging.getLogger("coresteer.nodes")

_RETRY_S = 1.0
_NODES_A_TRANSACTION = 50


class Recorder:
    """Only the latest of each kind counts, so that what waits is bounded by the number of nodes."""

    def __init__(self, database: Database, bus: Bus) -> None:
        self._database = database
        self._bus = bus
        self._waiting: dict[int, Told] = {}
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to keep."""
        self._task = asyncio.create_task(self._run())

    async def stop(self) -> None:
        """End; agents tell everything again when they connect."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def tell(self, node_id: int, what: Hello | Topology | Inventory | Learned) -> None:
        """Keep this of the node."""
        told = self._waiting.setdefault(node_id, Told())
        encoded = msgspec.json.encode(what)
        match what:
            case Hello():
                told.hello = encoded
            case Topology():
                told.topology = encoded
                packages = {cpu.package for cpu in what.cpus if cpu.package is not None}
                told.cpus, told.packages, told.numa_nodes = len(what.online()), len(packages), len(what.numa_nodes)
            case Inventory():
                told.inventory = encoded
                told.netdevs = msgspec.json.encode({n.name: n.driver for n in what.netdevs})
                told.drivers = sorted({n.driver for n in what.netdevs if n.driver and not n.virtual})
            case Learned():
                told.learned = encoded
        self._wake.set()

    async def _run(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._waiting:
                batch = {node_id: self._waiting.pop(node_id) for node_id in list(self._waiting)[:_NODES_A_TRANSACTION]}
                try:
                    await self._keep(batch)
                except Exception as error:
                    if not is_database_away(error):
                        log.exception("What some nodes told of themselves could not be kept; trying again.")
                    for node_id, told in batch.items():
                        self._waiting[node_id] = told.overlaid_by(self._waiting.get(node_id, Told()))
                    await asyncio.sleep(_RETRY_S)

    async def _keep(self, batch: dict[int, Told]) -> None:
        try:
            async with self._database.pool.connection() as connection:
                await repository.keep(connection, batch)
        except psycopg.DataError as error:  # one node's data must not keep the others' from being stored
            if len(batch) > 1:
                for node_id, told in batch.items():
                    await self._keep({node_id: told})
            else:
                log.error("What node %d told of itself was refused by the database: %s", *batch, error)
            return
        for node_id, told in batch.items():
            if told != Told(learned=told.learned):
                self._bus.publish(NodeEvent(node_id))
            if told.topology or told.inventory or told.learned:
                self._bus.publish(InventoryEvent(node_id))
