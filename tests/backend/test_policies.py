"""Policies over HTTP: made, versioned, enabled, told to the nodes that they are for."""

from collections.abc import AsyncIterator
from typing import Any
from uuid import uuid4

import pytest
import pytest_asyncio
from sqlalchemy import select
from tests.backend.conftest import Backend
from tests.backend.policy_node import PolicyNode, asked, created, policy_node

from coresteer.audit.tables import AuditRow
from coresteer.policies.in_force import EnabledPolicy, PartialRollout, in_force
from coresteer.policies.schemas import PolicyBody, Selector
from coresteer.policies.selector import NodeAttributes, matches
from coresteer_core.policies.base import Damping, Mode, Scope
from coresteer_core.policies.network_process.policy import NetworkProcess
from coresteer_core.protocol import Welcome

ATTRIBUTES = NodeAttributes(7, "web-1", "web-1.example", {"rack": "r01", "role": "web"}, {"eth0": "ixgbe", "lo": None})


@pytest_asyncio.fixture
async def node(backend: Backend) -> AsyncIterator[PolicyNode]:
    async with policy_node(backend) as node:
        yield node


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        ({}, True),
        ({"labels": {"rack": "r0?"}}, True),
        ({"labels": {"rack": "r0?", "role": "db"}}, False),
        ({"labels": {"zone": "*"}}, False),
        ({"hostnames": ["db-*", "web-*"]}, True),
        ({"hostnames": ["*.example"]}, True),
        ({"hostnames": ["db-*"]}, False),
        ({"netdevs": ["eth*"]}, True),
        ({"netdevs": ["ens*"]}, False),
        ({"drivers": ["ix*"]}, True),
        ({"drivers": ["mlx5*"]}, False),
        ({"hostnames": ["web-1"], "drivers": ["mlx5*"]}, False),
    ],
)
def test_a_selector_fits_by_all_that_is_given(selector: dict[str, Any], expected: bool) -> None:
    assert matches(Selector.model_validate(selector), ATTRIBUTES) is expected


def test_policies_come_in_order_of_rank_and_a_rollout_says_who_has_which_version() -> None:
    first = {n: PolicyBody.model_validate({"name": f"a{n}", "rank": 9, "spec": {"type": "irq-spread"}}) for n in (1, 2)}
    second = {1: PolicyBody.model_validate({"name": "b", "rank": 3, "spec": {"type": "irq-spread"}})}
    policies = [
        EnabledPolicy(1, 1, PartialRollout(1, 2, frozenset({7})), first),
        EnabledPolicy(2, 1, None, second),
        EnabledPolicy(3, 1, PartialRollout(None, 1, frozenset({8})), second),
    ]
    assert [(p.policy_id, p.version) for p in in_force(policies, ATTRIBUTES)] == [("2", 1), ("1", 2)]


async def test_a_policy_that_observes_is_in_force_at_once_and_one_that_enforces_waits(node: PolicyNode) -> None:
    observing = await created(node, node.body(mode="observe"))
    enforcing = await created(node, node.body())
    assert (observing["enabled"], enforcing["enabled"]) == (True, False)
    assert (enforcing["version"], enforcing["versions"], enforcing["nodes"]) == (1, 1, 1)
    assert enforcing["created_by"] == "operator"
    assert enforcing["body"]["spec"]["act_percent"] == 65.0
    ids = [policy["id"] for policy in (await node.operator.get("/api/v1/policies")).json()]
    assert {observing["id"], enforcing["id"]} <= set(ids)


async def test_an_agent_receives_the_policies_in_force_with_all_fields(node: PolicyNode) -> None:
    body = node.body(
        spec={"type": "network-process", "idle_s": 20},
        scope={"tasks": ["nginx"]},
        damping={"moves_per_step": 5},
        rank=7,
        guardrails=[{"metric": "dropped_per_s", "max": 10}],
    )
    policy = await created(node, body)
    await asked(node.operator, f"/api/v1/policies/{policy['id']}/enable")
    (told,) = await node.told(body["name"])
    assert (told.policy_id, told.version, told.rank, told.mode) == (str(policy["id"]), 1, 7, Mode.ENFORCE)
    assert told.spec == NetworkProcess(idle_s=20.0)
    assert (told.scope, told.damping) == (Scope(tasks=["nginx"]), Damping(moves_per_step=5))
    assert [(guardrail.metric, guardrail.max) for guardrail in told.guardrails] == [("dropped_per_s", 10.0)]
    await asked(node.operator, f"/api/v1/policies/{policy['id']}/disable")
    assert await node.told() == []


