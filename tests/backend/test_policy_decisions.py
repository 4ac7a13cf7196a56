"""What agents tell of their policies: decisions, the changes they lead to, drifts and flows."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from uuid import uuid4

import pytest_asyncio
from msgspec.structs import replace
from sqlalchemy import select
from tests.backend.conftest import Backend
from tests.backend.fake_agent import now_ms
from tests.backend.policy_node import PolicyNode, asked, created, policy_node

from coresteer.audit.tables import AuditRow
from coresteer.changes.events import ChangeEvent
from coresteer.config import Config
from coresteer.fleet.service import delete_node
from coresteer.policies.snapshot_store import SnapshotStore
from coresteer_core.changes.report import ChangeMessage, ChangeState, EndedBy, Outcome, Result
from coresteer_core.policies.base import PERSISTED_POLICY_ID, Drift, Mode, Ownership
from coresteer_core.protocol import ChangeAck, CloseCode, DecisionMessage, decode_to_agent

DAY_MS = 86_400_000


@pytest_asyncio.fixture
async def node(backend: Backend) -> AsyncIterator[PolicyNode]:
    async with policy_node(backend) as node:
        yield node


def report(change_id: str, state: ChangeState, sentence: str, ended_by: EndedBy | None = None) -> ChangeMessage:
    result = Result("irq/1/affinity", Outcome.APPLIED, "Done.", "0", "1")
    return ChangeMessage(change_id, state, sentence, [result], ended_by, remaining_s=10.0)


async def seen(node: PolicyNode, change_id: str) -> ChangeState:
    """What the backend has stored of the change's end."""
    while True:
        message = decode_to_agent(await node.agent.receive())
        if isinstance(message, ChangeAck) and message.change_id == change_id:
            return message.state


async def test_a_decision_is_stored_once_with_its_reasons(node: PolicyNode) -> None:
    policy = await created(node, node.body(mode="observe"))
    evaluation = await node.evaluate(policy, node.action(), mode=Mode.OBSERVE)
    await node.agent.websocket.close()
    await node.agent.connect()
    await node.agent.greet()
    await node.agent.say(DecisionMessage(now_ms(), evaluation))
    await node.evaluate(policy, mode=Mode.OBSERVE, sentence="Nothing to do.")
    await node.evaluate(policy, mode=Mode.OBSERVE, sentence="CPU 3 is at 70 %.")
    first, second, third = await node.get("decisions")
    assert [d["evaluation"]["sentence"] for d in (first, second, third)] == [
        "CPU 3 is at 70 %.",
        "Nothing to do.",
        evaluation.sentence,
    ]
    assert (third["policy_name"], third["version"], third["mode"]) == (policy["name"], 1, "observe")
    assert third["evaluation"]["actions"][0]["key"] == node.action().key
    assert (third["change_id"], third["outcome"]) == (None, None)
    assert len(await node.get("decisions?limit=1")) == 1
    assert await node.get("decisions?to_time=2020-01-01T00:00:00Z") == []


async def test_a_decision_may_be_days_old_but_not_of_days_to_come(node: PolicyNode) -> None:
    """An agent repeats the last decision of a quiet policy whenever it connects."""
    policy = await created(node, node.body(mode="observe"))
    evaluation = await node.evaluate(policy, mode=Mode.OBSERVE)
    earlier = replace(evaluation, sentence="CPU 3 was at 97 %.")
    await node.tell(DecisionMessage(now_ms() - 3 * DAY_MS, earlier))
    assert earlier.sentence in [each["evaluation"]["sentence"] for each in await node.get("decisions")]
    await node.agent.say(DecisionMessage(now_ms() + 3 * DAY_MS, evaluation))
    code, reason = await node.agent.closed()
    assert (code, "set the node's clock" in reason) == (CloseCode.BAD_FRAME, True), reason


