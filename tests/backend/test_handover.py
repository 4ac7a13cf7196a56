"""A confirmed change as files of other tools, over HTTP."""

from datetime import UTC, datetime
from uuid import UUID, uuid4

import msgspec
import pytest
from tests.backend.conftest import Backend
from tests.backend.policy_node import asked

from coresteer.changes import repository
from coresteer.changes.observation import Observation, ObservedFigure
from coresteer.changes.records import new_change_row
from coresteer.nodes.service import create_nodes
from coresteer_core.changes.plan import Action, Plan
from coresteer_core.changes.report import ChangeState, Outcome, Result

OBSERVED = Observation(
    120.0, 120.0, True, 1, "", [ObservedFigure("interrupts_per_s", "", 20_000.0, 5_000.0, -90.0, 110.0, True)]
)


async def stored(backend: Backend, **columns: object) -> UUID:
    """A change of two settings, of which the node got one."""
    change_id = uuid4()
    async with backend.database.session() as session:
        (node,) = await create_nodes(session, [f"web-{uuid4().hex[:8]}"], simulated=True)
    async with backend.database.session() as session:
        row = await repository.find_node(session, node.node_id)
        assert row is not None
        keys = "netdev/eth0/coalesce/rx-usecs", "netdev/eth0/ring/rx"
        plan = Plan([Action(keys[0], "18", "90", ""), Action(keys[1], "512", "1024", "")])
        change = new_change_row(
            row, change_id, plan, "rx-usecs.", created_by="kim", reason="a\nb", confirm_timeout_s=60, guardrails=[]
        )
        results = [Result(keys[0], Outcome.APPLIED, "Set."), Result(keys[1], Outcome.FAILED, "EBUSY")]
        change.state, change.ended_at = ChangeState.CONFIRMED, datetime(2026, 3, 1, 12, 2, tzinfo=UTC)
        change.results = msgspec.to_builtins(results)
        for name, value in columns.items():
            setattr(change, name, value)
        session.add(change)
    return change_id


async def test_a_confirmed_change_is_exported_with_its_evidence(backend: Backend) -> None:
    body = {"name": "fewer interrupts", "spec": {"type": "coalescing"}}
    policy = (await asked(await backend.client("operator"), "/api/v1/policies", body, 201))["id"]
    change = await stored(backend, observation=msgspec.to_builtins(OBSERVED), policy_id=policy)
    answer = await (await backend.client("viewer")).get(f"/api/v1/changes/{change}/export?format=networkmanager")
    assert answer.status_code == 200, answer.text
    name = f"coresteer-{str(change)[:8]}-eth0.nmconnection"
    assert answer.headers["content-disposition"] == f'attachment; filename="{name}"'
    comments, _, content = answer.text.partition("\n\n")
    assert content == "[ethtool]\ncoalesce-rx-usecs=90\n"
    for part in (
        f"Change {change} of web-",
        "by kim, confirmed 2026-03-01 12:02 UTC: rx-usecs.",
        f"# {backend.url}/changes?change={change}",
        "# Reason: a b\n",
        f"{backend.url}/policies/{policy}",
        "did not get this value: netdev/eth0/ring/rx",
        "1 other changes were applied",
        "20,000 → 5,000 1/s (usual difference: −90.0 to 110)",
    ):
        assert part in comments, comments


@pytest.mark.parametrize("state", [ChangeState.ROLLED_BACK, ChangeState.UNCONFIRMED])
async def test_a_change_that_is_not_confirmed_is_not_handed_over(backend: Backend, state: ChangeState) -> None:
    change = await stored(backend, state=state)
    answer = await (await backend.client("viewer")).get(f"/api/v1/changes/{change}/export?format=udev")
    assert (answer.status_code, "Only a confirmed change" in answer.json()["detail"]) == (409, True)
