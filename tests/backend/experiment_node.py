"""A node whose agent completes experiments at once, with metrics that follow from its settings."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

from msgspec.structs import replace
from tests.backend.conftest import Backend, Client
from tests.backend.fake_agent import FakeAgent, enrolled, now_ms, tell
from tests.support.polling import PATIENCE_S
from websockets.exceptions import ConnectionClosed

from coresteer.experiments import service
from coresteer.experiments.events import ExperimentEvent
from coresteer.experiments.steps import Timeouts
from coresteer_agent.simulate.cache import SimulationCache
from coresteer_agent.simulate.changes import SimulatedChanges
from coresteer_agent.simulate.machine import ADDRESS, make_machine
from coresteer_agent.simulate.node import SimulatedNode
from coresteer_core.experiments.model import Run, RunResult, RunState
from coresteer_core.policies.engine_state import PolicyInForce
from coresteer_core.protocol import (
    Apply,
    BeginExperiment,
    ChangeAck,
    Confirm,
    EndExperiment,
    ExperimentMessage,
    Extend,
    InventoryMessage,
    Policies,
    Rollback,
    RunExperiment,
    ToAgent,
    ToBackend,
    TopologyMessage,
    decode_to_agent,
)

QUICK = Timeouts(away_s=PATIENCE_S, ready_s=PATIENCE_S, run_s=PATIENCE_S, restored_s=PATIENCE_S, pause_s=0)


def measured(run: Run, requests_per_s: float = 1000.0, **changes: Any) -> RunResult:  # noqa: ANN401 - of several types
    """Return the result of an undisturbed run."""
    figures = {"requests_per_s": requests_per_s, "cpu_busy_percent": 40.0}
    cpus: dict[str, list[float | None]] = {"busy": [10.0, None], "softirq": [1.0, 0.0]}
    found = RunResult(started_ms=now_ms(), duration_s=run.measure_s, figures=figures, cpus=cpus, load_before=0.1)
    return replace(found, **changes)


@dataclass
class ExperimentNode:
    """A machine and its agent. requests: every message about experiments and changes; policies: as last published.

    answer: the agent's messages after a request to run; prepare: after a request to prepare. address: that it states
    for the load's server.
    """

    backend: Backend
    operator: Client
    agent: FakeAgent
    node: SimulatedNode
    changes: SimulatedChanges
    requests: list[ToAgent] = field(default_factory=list)
    policies: list[PolicyInForce] = field(default_factory=list)
    published: list[list[PolicyInForce]] = field(default_factory=list)
    received: asyncio.Condition = field(default_factory=asyncio.Condition)
    answer: Callable[["ExperimentNode", RunExperiment], list[ExperimentMessage]] = field(
        default=lambda n, r: n.complete(r)
    )
    prepare: Callable[["ExperimentNode", BeginExperiment], list[ExperimentMessage]] = field(
        default=lambda n, b: n.ready(b)
    )
    address: str = f"{ADDRESS}:5201"
    _task: asyncio.Task[None] | None = None

    @property
    def id(self) -> int:
        return self.agent.node_id

    @property
    def irq(self) -> int:
        """Return an interrupt that can be moved."""
        return next(irq.irq for irq in self.node.inventory.irqs if irq.movable and irq.queues)

    @property
    def key(self) -> str:
        return f"irq/{self.irq}/affinity"

    @property
    def affinity(self) -> str | None:
        irq = self.node.inventory.irq(self.irq)
        return None if irq is None else irq.requested

    def runs(self) -> list[Run]:
        return [message.run for message in self.requests if isinstance(message, RunExperiment)]

    def ready(self, begin: BeginExperiment) -> list[ExperimentMessage]:
        ready = ExperimentMessage(begin.experiment_id, RunState.READY, address=self.address, netdev="eno1")
        return [replace(ready, receipts_port=5202)]

    def complete(self, request: RunExperiment, **changes: Any) -> list[ExperimentMessage]:  # noqa: ANN401 - of several types
        """Return messages of a completed run, 10 % faster if the interrupt is on CPU 7."""
        found = measured(request.run, 1100.0 if self.affinity == "7" else 1000.0)
        return [
            ExperimentMessage(request.experiment_id, RunState.LOADED, request.run.run_id),
            ExperimentMessage(
                request.experiment_id, RunState.MEASURED, request.run.run_id, measured=replace(found, **changes)
            ),
        ]

    async def connect(self, **greeting: object) -> None:
        await self.agent.connect()
        await self.agent.greet(**{"mode": "control", "observe_reason": None, **greeting})
        described = TopologyMessage(self.node.machine.topology), InventoryMessage(self.node.inventory)
        await tell(self.backend.app.state.bus, self.agent, *described)
        self.changes.handle_connected()
        for message in self.changes.drain_messages():
            await self.say(message)
        self._task = asyncio.create_task(self._serve())

    async def disconnect(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        await self.agent.websocket.close()
        self.changes.handle_disconnected()

    async def say(self, message: ToBackend) -> None:
        await self.agent.say(message)

    async def _serve(self) -> None:
        with contextlib.suppress(ConnectionClosed):
            while True:
                await self._handle(decode_to_agent(await self.agent.receive()))

    async def _handle(self, message: ToAgent) -> None:
        answers: list[Any] = []  # Any: messages of several kinds
        match message:
            case Apply() | Rollback() | Extend() | Confirm() | ChangeAck():
                self.changes.handle(message)
                answers += self.changes.drain_messages()
                if answers:
                    answers.append(InventoryMessage(self.node.inventory))
            case Policies(policies):
                self.policies = policies
                self.published.append(policies)
            case BeginExperiment():
                answers += self.prepare(self, message)
            case RunExperiment():
                answers += self.answer(self, message)
        async with self.received:
            if isinstance(message, BeginExperiment | RunExperiment | EndExperiment | Apply | Rollback):
                self.requests.append(message)
            self.received.notify_all()
        for answer in answers:
            await self.say(answer)

    async def until(self, seen: Callable[[], object]) -> None:
        """Wait until a condition holds after a message to the agent.."""
        async with asyncio.timeout(PATIENCE_S), self.received:
            await self.received.wait_for(lambda: bool(seen()))

    def spec(self, **changes: object) -> dict[str, Any]:
        """Return a spec that compares the node as it is with the interrupt on CPU 7."""
        levels = [{"name": "as it is"}, {"name": "CPU 7", "settings": [{"key": self.key, "value": "7"}]}]
        spec = {
            "name": "an experiment",
            "kind": "ab",
            "node_id": self.id,
            "workload": {"type": "tcp-request"},
            "primary": "requests_per_s",
            "factors": [{"name": "interrupt", "levels": levels}],
            "warmup_s": 0.5,
            "measure_s": 1.0,
            "settle_s": 0.0,
            "blocks": 3,
            "aa_blocks": 3,
            "seed": 7,
        }
        return spec | changes

    def aa_spec(self, **changes: object) -> dict[str, Any]:
        """Return a spec of an A/A experiment."""
        return self.spec(kind="aa", factors=[], **changes)

    async def start(self, spec: dict[str, Any]) -> dict[str, Any]:
        answer = await self.operator.post("/api/v1/experiments", {"spec": spec})
        assert answer.status_code == 201, answer.text
        found: dict[str, Any] = answer.json()
        return found

    async def get(self, experiment_id: int) -> dict[str, Any]:
        found: dict[str, Any] = (await self.operator.get(f"/api/v1/experiments/{experiment_id}")).json()
        return found

    async def ended(self, experiment_id: int, backend: Backend | None = None) -> dict[str, Any]:
        """Return an experiment once it has ended."""
        await until_published(backend or self.backend, experiment_id, lambda published: published.ended_at is not None)
        return await self.get(experiment_id)


def never_completes(_: ExperimentNode, request: RunExperiment) -> list[ExperimentMessage]:
    """Return messages of a run that does not end."""
    return [ExperimentMessage(request.experiment_id, RunState.LOADED, request.run.run_id)]


async def until_published(backend: Backend, experiment_id: int, wanted: Callable[[Any], bool]) -> None:
    """Wait until the summary of an experiment satisfies a condition.."""
    async with asyncio.timeout(PATIENCE_S):
        with backend.app.state.bus.subscribe() as events:
            async with backend.database.session() as session:
                now = await service.summary(session, experiment_id)
            if now is not None and wanted(now):
                return
            async for event in events:
                if isinstance(event, ExperimentEvent):
                    published = event.experiment
                    if published.id == experiment_id and wanted(published):
                        return


@asynccontextmanager
async def experiment_node(backend: Backend) -> AsyncIterator[ExperimentNode]:
    """Yield a connected node whose topology and inventory are stored."""
    name = f"node-{uuid4().hex[:8]}"
    agent = await enrolled(backend.database, backend.url, name)
    agent.stream = uuid4().hex
    machine = make_machine(cpus=8, irqs=30, kind=1, seed=0)
    simulated = SimulatedNode(
        name=name, key="", index=1, seed=0, machine=machine, cache=SimulationCache(1.0), stream=agent.stream
    )
    operator = await backend.client("operator")
    node = ExperimentNode(backend, operator, agent, simulated, SimulatedChanges(simulated))
    await node.connect()
    try:
        yield node
    finally:
        await node.disconnect()
