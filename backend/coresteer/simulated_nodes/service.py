"""Start, state and removal of the simulated fleet."""

import asyncio

from sqlalchemy.ext.asyncio import AsyncSession

from coresteer.audit.service import record
from coresteer.bus import Bus, NodeEvent
from coresteer.config import Config
from coresteer.db import Database
from coresteer.errors import Conflict
from coresteer.gateway.enrolment import new_enrolment_token
from coresteer.gateway.enrolment_schemas import EnrolmentTokenCreate
from coresteer.nodes import repository as nodes
from coresteer.presence.registry import NodeRegistry
from coresteer.presence.schemas import Health
from coresteer.quotas import Peer, Quotas
from coresteer.simulated_nodes.process import NODES, SimulationProcess
from coresteer.simulated_nodes.schemas import SimulatedNodes

_TARGET = "simulated nodes"
_TOKEN_MINUTES = 5
_UNAVAILABLE = (
    "Only `coresteer up` starts simulated nodes by itself. Here, `coresteer-agent simulate` does, with an enrolment "
    "token for simulated nodes."
)


class SimulatedFleet:
    """The simulated nodes of `coresteer up`."""

    def __init__(self, database: Database, bus: Bus, registry: NodeRegistry, quotas: Quotas, config: Config) -> None:
        self._database = database
        self._bus = bus
        self._registry = registry
        self._quotas = quotas
        self._unavailable = None if config.supervised else _UNAVAILABLE
        self._process = SimulationProcess(config)
        self._lock = asyncio.Lock()

    async def state(self, session: AsyncSession) -> SimulatedNodes:
        """Return whether nodes are simulated, and how many simulated nodes there are."""
        return SimulatedNodes(
            nodes=len(await nodes.simulated_ids(session)),
            offered=NODES,
            running=self._process.is_running,
            unavailable_because=self._unavailable,
            failure=self._process.failure,
        )

    async def start(self, by: str) -> SimulatedNodes:
        """Start the simulation: the same nodes each time. Raises Conflict."""
        if self._unavailable is not None:
            raise Conflict(self._unavailable)
        async with self._lock:
            async with self._database.session() as session:
                if self._process.is_running:
                    raise Conflict("The simulated nodes are running already.")
                live = {
                    node_id
                    for node_id in await nodes.simulated_ids(session)
                    if self._registry.health(node_id, seen_before=True) is Health.LIVE
                }
                if live:
                    raise Conflict("Nodes that `coresteer-agent simulate` runs are connected; stop it first.")
                request = EnrolmentTokenCreate(simulated=True, expires_in_minutes=_TOKEN_MINUTES)
                new = await new_enrolment_token(session, by, request)
                record(session, actor=by, action="simulated-nodes.start", target=_TARGET, detail={"nodes": NODES})
            await self._process.start(new.token)
            async with self._database.session() as session:
                return await self.state(session)

    async def remove(self, by: str) -> None:
        """End the simulation; delete every simulated node, also of other simulations, with its history."""
        async with self._lock:
            await self._process.stop()
            async with self._database.session() as session:
                ids = await nodes.simulated_ids(session)
                await nodes.delete_nodes(session, ids)
                record(session, actor=by, action="simulated-nodes.remove", target=_TARGET, detail={"nodes": len(ids)})
        for node_id in ids:
            self._registry.remove(node_id)
            self._quotas.forget(Peer("node", node_id))
            self._bus.publish(NodeEvent(node_id))

    async def stop(self) -> None:
        """End the simulation; its nodes stay in the fleet as disconnected ones."""
        async with self._lock:
            await self._process.stop()
