"""A simulated node on the real agent socket, and its operator."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from uuid import uuid4

from requests import Response
from tests.backend.conftest import Backend, Client
from tests.support.polling import PATIENCE_S, poll_async
from websockets.uri import parse_uri

from coresteer.changes.events import ChangeEvent
from coresteer.nodes.service import create_nodes
from coresteer_agent.simulate.agent import FleetStatistics, SimulatedAgent
from coresteer_agent.simulate.cache import SimulationCache
from coresteer_agent.simulate.machine import make_machine
from coresteer_agent.simulate.node import SimulatedNode
from coresteer_core.changes.report import ChangeState


@dataclass
class Live:
    """A node whose agent is connected, and an operator."""

    backend: Backend
    operator: Client
    node_id: int
    node: SimulatedNode

    @property
    def key(self) -> str:
        number = next(irq.irq for irq in self.node.inventory.irqs if irq.movable and irq.queues)
        return f"irq/{number}/affinity"

    @property
    def path(self) -> str:
        return f"/api/v1/nodes/{self.node_id}"

    async def is_described(self) -> bool:
        """Return whether the backend has all that the agent says of the node."""
        found = (await self.operator.get(self.path)).json()
        return found["topology"] is not None and found["inventory"] is not None

    async def is_stored(self, cpus: str) -> bool:
        """Return whether the backend has stored that the interrupt of key is to be delivered to these CPUs."""
        irqs = (await self.operator.get(self.path)).json()["inventory"]["irqs"]
        return any(f"irq/{irq['irq']}/affinity" == self.key and irq["requested"] == cpus for irq in irqs)

    async def previewed(self, value: str = "5") -> dict[str, object]:
        answer = await self.operator.post(f"{self.path}/previews", {"desired": [{"key": self.key, "value": value}]})
        assert answer.status_code == 200, answer.text
        plan: dict[str, object] = answer.json()["plan"]
        return plan

    async def until(self, state: ChangeState, act: Callable[[], Awaitable[Response]]) -> Response:
        """What act answers, once a change has reached the state."""
        with self.backend.app.state.agents.bus.subscribe() as events:
            answer = await act()
            async with asyncio.timeout(PATIENCE_S):
                async for event in events:
                    if isinstance(event, ChangeEvent) and event.change.state is state:
                        return answer
        raise AssertionError


@asynccontextmanager
async def connected_node(backend: Backend) -> AsyncIterator[Live]:
    """A node that the backend knows whole, until the block ends."""
    name = f"sim-{uuid4().hex[:8]}"
    async with backend.database.session() as session:
        (enrolled,) = await create_nodes(session, [name], simulated=True)
    machine = make_machine(cpus=8, irqs=30, kind=1, seed=0)
    node = SimulatedNode(
        name=name, key=enrolled.key, index=1, seed=0, machine=machine, cache=SimulationCache(1.0), stream=uuid4().hex
    )
    uri = parse_uri(backend.url.replace("http", "ws") + "/api/agent")
    member = SimulatedAgent(node, uri, FleetStatistics(), record_latencies=False)
    live = Live(backend, await backend.client("operator"), enrolled.node_id, node)
    connecting = asyncio.create_task(member.maintain_connection(asyncio.Semaphore(1), None))
    await poll_async(live.is_described)
    try:
        yield live
    finally:
        connecting.cancel()
        await asyncio.gather(connecting, return_exceptions=True)
        await member.close()