async def test_a_policys_change_is_an_ordinary_change_by_that_policy(node: PolicyNode) -> None:
    policy = await created(node, node.body(guardrails=[{"metric": "dropped_per_s", "max": 10}]))
    change_id = str(uuid4())
    evaluation = await node.evaluate(policy, node.action(to=2), change_id=change_id)
    await node.agent.say(report(change_id, ChangeState.UNCONFIRMED, "Applied."))
    await node.agent.say(report(change_id, ChangeState.CONFIRMED, "Kept."))
    assert await seen(node, change_id) is ChangeState.CONFIRMED
    change = (await node.operator.get(f"/api/v1/changes/{change_id}")).json()
    assert (change["state"], change["created_by"]) == ("confirmed", f"policy {policy['name']} v1")
    assert change["reason"] == evaluation.sentence
    assert change["guardrails"] == [{"metric": "dropped_per_s", "max": 10.0}]
    assert change["plan"]["actions"][0]["becomes"] == "2"
    assert f"from CPU {node.hot_cpu} to CPU 2" in change["sentence"]
    assert [step["state"] for step in change["steps"]] == ["applying", "unconfirmed", "confirmed"]
    (decision,) = await node.get("decisions")
    assert (decision["change_id"], decision["outcome"]) == (change_id, "confirmed")
    async with node.backend.database.session() as session:
        query = select(AuditRow).where(AuditRow.node_id == node.agent.node_id).order_by(AuditRow.id)
        entries = [(entry.actor, entry.action) for entry in await session.scalars(query)]
    assert (f"policy {policy['name']} v1", "change.apply") in entries
    assert ("agent", "change.confirmed") in entries


async def test_word_of_a_change_that_comes_before_its_decision_is_not_lost(node: PolicyNode) -> None:
    policy = await created(node, node.body())
    change_id = str(uuid4())
    await node.agent.say(report(change_id, ChangeState.UNCONFIRMED, "Applied."))
    await node.agent.say(report(change_id, ChangeState.ROLLED_BACK, "Too many drops.", EndedBy.GUARDRAIL))
    assert await seen(node, change_id) is ChangeState.ROLLED_BACK
    assert (await node.operator.get(f"/api/v1/changes/{change_id}")).status_code == 404
    await node.evaluate(policy, node.action(), change_id=change_id)
    change = (await node.operator.get(f"/api/v1/changes/{change_id}")).json()
    assert (change["state"], change["ended_by"]) == ("rolled_back", "guardrail")
    assert [step["sentence"] for step in change["steps"]][1:] == ["Applied.", "Too many drops."]
    assert (await node.get("decisions"))[0]["outcome"] == "rolled_back"


async def test_decisions_that_are_sent_again_are_stored_once_and_one_that_was_lost_brings_its_change(
    node: PolicyNode,
) -> None:
    """Of three, the second was lost with a connection; the report of its change came without it."""
    policy = await created(node, node.body())
    first, second, third = changes = [str(uuid4()) for _ in range(3)]
    evaluation = await node.evaluate(policy, node.action(), change_id=first)
    await node.evaluate(policy, node.action(), change_id=third)
    await node.agent.say(report(second, ChangeState.ROLLED_BACK, "Too many drops.", EndedBy.GUARDRAIL))
    assert await seen(node, second) is ChangeState.ROLLED_BACK
    await node.agent.websocket.close()
    await node.agent.connect()
    await node.agent.greet()
    await node.tell(*(DecisionMessage(now_ms(), evaluation, change_id) for change_id in changes))
    assert sorted(each["change_id"] for each in await node.get("decisions")) == sorted(changes)
    change = (await node.operator.get(f"/api/v1/changes/{second}")).json()
    assert (change["state"], change["ended_by"]) == ("rolled_back", "guardrail")


async def test_a_change_of_another_node_is_ignored(node: PolicyNode) -> None:
    policy = await created(node, node.body())
    change_id = str(uuid4())
    await node.evaluate(policy, node.action(), change_id=change_id)
    async with policy_node(node.backend) as other:
        await other.evaluate(policy, other.action(to=5), change_id=change_id)
        (decision,) = await other.get("decisions")
    assert decision["change_id"] is None
    change = (await node.operator.get(f"/api/v1/changes/{change_id}")).json()
    assert (change["node_id"], change["plan"]["actions"][0]["becomes"]) == (node.agent.node_id, "1")


async def test_a_decision_of_a_policy_that_is_deleted_still_has_its_name(node: PolicyNode) -> None:
    policy = await created(node, node.body())
    await node.operator.delete(f"/api/v1/policies/{policy['id']}")
    change_id = str(uuid4())
    await node.evaluate(policy, node.action(), change_id=change_id, mode=Mode.OBSERVE)
    assert (await node.get("decisions"))[0]["policy_name"] == policy["name"]
    change = (await node.operator.get(f"/api/v1/changes/{change_id}")).json()
    assert change["created_by"] == f"policy {policy['name']} v1"


