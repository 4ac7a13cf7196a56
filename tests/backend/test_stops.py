"""Stops of enforcement over HTTP: their effect, the messages to agents, disconnected nodes, and lifting them."""

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import pytest
import pytest_asyncio
from sqlalchemy import select
from tests.backend.conftest import Backend, Client
from tests.backend.policy_node import PolicyNode, asked, created, policy_node
from tests.support.polling import poll_async

from coresteer.audit.tables import AuditRow
from coresteer.policies import rollout_monitor
from coresteer.policies.rollout_monitor import RolloutMonitor
from coresteer.policies.rollout_schemas import StageEvidence
from coresteer.policies.tables import RolloutRow
from coresteer_core.policies.base import Mode
from coresteer_core.policies.engine_state import EnforcementStop
from coresteer_core.protocol import Policies, StoppedMessage, decode_to_agent


@pytest_asyncio.fixture
async def admin(backend: Backend) -> Client:
    return await backend.client("admin")


@pytest_asyncio.fixture
async def pool(backend: Backend, admin: Client) -> AsyncIterator[tuple[str, list[PolicyNode]]]:
    """Two nodes of one label, the second with an agent from before stops; no stop is left over."""
    label = uuid4().hex[:8]
    async with policy_node(backend, obeys_stops=True) as new, policy_node(backend) as old:
        for node in (new, old):
            await node.operator.patch(node.path, {"labels": {"pool": label}})
        yield label, [new, old]
    for stop in (await admin.get("/api/v1/stops")).json():
        await admin.post(f"/api/v1/stops/{stop['id']}/lift")


async def next_policies(node: PolicyNode, *, stopped: bool) -> Policies:
    """Return the next Policies message to the agent with stops, or without."""
    while True:
        message = decode_to_agent(await node.agent.receive())
        if isinstance(message, Policies) and bool(message.stops) is stopped:
            return message


async def enforced(label: str, node: PolicyNode, **body: object) -> dict[str, Any]:  # Any: JSON
    policy = await created(node, node.body(selector={"labels": {"pool": label}}, **body))
    await asked(node.operator, f"/api/v1/policies/{policy['id']}/enable")
    return policy


async def the_stop(admin: Client, stop_id: int) -> dict[str, Any]:  # Any: JSON
    found: dict[str, Any]
    (found,) = [stop for stop in (await admin.get("/api/v1/stops")).json() if stop["id"] == stop_id]
    return found


async def begun(admin: Client, label: str, **request: object) -> dict[str, Any]:  # Any: JSON
    made: dict[str, Any] = await asked(admin, "/api/v1/stops", {"labels": {"pool": label}} | request, 201)
    return made


async def test_a_stop_reaches_the_nodes_of_its_labels_and_counts_their_answers(
    admin: Client, pool: tuple[str, list[PolicyNode]]
) -> None:
    label, (new, _) = pool
    policy = await enforced(label, new)
    before = await asked(admin, "/api/v1/stops/preview", {"labels": {"pool": label}})
    assert before["connected"] == {"nodes": 2, "settings": 0, "uncounted": 2}
    assert before["policies"] == [{"id": policy["id"], "name": policy["name"], "nodes": 2}]
    stop = await begun(admin, label, reason="incident 4711")
    assert (stop["obeyed"], stop["within_s"], stop["unanswered"], stop["waiting"]) == (0, None, 2, 0)
    message = await next_policies(new, stopped=True)
    assert message.stops == [EnforcementStop(stop["id"])]
    assert [each.mode for each in message.policies] == [Mode.ENFORCE], "the agent refuses by itself"
    await new.agent.say(StoppedMessage([stop["id"], 2**31 - 1], stuck=1))

    async def answered() -> bool:
        return bool((await the_stop(admin, stop["id"]))["obeyed"] == 1)

    await poll_async(answered)
    now = await the_stop(admin, stop["id"])
    assert (now["unanswered"], now["stuck"], now["within_s"] > 0) == (1, 1, True)
    assert (await admin.post("/api/v1/stops", {"labels": {"pool": label}})).status_code == 409


async def test_an_agent_that_does_not_understand_stops_gets_policies_that_only_recommend(
    admin: Client, pool: tuple[str, list[PolicyNode]]
) -> None:
    label, (_, old) = pool
    await enforced(label, old)
    await begun(admin, label)
    assert [policy.mode for policy in (await next_policies(old, stopped=True)).policies] == [Mode.RECOMMEND]


