"""Policies that are tried on a node as it is now, and on what is stored of it."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta

import pytest
import pytest_asyncio
from msgspec.structs import replace
from tests.backend.conftest import Backend, running_backend
from tests.backend.fake_agent import enrolled, now_ms
from tests.backend.policy_node import PolicyNode, asked, created, policy_node
from tests.support.polling import poll_async

from coresteer_core.node.cpusets import ROOT_CGROUP, Cpuset
from coresteer_core.node.summary import summarize


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def quick(database_url: str) -> AsyncIterator[Backend]:
    async with running_backend(database_url, chunk_seconds=1) as backend:
        yield backend


@pytest_asyncio.fixture
async def node(quick: Backend) -> AsyncIterator[PolicyNode]:
    async with policy_node(quick) as node:
        yield node


def at(time_ms: int) -> str:
    return (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=time_ms)).isoformat()


async def test_a_preview_says_what_a_policy_would_do_now_whatever_its_mode(node: PolicyNode) -> None:
    start = now_ms() - 6000
    await node.show([node.hot(second + 1, start + 1000 * second) for second in range(6)])
    body = node.body(mode="observe")
    viewer = await node.backend.client("viewer")
    (found,) = await asked(viewer, "/api/v1/policies/preview", {"body": body, "node_ids": [node.agent.node_id]})
    assert (found["node_name"], found["error"]) == (node.name, None)
    assert 0 <= found["view_age_s"] < 60
    actions = found["evaluation"]["actions"]
    assert actions
    assert {int(action["was"]) for action in actions} == {node.hot_cpu}
    assert found["evaluation"]["mode"] == "enforce"


async def test_the_age_of_a_preview_is_that_of_the_samples_and_not_of_a_newer_summary(node: PolicyNode) -> None:
    state = node.backend.app.state.registry.get_or_create(node.agent.node_id)
    state.clock_skew_ms = 0.0
    state.add_rates(node.hot(1, now_ms() - 40_000))
    state.add_summary(summarize(node.hot(40, now_ms()), None))
    body = {"body": node.body(), "node_ids": [node.agent.node_id]}
    (found,) = await asked(node.operator, "/api/v1/policies/preview", body)
    assert found["view_age_s"] >= 40


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/nodes/{}/previews", {"desired": [{"key": "irq/30/affinity", "value": "1"}]}),
        ("/nodes/{}/policy-responses", {"desired": [{"key": "irq/30/affinity", "value": "1"}]}),
        ("/coalescing/outcomes", {"spec": {"type": "coalescing"}}),
    ],
)
async def test_what_is_predicted_from_the_load_asks_for_the_newest_samples(
    node: PolicyNode, monkeypatch: pytest.MonkeyPatch, path: str, body: dict[str, object]
) -> None:
    asked_for: list[int] = []

    async def refresh(node_id: int) -> None:
        asked_for.append(node_id)

    monkeypatch.setattr(node.backend.app.state.interest, "refresh", refresh)
    node_id = node.agent.node_id
    nodes = {"node_ids": [node_id]} if "{}" not in path else {}
    await asked(node.operator, f"/api/v1{path.format(node_id)}", body | nodes)
    assert asked_for == [node_id]


async def test_a_preview_stands_beside_the_policies_in_force_and_in_the_place_of_its_own(node: PolicyNode) -> None:
    start = now_ms() - 6000
    await node.show([node.hot(second + 1, start + 1000 * second) for second in range(6)])
    first = node.body(rank=1)
    policy = await created(node, first)
    await asked(node.operator, f"/api/v1/policies/{policy['id']}/enable")
    nodes = [node.agent.node_id]
    (other,) = await asked(node.operator, "/api/v1/policies/preview", {"body": node.body(rank=2), "node_ids": nodes})
    assert other["evaluation"]["actions"] == []
    assert {held["code"] for held in other["evaluation"]["deferred"]} == {"overruled"}
    (alike,) = await asked(node.operator, "/api/v1/policies/preview", {"body": node.body(rank=1), "node_ids": nodes})
    assert {held["code"] for held in alike["evaluation"]["deferred"]} == {"overruled"}, "the older one goes first"
    (same,) = await asked(node.operator, "/api/v1/policies/preview", {"body": first | {"rank": 3}, "node_ids": nodes})
    assert same["evaluation"]["policy_id"] == str(policy["id"])
    assert same["evaluation"]["actions"]


async def test_a_node_of_which_too_little_is_known_says_so_in_the_preview(quick: Backend, node: PolicyNode) -> None:
    silent = await enrolled(quick.database, quick.url, "silent")
    body = {"body": node.body(), "node_ids": [silent.node_id, node.agent.node_id, 2**31 - 1]}
    unknown, idle = await asked(node.operator, "/api/v1/policies/preview", body)
    assert "has not reported its topology" in unknown["error"]
    assert unknown["evaluation"] is None
    assert "is unknown: its agent" in idle["error"]
    assert (idle["view_age_s"], idle["evaluation"]["actions"]) == (None, [])


async def test_the_affinity_of_a_process_can_be_previewed_once_its_flows_are_reported(node: PolicyNode) -> None:
    desired_value = {"desired": [{"key": "task/812/affinity", "value": "2"}]}
    before = await asked(node.operator, f"{node.path}/previews", desired_value)
    assert before["refused"]
    await node.tell(node.flows())
    after = await asked(node.operator, f"{node.path}/previews", desired_value)
    assert after["refused"] == []
    assert [(action["was"], action["becomes"]) for action in after["plan"]["actions"]] == [("0-7", "2")]


async def test_a_backtest_returns_the_decisions_of_a_version_on_stored_samples(node: PolicyNode) -> None:
    start = now_ms() - 60_000
    for second in range(0, 60, 5):
        await node.tell(node.flows(start + 1000 * second))
    samples = [node.hot(second + 1, start + 1000 * second) for second in range(60)]
    await node.show(samples)
    await node.agent.until_acked(60)  # so that it is all read from the database
    await node.backend.app.state.agents.snapshots.flush()
    policy = await created(node, node.body(damping={"moves_per_step": 1}))
    path = f"/api/v1/policies/{policy['id']}/backtest"
    span = {"node_id": node.agent.node_id, "from_time": at(start - 1000), "to_time": at(start + 60_000)}
    found = await asked(await node.backend.client("viewer"), path, span)
    assert found["moves"] >= 1
    assert found["from_time"] == at(start - 1000).replace("+00:00", "Z")
    written = [action for step in found["steps"] for action in step["evaluation"]["actions"]]
    assert {int(action["was"]) for action in written} >= {node.hot_cpu}
    assert all(len(step["evaluation"]["actions"]) <= 1 for step in found["steps"])
    assert "rounds over 1.0 minutes" in found["sentence"]
    assert await asked(node.operator, path, span | {"version": 1}) == found
    patient = node.body(spec={"type": "irq-spread", "act_percent": 100.0, "gap_points": 100.0})
    spared = await asked(node.operator, path, span | {"body": patient})
    assert spared["moves"] <= found["moves"]
    placed = node.body(spec={"type": "network-process"})
    moved = await asked(node.operator, path, span | {"body": placed})
    keys = {action["key"] for step in moved["steps"] for action in step["evaluation"]["actions"]}
    assert "task/812/affinity" in keys


async def test_a_backtest_sets_the_cpus_of_a_cgroup(node: PolicyNode) -> None:
    start = now_ms() - 10_000
    cpusets = {ROOT_CGROUP: Cpuset(effective_cpus="0-7"), "web": Cpuset("", "", "0-7", "0")}
    await node.tell(replace(node.flows(start), cpusets=cpusets))
    await node.show([node.hot(second + 1, start + 1000 * second) for second in range(10)])
    values = {"cgroup/web/cpuset.cpus": "0-3"}
    policy = await created(node, node.body(spec={"type": "fixed-settings", "settings": values}))
    span = {"node_id": node.agent.node_id, "from_time": at(start - 1000), "to_time": at(start + 10_000)}
    written: list[tuple[str, str]] = []

    async def writes() -> bool:  # flows are stored once a second
        answer = await node.operator.post(f"/api/v1/policies/{policy['id']}/backtest", span)
        steps = answer.json()["steps"] if answer.ok else []
        written[:] = [(one["key"], one["becomes"]) for step in steps for one in step["evaluation"]["actions"]]
        return written != []

    await poll_async(writes)
    assert written == [("cgroup/web/cpuset.cpus", "0-3")]


@pytest.mark.parametrize(
    ("changes", "status", "says"),
    [
        ({"to_time": "2026-01-01T02:00:00Z"}, 422, "1 hour at the most"),
        ({"to_time": "2025-12-31T00:00:00Z"}, 422, "must end after it begins"),
        ({"from_time": "0001-01-01T00:00:00Z"}, 422, "out of range"),
        ({"version": 9}, 404, "no version 9"),
        ({"node_id": 2**31 - 1}, 404, "no node"),
        ({}, 409, "No samples"),
    ],
)
async def test_an_impossible_backtest_is_refused_with_the_reason(
    node: PolicyNode, changes: dict[str, object], status: int, says: str
) -> None:
    policy = await created(node, node.body())
    span = {
        "node_id": node.agent.node_id,
        "from_time": "2026-01-01T00:00:00Z",
        "to_time": "2026-01-01T00:30:00Z",
    }
    answer = await asked(node.operator, f"/api/v1/policies/{policy['id']}/backtest", span | changes, status)
    assert says in answer["detail"]


async def test_a_selector_says_which_nodes_it_matches_now(node: PolicyNode) -> None:
    viewer = await node.backend.client("viewer")
    path, node_id = f"/api/v1/policies/matches?node_id={node.agent.node_id}", node.agent.node_id
    found = await asked(viewer, path, {"hostnames": [node.name]})
    assert (found["nodes"], found["others"], found["fleet"] >= 1) == (1, [], True)
    assert found["live"] in ([node_id], [])  # an agent that is silent for three seconds is stale
    found = await asked(viewer, path, {"labels": {"role": "no such"}})
    assert (found["nodes"], found["live"], found["others"]) == (0, [], [node_id])
