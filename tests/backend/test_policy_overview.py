"""A policy's overview: settings that its end would restore, moves, deferred moves, drifts and undone changes."""

from collections.abc import AsyncIterator
from typing import Any
from uuid import uuid4

import pytest_asyncio
from msgspec.structs import replace
from sqlalchemy import select
from tests.backend.conftest import Backend
from tests.backend.policy_node import PolicyNode, asked, created, policy_node
from tests.support.polling import poll_async

from coresteer.nodes.tables import NodeRow
from coresteer_core.changes.plan import Action
from coresteer_core.changes.report import ChangeMessage, ChangeState, EndedBy, Outcome, Result
from coresteer_core.policies.base import Deferred, Drift, Ownership, Proposal
from coresteer_core.policies.ownership import RESTORE_REASON
from coresteer_core.protocol import InventoryMessage


@pytest_asyncio.fixture
async def node(backend: Backend) -> AsyncIterator[PolicyNode]:
    async with policy_node(backend) as node:
        yield node


async def written(
    node: PolicyNode,
    policy: dict[str, Any],  # Any: JSON
    *actions: Any,  # noqa: ANN401
    state: ChangeState = ChangeState.CONFIRMED,
    ended_by: EndedBy | None = None,
    outcome: Outcome = Outcome.APPLIED,
) -> None:
    """The policy writes, and the agent reports how its change ended."""
    change_id = str(uuid4())
    results = [Result(action.key, outcome, "Written.") for action in actions]
    for each in (ChangeState.UNCONFIRMED, state):
        await node.agent.say(ChangeMessage(change_id, each, "Done.", results, ended_by if each is state else None))
    await node.evaluate(policy, *actions, change_id=change_id)


async def overview(node: PolicyNode, policy: dict[str, Any]) -> dict[str, Any]:  # Any: JSON
    found: dict[str, Any] = (await node.operator.get(f"/api/v1/policies/{policy['id']}/overview")).json()
    return found


async def test_settings_count_from_their_write_until_they_are_restored(node: PolicyNode) -> None:
    policy = await created(node, node.body())
    path = f"/api/v1/policies/{policy['id']}"
    assert (await overview(node, policy))["nodes"] == []
    await asked(node.operator, f"{path}/enable")
    await node.told(policy["name"])
    first, second = node.action(0), node.action(1)
    await written(node, policy, first, second)
    await written(node, policy, node.action(2), state=ChangeState.ROLLED_BACK, ended_by=EndedBy.GUARDRAIL)
    await written(node, policy, node.action(3), outcome=Outcome.REFUSED)
    found = await overview(node, policy)
    (row,) = found["nodes"]
    assert (row["node_name"], row["connected"], row["version"], row["enforced"]) == (node.name, True, 1, True)
    assert (row["settings"], row["foreign"]) == (2, 0)
    assert (found["guardrail_undos"], found["guardrails"][0]["node_name"]) == (1, node.name)

    await asked(node.operator, f"{path}/disable")
    await node.told()
    (row,) = (await overview(node, policy))["nodes"]
    assert (row["version"], row["settings"]) == (None, 2), "it still has the settings until the agent restores them"
    back = [replace(one, was=one.becomes, becomes=one.was, reason=RESTORE_REASON) for one in (first, second)]
    await written(node, policy, *back)
    assert (await overview(node, policy))["nodes"] == []


async def test_of_confirmed_writes_only_those_count_that_the_agent_says_the_policy_holds(node: PolicyNode) -> None:
    policy = await created(node, node.body())
    await asked(node.operator, f"/api/v1/policies/{policy['id']}/enable")
    await node.told(policy["name"])
    first, second, third = (node.action(place) for place in range(3))
    await written(node, policy, first, second)

    async def settings(held: dict[str, str] | None) -> list[int]:
        reported = replace(node.machine.inventory, held=held)
        await node.tell(InventoryMessage(reported))

        async def is_stored() -> bool:
            async with node.backend.database.session() as session:
                query = select(NodeRow.inventory["held"]).where(NodeRow.id == node.agent.node_id)
                return await session.scalar(query) == held

        await poll_async(is_stored)
        return [row["settings"] for row in (await overview(node, policy))["nodes"]]

    own = str(policy["id"])
    assert await settings({first.key: own, second.key: own}) == [2]
    assert await settings({first.key: own, second.key: str(policy["id"] + 1)}) == [1], "another policy took it over"
    assert await settings(None) == [2], "an older agent does not say"
    await asked(node.operator, f"/api/v1/policies/{policy['id']}/disable")
    await node.told()
    assert await settings({first.key: own}) == [1]
    assert await settings({}) == [], "process and boot have ended, and with them what was to be restored"
    await written(node, policy, third, state=ChangeState.UNCONFIRMED)
    assert [row["settings"] for row in (await overview(node, policy))["nodes"]] == [1], (
        "written since the agent said so"
    )