async def test_an_agent_learns_of_a_stop_when_it_connects_and_of_its_end_at_once(
    admin: Client, pool: tuple[str, list[PolicyNode]]
) -> None:
    label, (node, _) = pool
    await node.agent.websocket.close()
    stop = await begun(admin, label, restore=True)
    await node.agent.connect()
    await node.agent.greet(obeys_stops=True)
    assert (await next_policies(node, stopped=True)).stops == [EnforcementStop(stop["id"], restore=True)]
    assert (await admin.post(f"/api/v1/stops/{stop['id']}/lift")).status_code == 204
    await next_policies(node, stopped=False)
    assert (await admin.post(f"/api/v1/stops/{stop['id']}/lift")).status_code == 404


async def test_a_stop_that_keeps_values_can_become_one_that_restores_them(
    backend: Backend, admin: Client, pool: tuple[str, list[PolicyNode]]
) -> None:
    label, (node, _) = pool
    first = await begun(admin, label, reason="incident")
    second = await asked(admin, f"/api/v1/stops/{first['id']}/restore", None, 201)
    assert (second["restore"], second["reason"]) == (True, "incident")
    while (message := await next_policies(node, stopped=True)).stops != [EnforcementStop(second["id"], restore=True)]:
        pass
    assert message.policies == []
    assert (await admin.post(f"/api/v1/stops/{second['id']}/restore")).status_code == 409
    await admin.post(f"/api/v1/stops/{second['id']}/lift")
    async with backend.database.session() as session:
        query = select(AuditRow).where(AuditRow.target == f"enforcement on pool={label}").order_by(AuditRow.id)
        entries = (await session.scalars(query)).all()
    assert [entry.action for entry in entries] == ["enforcement.stop", "enforcement.restore", "enforcement.lift"]
    assert [entry.detail["nodes"] for entry in entries] == [2, 2, 2]
    by = entries[0].actor
    found = (await admin.get(f"/api/v1/stops/log?text=pool={label}&node_id={node.agent.node_id}&by={by}")).json()
    assert [(each["action"], each["stop"], each["in_force"], each["nodes"], each["reason"]) for each in found] == [
        ("lift", second["id"], False, 2, "incident"),
        ("restore", second["id"], False, 2, "incident"),
        ("stop", first["id"], False, 2, "incident"),
    ]
    for other in ("by=kim", f"node_id={2**31 - 1}", "to_time=2020-01-01T00:00:00Z"):
        assert (await admin.get(f"/api/v1/stops/log?text=pool={label}&{other}")).json() == []


async def test_of_stops_on_the_same_nodes_at_the_same_time_one_begins(
    admin: Client, pool: tuple[str, list[PolicyNode]]
) -> None:
    label, _ = pool
    begin = [admin.post("/api/v1/stops", {"labels": {"pool": label}}) for _ in range(4)]
    answers = await asyncio.gather(*begin)
    assert sorted(answer.status_code for answer in answers) == [201, 409, 409, 409]


async def test_a_rollout_is_held_while_enforcement_is_stopped_on_a_node_of_it(
    backend: Backend, admin: Client, pool: tuple[str, list[PolicyNode]]
) -> None:
    label, (node, _) = pool
    policy = await enforced(label, node)
    await asked(
        node.operator, f"/api/v1/policies/{policy['id']}/versions", {"body": policy["body"] | {"rank": 50}}, 201
    )
    stop = await begun(admin, label)
    rollout = await asked(node.operator, f"/api/v1/policies/{policy['id']}/rollouts", {"version": 2, "wait_s": 0}, 201)
    assert (await the_stop(admin, stop["id"]))["effect"]["rollouts"] == [policy["name"]]
    monitor = RolloutMonitor(backend.app.state.policies)
    await monitor.check(datetime.now(UTC))
    held = (await node.operator.get(f"/api/v1/rollouts/{rollout['id']}")).json()
    assert (held["stage"], held["sentence"]) == (0, "Held in stage 1: enforcement is stopped on 2 of its nodes.")
    await admin.post(f"/api/v1/stops/{stop['id']}/lift")
    await monitor.check(datetime.now(UTC))
    assert not (await node.operator.get(f"/api/v1/rollouts/{rollout['id']}")).json()["sentence"].startswith("Held")