async def test_a_change_by_a_policy_of_another_database_is_stored_without_it(node: PolicyNode) -> None:
    change_id = str(uuid4())
    await node.evaluate({"id": 999_999_999}, node.action(), change_id=change_id)
    (decision,) = await node.get("decisions")
    assert (decision["policy_name"], decision["change_id"]) == ("999999999", change_id)
    change = (await node.operator.get(f"/api/v1/changes/{change_id}")).json()
    assert (change["policy_id"], change["created_by"]) == (None, "policy 999999999 v1")


async def test_a_change_by_which_an_agent_applies_persisted_settings_names_these_instead_of_a_policy(
    node: PolicyNode,
) -> None:
    change_id = str(uuid4())
    await node.evaluate({"id": PERSISTED_POLICY_ID}, node.action(), change_id=change_id)
    (decision,) = await node.get("decisions")
    assert (decision["policy_name"], decision["change_id"]) == ("persisted settings", change_id)
    change = (await node.operator.get(f"/api/v1/changes/{change_id}")).json()
    assert (change["policy_id"], change["created_by"]) == (None, "persisted settings")


async def test_decisions_without_a_change_go_with_the_samples_but_for_the_last_of_each_policy(node: PolicyNode) -> None:
    policy = await created(node, node.body())
    await node.evaluate(policy, node.action(), change_id=str(uuid4()), sentence="It moves.")
    for sentence in ("It stays.", "It still stays.", "It stays for good."):
        await node.evaluate(policy, sentence=sentence)
    config, quotas = Config.model_validate({"retention_days": 1}), node.backend.app.state.quotas
    store = SnapshotStore(node.backend.database, config, lambda _: None, quotas)
    await store.delete_expired(datetime.now(UTC) + timedelta(days=2))
    left = [decision["evaluation"]["sentence"] for decision in await node.get("decisions")]
    assert left == ["It stays for good.", "It moves."]


async def test_a_drift_is_stored_once_with_its_cause(node: PolicyNode) -> None:
    policy = await created(node, node.body())
    drift = Drift(node.action().key, "1", "3", "irqbalance", Ownership.WARN)
    later = Drift(node.action().key, "1", "5", None, Ownership.WARN)
    await node.evaluate(policy, drifts=[drift])
    await node.evaluate(policy, sentence="Still so.", drifts=[drift])
    await node.evaluate(policy, sentence="And again.", drifts=[drift, later])
    found = await node.get("drifts")
    assert [(d["found"], d["cause"], d["response"], d["policy_id"]) for d in found] == [
        ("5", None, "warn", policy["id"]),
        ("3", "irqbalance", "warn", policy["id"]),
    ]


async def test_recommendations_are_the_last_word_of_policies_in_force_that_recommend(node: PolicyNode) -> None:
    body = node.body(mode="recommend")
    policy = await created(node, body)
    path = f"/api/v1/policies/{policy['id']}"
    await asked(node.operator, f"{path}/enable")
    await node.evaluate(policy, mode=Mode.RECOMMEND, sentence="Nothing yet.")
    assert await node.get("recommendations") == []
    await node.evaluate(policy, node.action(), mode=Mode.RECOMMEND)
    (found,) = await node.get("recommendations")
    assert found["evaluation"]["actions"][0]["becomes"] == "1"
    await asked(node.operator, f"{path}/disable")
    assert await node.get("recommendations") == []


async def test_the_latest_decision_of_a_quiet_policy_in_force_is_found_behind_those_of_busy_ones(
    node: PolicyNode,
) -> None:
    quiet, busy, disabled = [await created(node, node.body()) for _ in range(3)]
    for policy in (quiet, busy):
        await asked(node.operator, f"/api/v1/policies/{policy['id']}/enable")
    change_id = str(uuid4())
    await node.evaluate(quiet, sentence="It was quiet before, too.")
    await node.evaluate(quiet, node.action(), change_id=change_id, sentence="It moves once.")
    await node.evaluate(disabled)
    await node.evaluate({"id": PERSISTED_POLICY_ID}, sentence="Set again.")
    for percent in range(3):
        await node.evaluate(busy, sentence=f"CPU 3 is at {percent} %.")
    found = {
        each["policy_id"]: (each["evaluation"]["sentence"], each["outcome"])
        for each in await node.get("decisions/latest")
    }
    assert found == {
        quiet["id"]: ("It moves once.", "applying"),
        busy["id"]: ("CPU 3 is at 2 %.", None),
        int(PERSISTED_POLICY_ID): ("Set again.", None),
    }


