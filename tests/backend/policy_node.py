"""A connected node that policies can be for, and what tests ask of the backend about it."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import numpy as np
from msgspec.structs import replace
from tests.backend.conftest import Backend, Client
from tests.backend.fake_agent import FakeAgent, enrolled, now_ms, rates, tell
from tests.support.polling import PATIENCE_S

from coresteer_agent.simulate.machine import Fault, Machine, make_machine
from coresteer_core.changes.plan import Action
from coresteer_core.node.rates import CPU_SHARES, Rates
from coresteer_core.node.tasks import NetTask, RxPlacement
from coresteer_core.policies.base import Evaluation, Mode
from coresteer_core.policies.engine_state import PolicyInForce
from coresteer_core.protocol import (
    DecisionMessage,
    FlowsMessage,
    InventoryMessage,
    Policies,
    RatesMessage,
    ToBackend,
    TopologyMessage,
    decode_to_agent,
)

CPUS = 8


@dataclass
class PolicyNode:
    """A machine all of whose queues are served by one CPU, and its agent."""

    backend: Backend
    agent: FakeAgent
    machine: Machine
    name: str
    operator: Client

    @property
    def path(self) -> str:
        return f"/api/v1/nodes/{self.agent.node_id}"

    @property
    def irqs(self) -> list[int]:
        return [irq.irq for irq in self.machine.inventory.irqs if irq.queues and irq.netdev and irq.movable]

    @property
    def hot_cpu(self) -> int:
        irq = self.machine.inventory.irq(self.irqs[0])
        assert irq is not None
        return int(irq.effective or "")

    def hot(self, seq: int, time_ms: int, *, dropped: int = 0) -> Rates:
        """A second in which that CPU did nothing but serve its interrupts."""
        busy = np.full(CPUS, 10, np.uint8)
        busy[self.hot_cpu] = 200
        softirq = np.zeros(CPUS, np.uint8)
        softirq[self.hot_cpu] = 180
        quiet = np.zeros(CPUS, np.uint8).tobytes()
        template = rates(seq, time_ms=time_ms)
        shares = dict.fromkeys(CPU_SHARES, quiet) | {"busy": busy.tobytes(), "softirq": softirq.tobytes()}
        (netdev,) = template.netdevs or []
        return replace(
            template,
            cpus=CPUS,
            duration_s=1.0,
            shares=shares,
            counts=dict.fromkeys(template.counts, np.zeros(CPUS, "<u4").tobytes()),
            irq_ids=np.array(self.irqs, "<u4").tobytes(),
            irq_cpus=np.full(len(self.irqs), self.hot_cpu, "<u2").tobytes(),
            irq_counts=np.full(len(self.irqs), 4000, "<u4").tobytes(),
            netdevs=[replace(netdev, rx_dropped=dropped)],
        )

    def action(self, place: int = 0, to: int = 1) -> Action:
        return Action(f"irq/{self.irqs[place]}/affinity", str(self.hot_cpu), str(to), "It is busy.")

    def flows(self, time_ms: int | None = None) -> FlowsMessage:
        rx_placement = RxPlacement("eth0", "rx-0", self.irqs[0], self.hot_cpu, "rss", 3, 5e6, 1e5)
        task = NetTask(812, 5, "nginx", "/web", 4, f"0-{CPUS - 1}", f"0-{CPUS - 1}", 1, 0.4, 0.0, [rx_placement])
        return FlowsMessage(now_ms() if time_ms is None else time_ms, [task])

    async def describe(self) -> None:
        """Tell topology and inventory; returns when both are kept."""
        await self.tell(TopologyMessage(self.machine.topology), InventoryMessage(self.machine.inventory))

    async def tell(self, *messages: ToBackend) -> None:
        """Say something; returns when the backend has handled it."""
        await tell(self.backend.app.state.bus, self.agent, *messages)

    async def show(self, samples: Sequence[Rates]) -> None:
        """Send samples; returns when the backend has taken the last."""
        await self.tell(*map(RatesMessage, samples), self.flows())

    async def evaluate(
        self,
        policy: dict[str, Any],  # Any: JSON
        *actions: Action,
        version: int = 1,
        mode: Mode = Mode.ENFORCE,
        change_id: str | None = None,
        **more: object,
    ) -> Evaluation:
        """Tell what a policy came to; returns when it is kept."""
        evaluation = Evaluation(str(policy["id"]), version, mode, f"CPU {self.hot_cpu} is at 98 %.", list(actions))
        evaluation = replace(evaluation, **more)
        await self.tell(DecisionMessage(now_ms(), evaluation, change_id))
        return evaluation

    async def get(self, what: str) -> Any:  # noqa: ANN401 - JSON
        answer = await self.operator.get(f"{self.path}/{what}")
        assert answer.status_code == 200, answer.text
        return answer.json()

    async def told(self, *names: str) -> list[PolicyInForce]:
        """What is in force here, once the policies of these names are."""
        async with asyncio.timeout(PATIENCE_S):
            return await self.agent.policies(list(names))

    async def leaving(self, accept: Callable[[frozenset[str]], bool]) -> frozenset[str]:
        """The first set of policies that leave pages where they are that is accepted."""
        async with asyncio.timeout(PATIENCE_S):
            while True:
                message = decode_to_agent(await self.agent.receive())
                if isinstance(message, Policies) and accept(found := frozenset(message.leave_pages)):
                    return found

    def body(self, **changes: object) -> dict[str, Any]:  # Any: JSON
        """A policy for this node alone."""
        made = {"name": f"spread {uuid4().hex[:8]}", "spec": {"type": "irq-spread"}, "mode": "enforce"}
        return made | {"selector": {"hostnames": [self.name]}} | changes


@asynccontextmanager
async def policy_node(backend: Backend, **greeting: object) -> AsyncIterator[PolicyNode]:
    """A new node that has told what it is."""
    name = f"node-{uuid4().hex[:8]}"
    machine = make_machine(cpus=CPUS, irqs=30, kind=1, seed=0, fault=Fault.HOT_QUEUE)
    agent = await enrolled(backend.database, backend.url, name)
    await agent.connect()
    try:
        await agent.greet(mode="control", observe_reason=None, **greeting)
        node = PolicyNode(backend, agent, machine, name, await backend.client("operator"))
        await node.describe()
        yield node
    finally:
        await agent.websocket.close()


async def created(node: PolicyNode, body: dict[str, Any]) -> dict[str, Any]:  # Any: JSON
    """A new policy."""
    answer = await node.operator.post("/api/v1/policies", body)
    assert answer.status_code == 201, answer.text
    made: dict[str, Any] = answer.json()
    return made


async def asked(client: Client, path: str, json: object = None, status: int = 200) -> Any:  # noqa: ANN401 - JSON
    """The answer to a POST, which must have this status."""
    answer = await client.post(path, json)
    assert answer.status_code == status, answer.text
    return answer.json()
