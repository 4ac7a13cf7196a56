"""Two-person approval: above a number of nodes, actions on policies wait for another operator."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest
import pytest_asyncio
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import select, update
from tests.backend.conftest import Backend, Client
from tests.backend.policy_node import PolicyNode, asked, created, policy_node

from coresteer.approvals.expiry import ApprovalExpiry
from coresteer.audit.tables import AuditRow
from coresteer.nodes.tables import NodeRow
from coresteer.policies import approvals
from coresteer.policies.tables import ApprovalRow

Json = dict[str, Any]  # Any: JSON
THRESHOLD = "/api/v1/approvals/threshold"
NODES = 3


@dataclass
class Fleet:
    """Nodes with labels of their own, of which one is connected."""

    backend: Backend
    node: PolicyNode
    labels: dict[str, str]
    admin: Client

    @property
    def operator(self) -> Client:
        return self.node.operator

    async def policy(self, *, enabled: bool = False, mode: str = "enforce") -> Json:
        """A policy for these nodes; enabled without approval."""
        policy = await created(self.node, self.node.body(selector={"labels": self.labels}, mode=mode))
        if enabled:
            await self.above(0)
            policy = await asked(self.operator, f"/api/v1/policies/{policy['id']}/enable")
        await self.above(NODES - 1)
        return policy

    async def above(self, nodes: int) -> None:
        answer = await self.admin.request("PUT", THRESHOLD, json={"above": nodes})
        assert answer.status_code == 200, answer.text

    async def act(self, action: str, policy: Json, by: Client | None = None) -> Any:  # noqa: ANN401 - a response
        client, path = by or self.operator, f"/api/v1/policies/{policy['id']}"
        if action == "delete":
            return await client.delete(path)
        if action == "roll_out":
            return await client.post(f"{path}/rollouts", {"version": 1, "canary": 1, "batch": 7, "wait_s": 600})
        return await client.post(f"{path}/{action}")

    async def requested(self, action: str, policy: Json) -> Json:
        """A request that waits."""
        answer = await self.act(action, policy)
        assert answer.status_code == 202, answer.text
        made: Json = answer.json()
        return made

    async def state(self, policy: Json) -> Json:
        answer = await self.admin.get(f"/api/v1/policies/{policy['id']}")
        found: Json = answer.json()
        return found

    async def decide(self, request: Json, how: str, by: Client, status: int = 200) -> Json:
        answer = await by.post(f"/api/v1/approvals/{request['id']}/{how}", {} if how == "reject" else None)
        assert answer.status_code == status, answer.text
        found: Json = answer.json()
        return found

    async def add_node(self) -> None:
        async with self.backend.database.session() as session:
            session.add(NodeRow(name=f"{uuid4()}", key_hash=uuid4().bytes, simulated=False, labels=self.labels))


async def with_token(backend: Backend, owner: Client) -> Client:
    """A client with an API token of somebody."""
    made = await asked(owner, "/api/v1/tokens", {"name": uuid4().hex, "role": "operator"}, 201)
    bearer = backend.anonymous()
    bearer.session.headers["Authorization"] = f"Bearer {made['token']}"
    return bearer


@pytest_asyncio.fixture
async def fleet(backend: Backend) -> AsyncIterator[Fleet]:
    admin = await backend.client("admin")
    async with policy_node(backend) as node:
        made = Fleet(backend, node, {"role": "db", "pool": uuid4().hex}, admin)
        await node.operator.patch(node.path, {"labels": made.labels})
        for _ in range(NODES - 1):
            await made.add_node()
        yield made
        await made.above(0)


@pytest.mark.parametrize(
    ("action", "enabled", "mode", "above", "status"),
    [
        ("enable", False, "enforce", NODES - 1, 202),
        ("enable", False, "enforce", NODES, 200),
        ("enable", False, "enforce", 0, 200),
        ("enable", False, "recommend", 1, 200),
        ("roll_out", False, "enforce", NODES - 1, 202),
        ("roll_out", False, "enforce", NODES, 201),
        ("roll_out", False, "recommend", 1, 201),
        ("disable", True, "enforce", NODES - 1, 202),
        ("disable", True, "enforce", NODES, 200),
        ("disable", True, "recommend", 1, 200),
        ("disable", False, "enforce", 1, 200),  # it changes nothing
        ("delete", True, "enforce", NODES - 1, 202),
        ("delete", False, "enforce", 1, 204),  # no node enforces it
    ],
)
async def test_what_changes_enforcement_on_more_nodes_waits(
    fleet: Fleet, action: str, *, enabled: bool, mode: str, above: int, status: int
) -> None:
    policy = await fleet.policy(enabled=enabled, mode=mode)
    await fleet.above(above)
    answer = await fleet.act(action, policy)
    assert answer.status_code == status, answer.text
    if status == 202:
        sentence = f"Waits for the approval of another operator: {NODES} nodes are more than {above}."
        assert answer.json()["sentence"] == sentence
        assert (await fleet.state(policy))["enabled"] is enabled
        assert answer.json() in (await fleet.admin.get("/api/v1/approvals")).json()


async def test_a_rollout_that_ends_enforcement_waits(fleet: Fleet) -> None:
    policy = await fleet.policy(enabled=True)
    body = policy["body"] | {"mode": "recommend"}
    await asked(fleet.operator, f"/api/v1/policies/{policy['id']}/versions", {"body": body}, 201)
    answer = await fleet.operator.post(f"/api/v1/policies/{policy['id']}/rollouts", {"version": 2})
    assert answer.status_code == 202, answer.text


@pytest.mark.parametrize(
    ("requester", "who", "status"),
    [
        ("operator", "operator", 403),
        ("operator", "viewer", 403),
        ("operator", "operator of other nodes", 403),
        ("operator", "operator of these nodes", 200),
        ("operator", "admin", 200),
        ("operator", "admin's token", 200),
        ("admin", "admin", 403),
        ("admin", "admin's token", 403),
        ("admin's token", "admin", 403),
        ("admin's token", "operator", 200),
    ],
)
@pytest.mark.parametrize("how", ["approve", "reject"])
async def test_who_may_decide(fleet: Fleet, requester: str, who: str, status: int, how: str) -> None:
    people = {
        "operator": fleet.operator,
        "viewer": await fleet.backend.client("viewer"),
        "operator of other nodes": await fleet.backend.client("operator", {"role": "web"}),
        "operator of these nodes": await fleet.backend.client("operator", {"role": "db"}),
        "admin": fleet.admin,
        "admin's token": await with_token(fleet.backend, fleet.admin),
    }
    policy = await fleet.policy()
    answer = await fleet.act("enable", policy, people[requester])
    assert answer.status_code == 202, answer.text
    await fleet.decide(answer.json(), how, people[who], status)
    assert (await fleet.state(policy))["enabled"] is (how == "approve" and status == 200)


@pytest.mark.parametrize("action", ["enable", "disable", "delete", "roll_out"])
async def test_approving_carries_out_exactly_what_was_requested_once(fleet: Fleet, action: str) -> None:
    policy = await fleet.policy(enabled=action in ("disable", "delete"))
    request = await fleet.requested(action, policy)
    done = await fleet.decide(request, "approve", fleet.admin)
    assert done["state"] == "approved"
    await fleet.decide(request, "approve", await fleet.backend.client("operator", {"role": "db"}), 409)
    state = await fleet.state(policy)
    match action:
        case "delete":
            assert state["status"] == 404
        case "roll_out":
            rollout = state["rollout"]
            assert (rollout["to_version"], rollout["wait_s"], rollout["started_by"]) == (1, 600, "operator")
            assert state["pace"]["batch"] == 7
        case _:
            assert state["enabled"] is (action == "enable")
    async with fleet.backend.database.session() as session:
        query = select(AuditRow).where(AuditRow.target.contains(policy["name"])).order_by(AuditRow.id.desc()).limit(3)
        entries = (await session.scalars(query)).all()
    done_as = {"roll_out": "rollout.start"}.get(action, f"policy.{action}")
    assert {entry.action for entry in entries} == {"approval.request", "approval.approve", done_as}
    assert {(entry.actor, entry.action) for entry in entries} >= {
        ("operator", done_as),
        ("operator", "approval.request"),
    }


@pytest.mark.parametrize(
    ("meanwhile", "sentence"),
    [
        ("a version", "The policy has version 2 now, and had version 1."),
        ("a node", "It concerns 1 node more than when it was requested."),
        ("enabled", "The policy has been enabled meanwhile."),
        ("deleted", "There is no policy"),
        ("its requester was deleted", "leaver is no operator any more."),
    ],
)
async def test_what_is_not_what_was_requested_any_more_is_refused(fleet: Fleet, meanwhile: str, sentence: str) -> None:
    policy = await fleet.policy()
    path = f"/api/v1/policies/{policy['id']}"
    request = await fleet.requested("enable", policy)
    match meanwhile:
        case "a version":
            await asked(fleet.operator, f"{path}/versions", {"body": policy["body"] | {"rank": 3}}, 201)
        case "a node":
            await fleet.add_node()
        case "enabled":
            await fleet.above(0)
            await asked(fleet.operator, f"{path}/enable")
        case "deleted":
            await fleet.operator.delete(path)
        case _:
            async with fleet.backend.database.session() as session:
                theirs = update(ApprovalRow).where(ApprovalRow.id == request["id"])
                await session.execute(theirs.values(requested_by="leaver"))
    problem = await fleet.decide(request, "approve", fleet.admin, 409)
    assert problem["detail"].startswith("It was not carried out: ")
    assert sentence in problem["detail"]
    assert (await fleet.admin.get(f"/api/v1/approvals/{request['id']}")).json()["state"] == "outdated"
    if meanwhile not in ("enabled", "deleted"):
        assert (await fleet.state(policy))["enabled"] is False
        assert (await fleet.requested("enable", policy))["id"] != request["id"], "it can be requested again"


@given(
    requested=st.frozensets(st.integers(1, 6)),
    now=st.frozensets(st.integers(1, 6)),
    version=st.integers(1, 2),
    enabled=st.booleans(),
    rollout=st.sampled_from([None, 7]),
)
def test_what_is_carried_out_never_concerns_a_node_that_was_not_approved(
    requested: frozenset[int], now: frozenset[int], version: int, enabled: bool, rollout: int | None
) -> None:
    before = {"version": 1, "enabled": False, "rollout": None}
    row = ApprovalRow(basis=before, nodes=sorted(requested))
    basis = {"version": version, "enabled": enabled, "rollout": rollout}
    assert (approvals.changed(row, basis, now) is None) == (basis == before and now <= requested)


async def test_one_request_waits_at_a_time_and_repeating_it_is_not_approving_it(fleet: Fleet) -> None:
    policy = await fleet.policy()
    request = await fleet.requested("enable", policy)
    assert (await fleet.act("enable", policy)).json() == request
    assert (await fleet.act("enable", policy, fleet.admin)).json() == request
    answer = await fleet.act("roll_out", policy, fleet.admin)
    assert answer.status_code == 409
    assert "enable version 1 on all nodes at once" in answer.json()["detail"]
    await fleet.decide(request, "withdraw", fleet.admin, 409)
    assert (await fleet.decide(request, "withdraw", fleet.operator))["state"] == "withdrawn"
    assert (await fleet.act("roll_out", policy, fleet.admin)).status_code == 202


async def test_two_approvals_at_once_carry_it_out_once(fleet: Fleet) -> None:
    request = await fleet.requested("roll_out", policy := await fleet.policy())
    path, limited = (
        f"/api/v1/approvals/{request['id']}/approve",
        await fleet.backend.client("operator", {"role": "db"}),
    )
    answers = await asyncio.gather(*(client.post(path) for client in (limited, fleet.admin)))
    assert sorted(answer.status_code for answer in answers) == [200, 409]
    assert (await fleet.state(policy))["rollout"]["state"] == "canary"


async def test_a_request_expires(fleet: Fleet) -> None:
    policy = await fleet.policy()
    request = await fleet.requested("enable", policy)
    assert datetime.fromisoformat(request["expires_at"]) - datetime.now(UTC) < timedelta(hours=24)
    async with fleet.backend.database.session() as session:
        past = datetime.now(UTC) - timedelta(seconds=1)
        await session.execute(update(ApprovalRow).where(ApprovalRow.id == request["id"]).values(expires_at=past))
    assert "Nobody decided within 24 hours." in (await fleet.decide(request, "approve", fleet.admin, 409))["detail"]
    assert (await fleet.admin.get(f"/api/v1/approvals/{request['id']}")).json()["state"] == "expired"
    assert (await fleet.requested("enable", policy))["id"] != request["id"]


async def test_the_audit_log_has_one_entry_of_a_request_that_nobody_decided(fleet: Fleet) -> None:
    request = await fleet.requested("enable", await fleet.policy())
    expires_at = datetime.fromisoformat(request["expires_at"])
    expiry = ApprovalExpiry(fleet.backend.app.state.policies)
    for now in (expires_at - timedelta(seconds=1), expires_at, expires_at):
        await expiry.end(now)
        async with fleet.backend.database.session() as session:
            query = select(AuditRow).where(AuditRow.action == "approval.close")
            entries = [row for row in await session.scalars(query) if row.detail["approval"] == request["id"]]
        assert [(row.actor, row.detail["state"]) for row in entries] == [("coresteer", "expired")] * (now >= expires_at)
    assert (await fleet.admin.get(f"/api/v1/approvals/{request['id']}")).json()["state"] == "expired"


async def test_stopping_enforcement_and_rolling_back_never_wait(fleet: Fleet) -> None:
    policy = await fleet.policy()
    await fleet.decide(await fleet.requested("roll_out", policy), "approve", fleet.admin)
    stop = await asked(
        fleet.admin, "/api/v1/stops", {"labels": fleet.labels, "restore": True, "reason": "an incident"}, 201
    )
    await fleet.admin.post(f"/api/v1/stops/{stop['id']}/lift")
    rollout = (await fleet.state(policy))["rollout"]
    await fleet.above(1)
    answer = await fleet.operator.post(f"/api/v1/rollouts/{rollout['id']}/stop", {"roll_back": True})
    assert answer.status_code == 200, answer.text
