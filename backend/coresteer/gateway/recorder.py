"""Stores what agents report about their nodes, without making their connections wait."""

import asyncio
import logging

import msgspec
import psycopg

from coresteer.background import cancel
from coresteer.bus import Bus, InventoryEvent, NodeEvent
from coresteer.db import Database
from coresteer.errors import is_database_unavailable
from coresteer.nodes import repository
from coresteer.nodes.repository import NodeReport
from coresteer_core.node.inventory import Inventory
from coresteer_core.node.nic import NicKnowledge
from coresteer_core.node.topology import Topology
from coresteer_core.protocol import Hello

log = logging.getLogger("coresteer.nodes")

_RETRY_S = 1.0
_PAUSE_S = 0.2
"""After what was queued is stored: what several nodes report meanwhile is stored in one transaction."""
_NODES_PER_TRANSACTION = 50


class Recorder:
    """Stores agents' reports in the background.

    Only the latest report of each kind and node is queued, which bounds the queue.
    """

    def __init__(self, database: Database, bus: Bus) -> None:
        self._database = database
        self._bus = bus
        self._queue: dict[int, NodeReport] = {}
        self._wake = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Start storing queued reports."""
        self._tasks = [asyncio.create_task(self._run())]

    async def stop(self) -> None:
        """Stop storing; agents report everything again when they reconnect."""
        await cancel(self._tasks)

    def record(self, node_id: int, epoch: int, message: Hello | Topology | Inventory | NicKnowledge) -> None:
        """Queue a validated report of the node to be stored. epoch: of the connection that it came by."""
        report = self._queue.setdefault(node_id, NodeReport(epoch))
        report.epoch = max(report.epoch, epoch)
        encoded = msgspec.json.encode(message)
        match message:
            case Hello():
                report.hello = encoded
            case Topology():
                report.topology = encoded
                packages = {cpu.package for cpu in message.cpus if cpu.package is not None}
                report.cpus, report.packages = len(message.online()), len(packages)
                report.numa_nodes = len(message.numa_nodes)
            case Inventory():
                report.inventory = encoded
                report.netdevs = msgspec.json.encode({n.name: n.driver for n in message.netdevs})
                report.changed_settings = message.changed_settings
                report.drivers = sorted({n.driver for n in message.netdevs if n.driver and not n.virtual})
            case NicKnowledge():
                report.learned = encoded
        self._wake.set()

    async def _run(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._queue:
                batch = {node_id: self._queue.pop(node_id) for node_id in list(self._queue)[:_NODES_PER_TRANSACTION]}
                try:
                    await self._store(batch)
                except Exception as error:
                    if not is_database_unavailable(error):
                        log.exception("Storing reports of some nodes failed; retrying.")
                    for node_id, report in batch.items():
                        self._queue[node_id] = report.merged_with(self._queue.get(node_id, NodeReport(report.epoch)))
                    await asyncio.sleep(_RETRY_S)
            await asyncio.sleep(_PAUSE_S)

    async def _store(self, batch: dict[int, NodeReport]) -> None:
        try:
            async with self._database.pool.connection() as connection:
                await repository.store_reports(connection, batch)
        except psycopg.DataError as error:  # one node's data must not prevent the others' from being stored
            if len(batch) > 1:
                for node_id, report in batch.items():
                    await self._store({node_id: report})
            else:
                log.error("The database rejected a report of node %d: %s", *batch, error)
            return
        for node_id, report in batch.items():
            if report != NodeReport(report.epoch, learned=report.learned):
                self._bus.publish(NodeEvent(node_id))
            if report.topology or report.inventory or report.learned:
                self._bus.publish(InventoryEvent(node_id))