async def test_every_agent_receives_its_policies_after_welcome_and_after_a_reconnect(node: PolicyNode) -> None:
    body = node.body()
    policy = await created(node, body)
    await asked(node.operator, f"/api/v1/policies/{policy['id']}/enable")
    await node.told(body["name"])
    await node.agent.websocket.close()
    await node.agent.connect()
    assert isinstance(await node.agent.greet(), Welcome)
    await node.told(body["name"])
    async with policy_node(node.backend) as other:
        assert await other.agent.policies() == []


async def test_a_label_or_a_netdev_may_bring_a_policy(node: PolicyNode) -> None:
    label = uuid4().hex[:8]
    by_label = node.body(name=f"by label {label}", rank=1, selector={"labels": {"pool": label}})
    by_netdev = node.body(name=f"by netdev {label}", rank=2, selector={"netdevs": [f"x{label}"]})
    for body in (by_label, by_netdev):
        policy = await created(node, body)
        assert policy["nodes"] == 0
        await asked(node.operator, f"/api/v1/policies/{policy['id']}/enable")
    assert (await node.operator.patch(node.path, {"labels": {"pool": label}})).status_code == 200
    await node.told(by_label["name"])
    inventory = node.machine.inventory
    inventory.netdevs.append(type(inventory.netdevs[0])(f"x{label}", "veth", None, None, None, True, True, False, []))
    await node.describe()
    await node.told(by_label["name"], by_netdev["name"])


async def test_unchanged_policies_are_not_sent_again(node: PolicyNode) -> None:
    assert await node.agent.policies() == []
    async with policy_node(node.backend) as other:
        mine, others = node.body(), other.body()
        for body in (others, mine):
            policy = await created(node, body)
            await asked(node.operator, f"/api/v1/policies/{policy['id']}/enable")
        assert [policy.name for policy in await node.agent.policies()] == [mine["name"]]


async def test_the_next_version_of_a_policy_that_is_enabled_waits_for_its_rollout(node: PolicyNode) -> None:
    body = node.body()
    policy = await created(node, body)
    path = f"/api/v1/policies/{policy['id']}"
    await asked(node.operator, f"{path}/versions", {"body": body | {"rank": 5}, "note": "earlier"}, 201)
    assert (await node.operator.get(path)).json()["version"] == 2
    await asked(node.operator, f"{path}/enable")
    made = await asked(node.operator, f"{path}/versions", {"body": body | {"rank": 6}}, 201)
    assert made["version"] == 3
    now = (await node.operator.get(path)).json()
    assert (now["version"], now["versions"], now["body"]["rank"]) == (2, 3, 5)
    versions = (await node.operator.get(f"{path}/versions")).json()
    assert [(v["version"], v["note"], v["created_by"]) for v in versions] == [
        (3, "", "operator"),
        (2, "earlier", "operator"),
        (1, "", "operator"),
    ]


async def test_a_version_of_another_kind_is_refused(node: PolicyNode) -> None:
    body = node.body()
    policy = await created(node, body)
    other = body | {"spec": {"type": "network-process"}}
    refused = await asked(node.operator, f"/api/v1/policies/{policy['id']}/versions", {"body": other}, 422)
    assert "of the kind irq-spread" in refused["detail"]


async def test_a_diff_names_each_field_that_differs(node: PolicyNode) -> None:
    body = node.body(selector={"labels": {"rack": "r01"}})
    policy = await created(node, body)
    path = f"/api/v1/policies/{policy['id']}"
    after = body | {
        "spec": {"type": "irq-spread", "act_percent": 80},
        "selector": {"labels": {"role": "web"}, "netdevs": ["eth0"]},
        "mode": "recommend",
    }
    await asked(node.operator, f"{path}/versions", {"body": after}, 201)
    found = (await node.operator.get(f"{path}/diff?from_version=1&to_version=2")).json()
    assert {(line["path"], line["was"], line["becomes"]) for line in found} == {
        ("mode", "enforce", "recommend"),
        ("spec.act_percent", "65.0", "80.0"),
        ("selector.labels.rack", "r01", None),
        ("selector.labels.role", None, "web"),
        ("selector.netdevs", "[]", '["eth0"]'),
    }
    assert (await node.operator.get(f"{path}/diff?from_version=1&to_version=9")).status_code == 404


async def test_two_policies_have_different_names_and_a_deleted_one_gives_its_name_back(node: PolicyNode) -> None:
    body = node.body()
    policy = await created(node, body)
    refused = await node.operator.post("/api/v1/policies", body)
    assert refused.status_code == 409
    assert body["name"] in refused.json()["detail"]
    await asked(node.operator, f"/api/v1/policies/{policy['id']}/enable")
    await node.told(body["name"])
    assert (await node.operator.delete(f"/api/v1/policies/{policy['id']}")).status_code == 204
    assert await node.told() == []
    assert (await node.operator.get(f"/api/v1/policies/{policy['id']}")).status_code == 404
    await created(node, body)


