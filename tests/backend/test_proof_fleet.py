"""Simulated nodes with planted effects: a good version is detected, a harmful one is rolled back."""

import asyncio
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
import pytest_asyncio
from tests.backend.conftest import Backend, Client, running_backend
from tests.backend.policy_node import asked
from tests.support.polling import PATIENCE_S, poll_async

from coresteer.nodes.service import create_nodes
from coresteer_agent.simulate import agent as simulated_agent
from coresteer_agent.simulate.agent import FleetStatistics, SimulatedAgent
from coresteer_agent.simulate.cache import SimulationCache
from coresteer_agent.simulate.effects import parse_effect
from coresteer_agent.simulate.fleet import run
from coresteer_agent.simulate.machine import make_machine
from coresteer_agent.simulate.node import SimulatedNode
from coresteer_agent.transport.websocket_protocol import parse_uri

NODES = 30
"""Of each of the two policies."""
INTERVAL_S = 0.5
EFFECTS = dict(map(parse_effect, ("good@1=0.8", "bad@2=1.25")))
PROOF = {"holdout_percent": 20, "block_s": 10, "domain_percent": 100, "roll_back": True, "guardrails": []}


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def backend(database_url: str) -> AsyncIterator[Backend]:
    async with running_backend(database_url, chunk_seconds=1) as backend:
        yield backend


@pytest_asyncio.fixture
async def fleet(backend: Backend, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[None]:
    """Nodes good-… and bad-…, which evaluate their policies every second."""
    monkeypatch.setattr(simulated_agent, "ROUND_PERIOD_S", 1.0)
    names = [f"{kind}-{number:02}" for kind in ("good", "bad") for number in range(NODES)]
    async with backend.database.session() as session:
        nodes = await create_nodes(session, names, simulated=True)
    cache, machine = SimulationCache(INTERVAL_S), make_machine(cpus=4, irqs=12, kind=1, seed=0)
    uri = parse_uri(f"ws{backend.url.removeprefix('http')}/api/agent")
    agents = [
        SimulatedAgent(
            SimulatedNode(
                name=node.name,
                key=node.key,
                index=index + 3,
                seed=0,
                machine=machine,
                cache=cache,
                stream=secrets.token_hex(8),
            ),
            uri,
            FleetStatistics(),
            record_latencies=False,
            effects=EFFECTS,
        )
        for index, node in enumerate(nodes)
    ]
    running = asyncio.create_task(run(agents, interval_s=INTERVAL_S, duration_s=None, tls=None))
    try:
        await poll_async(lambda: all(agent.connected for agent in agents))
        yield
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def made(operator: Client, name: str, **proof: object) -> dict[str, Any]:  # Any: JSON
    """A policy in force for the nodes that begin with its name."""
    body = {"name": name, "mode": "enforce", "spec": {"type": "irq-spread"}, "selector": {"hostnames": [f"{name}-*"]}}
    policy: dict[str, Any] = await asked(operator, "/api/v1/policies", body | {"proof": PROOF | proof}, 201)
    return await asked(operator, f"/api/v1/policies/{policy['id']}/enable")  # type: ignore[no-any-return]


async def until(read: Callable[[], Awaitable[Any]], accept: Callable[[Any], bool]) -> Any:  # noqa: ANN401 - JSON
    """The first answer that is accepted."""
    answers: list[Any] = []

    async def accepted() -> bool:
        answers.append(await read())
        return accept(answers[-1])

    try:
        await poll_async(accepted, timeout_s=10 * PATIENCE_S, interval_s=0.5)  # some blocks of 10 s
    except TimeoutError:
        pytest.fail(f"not in time: {answers[-1]}")
    return answers[-1]


@pytest.mark.slow("lets the blocks of two policies go by, 10 s each")
async def test_a_good_version_is_detected_and_a_harmful_one_rolled_back(backend: Backend, fleet: None) -> None:
    operator = await backend.client("operator")
    good, bad = await made(operator, "good"), await made(operator, "bad", holdout_percent=0)
    second = {"body": bad["body"] | {"proof": PROOF}}
    await asked(operator, f"/api/v1/policies/{bad['id']}/versions", second, 201)
    await asked(operator, f"/api/v1/policies/{bad['id']}/rollouts", {"version": 2, "canary": 1000, "wait_s": 0}, 201)

    async def get(path: str) -> Any:  # noqa: ANN401 - JSON
        return (await operator.get(path)).json()

    def finding(proof: Any, version: int) -> str | None:  # noqa: ANN401 - JSON
        found = [one for one in proof["versions"] if one["version"] == version]
        return found[0]["metrics"][0]["finding"] if found else None

    proof = await until(
        lambda: get(f"/api/v1/policies/{good['id']}/proof?label=role"), lambda found: finding(found, 1) == "improves"
    )
    (version,) = proof["versions"]
    effect = version["metrics"][0]["effect"]
    assert effect["low"] < -0.2 < effect["high"] < 0
    assert version["nodes"] > 1
    assert version["cores"]["estimate"] > 0
    # a role has figures once a node of it has held out a block
    assert set() < {group["value"] for group in version["groups"]} <= {"cache", "db", "storage", "web"}
    assert proof["sentence"].startswith("Saves ")

    policy = await until(lambda: get(f"/api/v1/policies/{bad['id']}"), lambda found: found["version"] == 1)
    assert policy["enabled"]
    harmful = (await get(f"/api/v1/policies/{bad['id']}/proof"))["versions"][0]
    assert harmful["rolled_back_at"] is not None
    assert harmful["metrics"][0]["finding"] == "worsens"
    entries = (await (await backend.client("admin")).get("/api/v1/audit?limit=100")).json()["entries"]
    assert {"policy.roll_back", "policy.find_effect"} <= {entry["action"] for entry in entries}