@pytest.mark.parametrize("stops", [True, False], ids=["a stop begins meanwhile", "no stop begins"])
async def test_what_happens_while_a_stage_is_measured_counts_for_the_next_one(
    backend: Backend,
    admin: Client,
    pool: tuple[str, list[PolicyNode]],
    monkeypatch: pytest.MonkeyPatch,
    stops: bool,
) -> None:
    label, (node, _) = pool
    policy = await enforced(label, node)
    path = f"/api/v1/policies/{policy['id']}"
    await asked(node.operator, f"{path}/versions", {"body": policy["body"] | {"rank": 50}}, 201)
    request = {"version": 2, "canary": 1, "batch": 1, "wait_s": 60}
    rollout = await asked(node.operator, f"{path}/rollouts", request, 201)
    due, clock = datetime.fromisoformat(rollout["stage_at"]) + timedelta(seconds=60), [0.0]

    async def measured(_: object, row: RolloutRow, now: datetime) -> StageEvidence:
        clock[0] += 64.0  # a slow Prometheus takes longer than the stage
        if stops:
            await begun(admin, label)
        return StageEvidence(stage=row.stage, at=now, window_s=45.0, figures=[], sentence="No figures.")

    monkeypatch.setattr(rollout_monitor, "measure_stage", measured)
    monkeypatch.setattr(rollout_monitor, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    await RolloutMonitor(backend.app.state.policies).check(due)
    found = (await node.operator.get(f"/api/v1/rollouts/{rollout['id']}")).json()
    assert (found["stage"], found["sentence"].startswith("Held")) == ((0, True) if stops else (1, False))
    assert datetime.fromisoformat(found["stage_at"]) >= due + timedelta(seconds=64)


def observing(node: PolicyNode) -> dict[str, object]:
    """Return the specification of an A/A experiment that only observes."""
    return {
        "name": "a try",
        "kind": "aa",
        "node_id": node.agent.node_id,
        "workload": {"type": "observe"},
        "primary": "rtt_p99_us",
    }


async def test_experiments_end_with_a_stop_and_none_begins_during_it(
    backend: Backend, admin: Client, pool: tuple[str, list[PolicyNode]]
) -> None:
    label, (node, _) = pool
    spec = observing(node)
    first = await asked(node.operator, "/api/v1/experiments", {"spec": spec}, 201)
    assert (await asked(admin, "/api/v1/stops/preview", {"labels": {"pool": label}}))["experiments"] == 1
    await begun(admin, label)
    ended = (await node.operator.get(f"/api/v1/experiments/{first['id']}")).json()
    assert ended["sentence"].endswith("Enforcement was stopped.")
    refused = await node.operator.post("/api/v1/experiments", {"spec": spec})
    assert refused.status_code == 409
    assert "Enforcement is stopped on" in refused.json()["detail"]


async def test_an_experiment_ends_when_its_node_comes_into_the_scope_of_a_stop(
    admin: Client, pool: tuple[str, list[PolicyNode]]
) -> None:
    label, (node, _) = pool
    spec = observing(node)
    await begun(admin, f"{label}-2")
    started = await asked(node.operator, "/api/v1/experiments", {"spec": spec}, 201)
    await node.operator.patch(node.path, {"labels": {"pool": f"{label}-2"}})
    path = f"/api/v1/experiments/{started['id']}"

    async def has_ended() -> bool:
        return (await node.operator.get(path)).json()["ended_at"] is not None

    await poll_async(has_ended)
    ended = (await node.operator.get(path)).json()
    assert (ended["state"], ended["sentence"].startswith("Enforcement was stopped.")) == ("cancelled", True)


async def test_the_preview_of_an_undo_says_that_a_policy_sets_its_value_again_unless_enforcement_is_stopped(
    admin: Client, pool: tuple[str, list[PolicyNode]]
) -> None:
    label, (node, _) = pool
    key = f"irq/{node.irqs[0]}/affinity"
    policy = await enforced(label, node, spec={"type": "fixed-settings", "settings": {key: "1"}})
    desired = {"desired": [{"key": key, "value": str(node.hot_cpu)}]}
    found = await asked(admin, f"{node.path}/policy-responses", desired)
    (response,) = found["responses"]
    assert (response["policy_id"], response["reaction"], response["keys"]) == (str(policy["id"]), "writes", [key])
    assert f"sets IRQ {node.irqs[0]} to 1 again" in response["sentence"]
    same = {"desired": [{"key": key, "value": "1"}]}
    assert (await asked(admin, f"{node.path}/policy-responses", same))["responses"] == []
    unknown = {"desired": [{"key": "irq/x", "value": "1"}]}
    assert (await admin.post(f"{node.path}/policy-responses", unknown)).status_code == 422
    await begun(admin, label)
    assert await asked(admin, f"{node.path}/policy-responses", desired) == {"stopped": True, "responses": []}
