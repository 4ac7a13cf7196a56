"""Two backends on one database, with agents on both."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from uuid import uuid4

import pytest
import pytest_asyncio
from msgspec.structs import replace
from tests.backend.conftest import Backend, running_backend
from tests.backend.experiment_node import QUICK, ExperimentNode, experiment_node
from tests.backend.fake_agent import FakeAgent, enrolled, now_ms
from tests.backend.policy_node import PolicyNode, asked, created, policy_node
from tests.support.polling import PATIENCE_S, poll_async

from coresteer.bus import NodeEvent, PoliciesEvent
from coresteer.policies.rollout_monitor import RolloutMonitor
from coresteer.policies.tables import RolloutRow
from coresteer.telemetry.repository import to_unix_ms
from coresteer_core.node.rates import NetdevCounts
from coresteer_core.protocol import CloseCode


@dataclass
class Pair:
    """Two backends; the first leads."""

    first: Backend
    second: Backend
    stop_first: Callable[[], Awaitable[None]]


@pytest_asyncio.fixture
async def pair(database_url: str) -> AsyncIterator[Pair]:
    async with AsyncExitStack() as stack:
        first_stack = await stack.enter_async_context(AsyncExitStack())
        first = await first_stack.enter_async_context(running_backend(database_url))
        second = await stack.enter_async_context(running_backend(database_url))
        await poll_async(lambda: first.app.state.membership.others and second.app.state.membership.others)
        assert first.app.state.membership.token is not None and second.app.state.membership.token is None
        yield Pair(first, second, first_stack.aclose)


async def _health(backend: Backend, agent: FakeAgent) -> str:
    viewer = await backend.client("viewer")
    return str((await viewer.get(f"/api/v1/nodes/{agent.node_id}")).json()["health"])


async def _until_known(backend: Backend, agent: FakeAgent, *, connected: bool) -> None:
    await poll_async(lambda: backend.app.state.registry.is_connected(agent.node_id) is connected)


async def test_administrators_see_all_backends_and_which_one_leads(pair: Pair) -> None:
    admin = await pair.second.client("admin")
    found = (await admin.get("/api/v1/backends")).json()
    assert [(each["is_alive"], each["leads"], each["answered"]) for each in found] == [
        (True, True, False),
        (True, False, True),
    ]


async def test_a_node_is_connected_for_every_backend_and_commands_name_the_one_that_reaches_it(pair: Pair) -> None:
    async with policy_node(pair.first) as node:
        await _until_known(pair.second, node.agent, connected=True)
        assert await _health(pair.second, node.agent) in ("live", "stale")
        operator = await pair.second.client("operator")
        plan = {"actions": [{"key": f"irq/{node.irqs[0]}/affinity", "was": "0", "becomes": "1", "reason": ""}]}
        answer = await operator.post(f"{node.path}/changes", {"plan": plan})
        assert (answer.status_code, answer.json()["type"]) == (503, "urn:coresteer:node-elsewhere"), answer.text
        assert pair.first.app.state.membership.name in answer.json()["detail"]
        preview = {"body": node.body(), "node_ids": [node.agent.node_id]}
        (found,) = await asked(operator, "/api/v1/policies/preview", preview)
        assert f"is connected to the backend {pair.first.app.state.membership.name}" in found["error"]
    await _until_known(pair.second, node.agent, connected=False)
    assert await _health(pair.second, node.agent) == "away"


async def test_an_agent_that_connects_elsewhere_replaces_its_connection_and_the_end_of_that_hides_nothing(
    pair: Pair,
) -> None:
    agent = await enrolled(pair.first.database, pair.first.url, "moves")
    again = FakeAgent(pair.second.url, agent.key, agent.node_id, stream="s2")
    async with asyncio.timeout(PATIENCE_S), agent, again:
        assert (await agent.closed())[0] == CloseCode.REPLACED
        await poll_async(lambda: not pair.first.app.state.connections.node_ids())
        pair.first.app.state.presence.wake()
        await _until_known(pair.first, agent, connected=True)
        async with pair.first.database.pool.connection() as connection:
            query = "SELECT replica_id, stream FROM node_presence WHERE node_id = %s"
            cursor = await connection.execute(query, (agent.node_id,))
            assert await cursor.fetchall() == [(pair.second.app.state.membership.id, "s2")]


async def test_a_report_that_waited_for_the_database_does_not_replace_that_of_a_later_connection(pair: Pair) -> None:
    moved = await enrolled(pair.first.database, pair.first.url, "moved-meanwhile")
    stayed = await enrolled(pair.first.database, pair.first.url, "stayed")
    again = FakeAgent(pair.second.url, moved.key, moved.node_id, stream="s2")
    viewer = await pair.second.client("viewer")

    async def stored(agent: FakeAgent) -> str | None:
        kernel: str | None = (await viewer.get(f"/api/v1/nodes/{agent.node_id}")).json()["kernel"]
        return kernel

    waiting = pair.first.app.state.agents.recorder
    await waiting.stop()  # as while its database is away
    async with asyncio.timeout(PATIENCE_S):
        for agent, kernel in ((moved, "6.1"), (stayed, "6.1"), (again, "6.12")):
            await agent.connect()
            await agent.greet(kernel=kernel)
            await agent.websocket.close()
        await poll_async(lambda: stored(again))
        waiting.start()
        await poll_async(lambda: stored(stayed))  # in the same transaction
    assert await stored(moved) == "6.12"


async def test_events_reach_the_other_backend_by_their_ids(pair: Pair) -> None:
    async with policy_node(pair.first) as node:
        with pair.second.app.state.bus.subscribe() as events:
            body = node.body()
            await created(node, body)
            await node.operator.patch(node.path, {"labels": {"rack": "r1"}})
            wanted = {PoliciesEvent(None), NodeEvent(node.agent.node_id)}
            async with asyncio.timeout(PATIENCE_S):
                async for event in events:
                    wanted.discard(event)
                    if not wanted:
                        break


async def test_the_proof_of_policies_has_a_node_of_another_backend_sent_its_policies(pair: Pair) -> None:
    async with policy_node(pair.second) as node:
        with pair.second.app.state.bus.subscribe() as events:
            pair.first.app.state.proof.publish(node.agent.node_id)
            async with asyncio.timeout(PATIENCE_S):
                while await anext(events) != NodeEvent(node.agent.node_id):
                    pass


@pytest.mark.slow("two backends and an experiment of 24 runs")
async def test_an_experiment_runs_once_and_only_on_the_leader(pair: Pair) -> None:
    pair.first.app.state.runner.timeouts = QUICK
    async with experiment_node(pair.first) as node:
        node.answer = ExperimentNode.complete
        done = await node.ended((await node.start(node.aa_spec()))["id"])
        await node.disconnect()
    assert done["state"] == "done" and len(node.runs()) == done["runs_done"]


async def _rollout_of(nodes: list[PolicyNode], pool: str, **changes: object) -> int:
    for node in nodes:
        await node.operator.patch(node.path, {"labels": {"pool": pool}})
    body = nodes[0].body(selector={"labels": {"pool": pool}})
    policy, operator = await created(nodes[0], body), nodes[0].operator
    path = f"/api/v1/policies/{policy['id']}"
    await asked(operator, f"{path}/enable")
    await asked(operator, f"{path}/versions", {"body": body | {"rank": 50}}, 201)
    request = {"version": 2, "canary": 2, "batch": 2, "wait_s": 600} | changes
    begun = await asked(operator, f"{path}/rollouts", request, 201)
    return int(begun["id"])


async def test_a_guardrail_holds_on_nodes_of_a_backend_that_does_not_lead(pair: Pair) -> None:
    async with policy_node(pair.second) as there:
        await _until_known(pair.first, there.agent, connected=True)
        guardrails = [{"metric": "dropped_per_s", "max": 10}]
        rollout_id = await _rollout_of([there], uuid4().hex[:8], guardrails=guardrails)
        start = now_ms() - 4000
        for seq, dropped in ((1, 50), (2, 70)):
            await there.show([there.hot(seq, start + 1000 * seq, dropped=dropped)])
            await pair.second.app.state.guardrail_watch.check()
        await pair.first.app.state.rollout_monitor.check(datetime.now(UTC))
        rollout = (await there.operator.get(f"/api/v1/rollouts/{rollout_id}")).json()
        assert rollout["state"] == "rolled_back"
        assert f"On {there.name} the dropped packets per second was 70" in rollout["sentence"]


async def _ended_stage(rollout_id: int, pair: Pair) -> datetime:
    """Let the only stage of a rollout have ended 5 s ago; return now."""
    now = datetime.now(UTC)
    async with pair.first.database.session() as session:
        row = await session.get_one(RolloutRow, rollout_id)
        row.begun_at = row.stage_at = now - timedelta(seconds=row.wait_s + 5)
    return now


async def test_a_stage_waits_until_samples_of_nodes_of_other_backends_are_stored(pair: Pair) -> None:
    async with policy_node(pair.second) as there:
        await _until_known(pair.first, there.agent, connected=True)
        rollout_id = await _rollout_of([there], uuid4().hex[:8], wait_s=60)
        now = await _ended_stage(rollout_id, pair)
        await pair.first.app.state.rollout_monitor.check(now)
        rollout = (await there.operator.get(f"/api/v1/rollouts/{rollout_id}")).json()
        assert rollout["state"] == "canary"
        behind_s, count = 30, 4 * 60
        counts = [NetdevCounts(netdev, 10**8, 0, 10**5, 0, 0, 0, 0, 0) for netdev in ("br0", "eno1")]
        ends_ms = to_unix_ms(now) - 1000 * behind_s
        await there.show(
            [
                replace(there.hot(seq, round(ends_ms - 1000 * (count - seq))), netdevs=counts)
                for seq in range(1, count + 2)
            ]
        )
        async with asyncio.timeout(PATIENCE_S):
            await there.agent.until_acked(count)
        async with pair.first.database.pool.connection() as connection:
            values = (-1000 * behind_s, there.agent.node_id)
            await connection.execute("UPDATE node SET clock_skew_ms = %s WHERE id = %s", values)
        await pair.first.app.state.rollout_monitor.check(now)
        rollout = (await there.operator.get(f"/api/v1/rollouts/{rollout_id}")).json()
        assert rollout["state"] == "done"
        (cost,) = [one for one in rollout["evidence"][0]["figures"] if one["metric"] == "cpu_s_per_gbit"]
        cores = (0.05 * 7 + 1) / 0.8  # at 0.8 Gbit/s by the NIC; a bridge counts the same packets again
        assert (cost["before"], cost["after"]) == (pytest.approx(cores), pytest.approx(cores))


async def test_a_stage_does_not_wait_for_ever_for_samples_of_nodes_of_other_backends(pair: Pair) -> None:
    async with policy_node(pair.second) as there:
        await _until_known(pair.first, there.agent, connected=True)
        rollout_id = await _rollout_of([there], uuid4().hex[:8], wait_s=60)
        now = await _ended_stage(rollout_id, pair)
        for waited_s, state in ((80, "canary"), (90, "done")):
            await pair.first.app.state.rollout_monitor.check(now + timedelta(seconds=waited_s))
            rollout = (await there.operator.get(f"/api/v1/rollouts/{rollout_id}")).json()
            assert rollout["state"] == state
        assert rollout["evidence"][0]["basis"] == "none"


async def test_no_rollout_is_rolled_back_when_a_backend_stops_and_its_agents_connect_to_another(pair: Pair) -> None:
    async with policy_node(pair.first) as here, policy_node(pair.second) as there:
        await _until_known(pair.first, there.agent, connected=True)
        rollout_id = await _rollout_of([there, here], uuid4().hex[:8])

        async def state() -> str:
            operator = await pair.second.client("operator")
            return str((await operator.get(f"/api/v1/rollouts/{rollout_id}")).json()["state"])

        strict = RolloutMonitor(pair.first.app.state.policies, disconnected_s=0)
        await strict.check(datetime.now(UTC))
        assert await state() == "canary", "a node of another backend is not disconnected"
        await pair.stop_first()
        async with asyncio.timeout(PATIENCE_S):
            await poll_async(lambda: pair.second.app.state.membership.token is not None)
        moved = FakeAgent(pair.second.url, here.agent.key, here.agent.node_id)
        async with moved:
            await RolloutMonitor(pair.second.app.state.policies, disconnected_s=0).check(datetime.now(UTC))
            assert await state() == "canary"
        await _until_known(pair.second, moved, connected=False)
        await RolloutMonitor(pair.second.app.state.policies, disconnected_s=0).check(datetime.now(UTC))
        assert await state() == "rolled_back", "the same check finds a node that is disconnected"