async def test_what_a_policy_holds_on_a_node_is_handed_over_with_its_proof(node: PolicyNode) -> None:
    policy = await created(node, node.body())
    path = f"/api/v1/policies/{policy['id']}"
    await asked(node.operator, f"{path}/enable")
    await node.told(policy["name"])
    nodes = (await node.operator.get("/api/v1/nodes")).json()
    node_id = next(one["id"] for one in nodes if one["name"] == node.name)
    export = f"{path}/export?node_id={node_id}&format=sysctl"
    assert (await node.operator.get(export)).status_code == 409
    await written(node, policy, Action("kernel/busy_poll", "0", "50", ""), node.action(0))
    await written(node, policy, Action("kernel/busy_poll", "50", "60", ""))
    answer = await node.operator.get(export)
    assert answer.status_code == 200, answer.text
    comments, _, content = answer.text.partition("\n\n")
    assert content == "net.core.busy_poll = 60\n"
    assert f"# What policy {policy['name']}, version 1, holds on {node.name} now\n" in comments
    assert "# Its effect: " in comments
    assert f"#   {node.action(0).key} = " in comments
    assert (await node.operator.get(f"{path}/export?node_id={2**31 - 1}&format=sysctl")).status_code == 404


async def test_what_others_have_changed_since_is_not_among_the_settings_to_restore(node: PolicyNode) -> None:
    policy = await created(node, node.body())
    await asked(node.operator, f"/api/v1/policies/{policy['id']}/enable")
    await node.told(policy["name"])
    drift = Drift(node.action(0).key, "1", "3", "irqbalance", Ownership.REASSERT)
    waiting = Deferred(Proposal(node.action(2).key, "4", "IRQ", "It is busy."), "dwell", "It was moved 3 s ago.")
    await written(node, policy, node.action(0), node.action(1))
    await node.evaluate(policy, drifts=[drift], deferred=[waiting])
    found = await overview(node, policy)
    (row,) = found["nodes"]
    assert (row["settings"], row["foreign"], row["deferred"], row["moves"], row["drifts"]) == (1, 1, 1, 2, 1)
    assert found["moves"] == 2
    assert found["deferred"] == [{"code": "dwell", "moves": 1, "nodes": 1}]
    assert found["drifts"] == [{"cause": "irqbalance", "drifts": 1, "restored": 1}]


async def test_what_a_policy_recommends_now_is_counted_and_listed(node: PolicyNode) -> None:
    policy = await created(node, node.body() | {"mode": "recommend"})
    await asked(node.operator, f"/api/v1/policies/{policy['id']}/enable")
    await node.told(policy["name"])
    first, second = node.action(0), node.action(1)
    await node.evaluate(policy, first, second)
    found = await overview(node, policy)
    (row,) = found["nodes"]
    assert (row["recommended"], row["moves"], found["recommended"]) == (2, 0, 2)
    assert found["recommendations"][0] == {
        "node_id": row["node_id"],
        "node_name": node.name,
        "key": first.key,
        "was": first.was,
        "becomes": first.becomes,
        "reason": first.reason,
    }
    assert found["nothing_recommended"] == []
    lines = (await node.operator.get(f"/api/v1/policies/{policy['id']}/overview.csv")).text.splitlines()
    assert [line.split(",")[-4:-1] for line in lines[1:]] == [
        [one.key, one.was, one.becomes] for one in (first, second)
    ]
    idle = await node.evaluate(policy)
    found = await overview(node, policy)
    assert found["recommended"] == 0, "the latest decision proposes nothing any more"
    assert found["nothing_recommended"] == [
        {"node_id": row["node_id"], "node_name": node.name, "sentence": idle.sentence}
    ]
    (_, line) = (await node.operator.get(f"/api/v1/policies/{policy['id']}/overview.csv")).text.splitlines()
    assert line.startswith(f"{node.name},1,recommend,")