async def test_flows_are_returned_as_last_reported(node: PolicyNode) -> None:
    assert await node.get("flows") == {"at": None, "exact": False, "tasks": []}
    await node.tell(node.flows())
    found = await node.get("flows")
    assert [(task["name"], task["rx_placements"][0]["cpu"]) for task in found["tasks"]] == [("nginx", node.hot_cpu)]
    assert found["at"] is not None


async def test_a_deleted_node_is_disconnected_and_its_last_reports_are_ignored(node: PolicyNode) -> None:
    policy = await created(node, node.body())
    async with node.backend.database.session() as session:
        await delete_node(session, node.agent.node_id, actor="a test")
    assert (await node.agent.closed())[0] == CloseCode.BAD_KEY
    late = report(str(uuid4()), ChangeState.CONFIRMED, "Kept.")  # it arrived just before the end of the connection
    await node.backend.app.state.agents.record_change_report(node.agent.node_id, late)
    async with policy_node(node.backend) as other:  # still answers
        await other.evaluate(policy)


async def test_the_snapshot_that_the_oldest_samples_need_is_not_deleted(node: PolicyNode) -> None:
    now = datetime.now(UTC)
    config, quotas = Config.model_validate({"retention_days": 1}), node.backend.app.state.quotas
    store = SnapshotStore(node.backend.database, config, lambda _: None, quotas)
    policy = await created(node, node.body())
    await node.evaluate(policy)
    await node.backend.app.state.agents.snapshots.flush()
    async with node.backend.database.pool.connection() as connection:
        await connection.execute("DELETE FROM node_snapshot WHERE node_id = %s", (node.agent.node_id,))
        for days in (5, 4, 3, 0.5):
            await connection.execute(
                "INSERT INTO node_snapshot VALUES (%s, 'inventory', %s, '', '')",
                (node.agent.node_id, now - timedelta(days=days)),
            )

    async def left() -> list[float]:
        async with node.backend.database.pool.connection() as connection:
            cursor = await connection.execute(
                "SELECT at FROM node_snapshot WHERE node_id = %s ORDER BY at", (node.agent.node_id,)
            )
            return [(now - at) / timedelta(days=1) for (at,) in await cursor.fetchall()]

    await store.delete_expired(now)
    assert await left() == [3, 0.5]
    assert len(await node.get("decisions")) == 1
    await store.delete_expired(now + timedelta(days=500))
    assert await left() == [0.5]
    assert await node.get("decisions") == []


async def test_flows_are_stored_once_a_round_and_inventories_when_they_change(node: PolicyNode) -> None:
    store = node.backend.app.state.agents.snapshots
    start_ms = now_ms() - 60_000
    for after_ms in (0, 1000, 2000, 5000, 5100):
        await node.tell(node.flows(start_ms + after_ms))
    await node.describe()
    await store.flush()
    async with node.backend.database.pool.connection() as connection:
        cursor = await connection.execute(
            "SELECT (extract(epoch from t0) * 1000)::bigint - %s FROM telemetry_flows WHERE node_id = %s ORDER BY t0",
            (start_ms, node.agent.node_id),
        )
        assert [after_ms for (after_ms,) in await cursor.fetchall()] == [0, 5000]
        cursor = await connection.execute(
            "SELECT kind FROM node_snapshot WHERE node_id = %s ORDER BY kind", (node.agent.node_id,)
        )
        assert [kind for (kind,) in await cursor.fetchall()] == ["inventory", "topology"]


async def test_a_change_by_a_policy_is_sent_live(node: PolicyNode) -> None:
    policy = await created(node, node.body())
    with node.backend.app.state.bus.subscribe() as events:
        await node.evaluate(policy, node.action(), change_id=str(uuid4()))
        async for event in events:
            if isinstance(event, ChangeEvent):
                assert event.change.created_by == f"policy {policy['name']} v1"
                return