async def test_every_action_on_a_policy_is_recorded(node: PolicyNode) -> None:
    body = node.body()
    policy = await created(node, body)
    path = f"/api/v1/policies/{policy['id']}"
    await asked(node.operator, f"{path}/versions", {"body": body | {"rank": 5}}, 201)
    await asked(node.operator, f"{path}/enable")
    await asked(node.operator, f"{path}/disable")
    await node.operator.delete(path)
    async with node.backend.database.session() as session:
        query = select(AuditRow).where(AuditRow.target == f"policy {body['name']}").order_by(AuditRow.id)
        entries = (await session.scalars(query)).all()
    assert [(entry.actor, entry.action) for entry in entries] == [
        ("operator", f"policy.{verb}") for verb in ("create", "create_version", "enable", "disable", "delete")
    ]
    assert entries[1].detail["changed"] == ["rank"]


async def test_agents_learn_which_policies_leave_pages_where_they_are(node: PolicyNode) -> None:
    numa = {"type": "numa", "move_pages": True}
    policies = [await created(node, node.body(spec=numa)) for _ in range(4)]
    ids = [str(policy["id"]) for policy in policies]
    paths = [f"/api/v1/policies/{policy_id}" for policy_id in ids]
    for path in paths:
        await asked(node.operator, f"{path}/enable")
    await asked(node.operator, f"{paths[0]}/disable?leave_pages=true")
    await asked(node.operator, f"{paths[1]}/disable")
    await node.operator.delete(f"{paths[2]}?leave_pages=true")
    await asked(node.operator, f"{paths[3]}/versions", {"body": policies[3]["body"] | {"mode": "observe"}}, 201)
    await asked(node.operator, f"{paths[3]}/rollouts", {"version": 2, "leave_pages": True}, 201)
    leaving = [ids[0], ids[2], ids[3]]
    await node.leaving(lambda found: found & {*ids} == {*leaving})
    async with node.backend.database.session() as session:
        of_policies = select(AuditRow).where(AuditRow.detail["leave_pages"].as_boolean()).order_by(AuditRow.id)
        entries = (await session.scalars(of_policies)).all()
    actions = [entry.action for entry in entries if entry.target in {f"policy {policy['name']}" for policy in policies}]
    assert actions == ["policy.disable", "policy.delete", "rollout.start"]
    await asked(node.operator, f"{paths[0]}/enable")
    await node.leaving(lambda found: ids[0] not in found)


@pytest.mark.parametrize(
    ("changes", "field", "says"),
    [
        ({"name": ""}, "name", ""),
        ({"name": "a\nb"}, "name", "control characters"),
        ({"rank": 1000}, "rank", ""),
        ({"mode": "force"}, "mode", ""),
        ({"spec": {"type": "coffee"}}, "spec.type", "coffee"),
        ({"spec": {"type": "irq-spread", "act": 1}}, "spec.act", "act is not a field here"),
        (
            {"spec": {"type": "service-class", "classes": [{"name": "a", "target_percent": 9, "match": {"unit": []}}]}},
            "spec.classes[0].match.unit",
            "unit is not a field here; the fields are ",
        ),
        ({"spec": {"type": "irq-spread", "act_percent": "high"}}, "spec.act_percent", "Expected float, got str."),
        ({"spec": {"type": "irq-spread", "act_percent": -1}}, "spec.act_percent", "Expected float >= 1"),
        ({"spec": {"type": "irq-spread", "exclude": "all"}}, "spec.exclude", "regex"),
        ({"spec": {"type": "network-process", "max_distance": "l9"}}, "spec.max_distance", "l9"),
        ({"damping": {"moves_per_step": 0}}, "damping.moves_per_step", "Expected int >= 1"),
        ({"damping": {"moves_per_step": "many"}}, "damping.moves_per_step", "Expected int, got str"),
        ({"scope": {"tasks": ["a\x00"]}}, "scope", "cannot be stored"),
        ({"scope": {"tasks": ["a"] * 65}}, "scope", "65 items"),
        ({"selector": {"labels": {"a": ""}}}, "selector.labels.a", ""),
        ({"selector": {"colour": ["a"]}}, "selector.colour", ""),
        ({"guardrails": [{"metric": "mood", "max": 1}]}, "guardrails[0].metric", ""),
        ({"force": True}, "force", ""),
    ],
)
async def test_a_bad_body_is_refused_with_its_field(
    backend: Backend, changes: dict[str, object], field: str, says: str
) -> None:
    body = {"name": "spread", "spec": {"type": "irq-spread"}} | changes
    answer = await (await backend.client("operator")).post("/api/v1/policies", body)
    assert answer.status_code == 422, answer.text
    errors = {error["field"]: error["message"] for error in answer.json()["errors"]}
    assert says in errors[field]
