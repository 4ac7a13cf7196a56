"""Rollouts: canary, batches, the end, and the way back. The clock is the test's."""

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import numpy as np
import pytest
import pytest_asyncio
from sqlalchemy import select
from tests.backend.conftest import Backend, Client
from tests.backend.fake_agent import now_ms
from tests.backend.policy_node import PolicyNode, asked, created, policy_node
from tests.support.polling import poll_async

from coresteer.audit.tables import AuditRow
from coresteer.policies import rollout_monitor
from coresteer.policies.rollout_guardrails import GuardrailWatch
from coresteer.policies.rollout_monitor import RolloutMonitor
from coresteer.policies.rollout_schemas import StageEvidence, StageFigure, StageVerdict
from coresteer.policies.rollouts import finish, split_into_stages, to_schema
from coresteer.policies.tables import PolicyRow, RolloutRow
from coresteer.telemetry import partitions
from coresteer.telemetry.repository import copy_minutes, to_unix_ms
from coresteer.telemetry.rollup import Rollup
from coresteer_core.changes.report import ChangeMessage, ChangeState, EndedBy
from coresteer_core.node.rates import CPU_SHARES
from coresteer_core.protocol import ChangeAck, Detail, decode_to_agent

WAIT_S = 600


@dataclass
class Fleet:
    """Three connected nodes and a policy for them of which version 1 is in force and version 2 is made."""

    nodes: list[PolicyNode]
    policy: dict[str, Any]  # Any: JSON
    operator: Client
    rollout_monitor: RolloutMonitor
    waited: timedelta = timedelta()

    @property
    def path(self) -> str:
        return f"/api/v1/policies/{self.policy['id']}"

    async def start(self, **changes: object) -> dict[str, Any]:  # Any: JSON
        request = {"version": 2, "canary": 1, "batch": 2, "wait_s": WAIT_S} | changes
        made: dict[str, Any] = await asked(self.operator, f"{self.path}/rollouts", request, 201)
        return made

    async def rollout(self, rollout_id: int) -> dict[str, Any]:  # Any: JSON
        answer = await self.operator.get(f"/api/v1/rollouts/{rollout_id}")
        assert answer.status_code == 200
        found: dict[str, Any] = answer.json()
        return found

    async def wait(self) -> None:
        """A stage's time goes by."""
        self.waited += timedelta(seconds=WAIT_S + 1)
        await self.rollout_monitor.check(datetime.now(UTC) + self.waited)

    async def check(self) -> None:
        await self.rollout_monitor.check(datetime.now(UTC) + self.waited)

    async def versions(self) -> list[int | None]:
        """What each agent gets told when it connects now."""
        found: list[int | None] = []
        for node in self.nodes:
            await node.agent.websocket.close()
            await node.agent.connect()
            await node.agent.greet()
            told = [policy for policy in await node.agent.policies() if policy.policy_id == str(self.policy["id"])]
            found.append(told[0].version if told else None)
        return found


@pytest_asyncio.fixture
async def fleet(backend: Backend) -> AsyncIterator[Fleet]:
    pool = uuid4().hex[:8]
    async with AsyncExitStack() as stack:
        nodes = [await stack.enter_async_context(policy_node(backend)) for _ in range(3)]
        for node in nodes:
            await node.operator.patch(node.path, {"labels": {"pool": pool}})
        body = nodes[0].body(selector={"labels": {"pool": pool}})
        policy = await created(nodes[0], body)
        operator = nodes[0].operator
        fleet = Fleet(nodes, policy, operator, RolloutMonitor(backend.app.state.policies))
        await asked(operator, f"{fleet.path}/enable")
        await asked(operator, f"{fleet.path}/versions", {"body": body | {"rank": 50}}, 201)
        yield fleet


@pytest.mark.parametrize(
    ("canary", "batch", "expected"),
    [
        (1, 2, [[1], [2, 3], [4, 5]]),
        (2, 2, [[1, 2], [3, 4], [5]]),
        (5, 1, [[1, 2, 3, 4, 5]]),
        (9, 1, [[1, 2, 3, 4, 5]]),
    ],
)
def test_every_node_is_in_one_stage(canary: int, batch: int, expected: list[list[int]]) -> None:
    assert split_into_stages([1, 2, 3, 4, 5], canary, batch) == expected


async def test_a_rollout_goes_from_the_canary_to_all_and_then_the_version_is_in_force(fleet: Fleet) -> None:
    begun = await fleet.start()
    ids = [node.agent.node_id for node in fleet.nodes]
    assert (begun["state"], begun["stages"], begun["from_version"]) == ("canary", [ids[:1], ids[1:]], 1)
    assert "1 of 3 nodes" in begun["sentence"]
    assert await fleet.versions() == [2, 1, 1]
    await fleet.check()
    assert (await fleet.rollout(begun["id"]))["state"] == "canary"
    mixed = [{"version": 1, "nodes": 2}, {"version": 2, "nodes": 1}]
    assert (await fleet.operator.get(fleet.path)).json()["in_force"] == mixed
    overview = (await fleet.operator.get(f"{fleet.path}/overview")).json()
    assert overview["versions"] == mixed
    assert sorted(one["version"] for one in overview["nodes"]) == [1, 1, 2]
    await fleet.wait()
    batches = await fleet.rollout(begun["id"])
    assert (batches["state"], batches["stage"], batches["done_nodes"]) == ("batches", 1, ids[:1])
    assert await fleet.versions() == [2, 2, 2]
    policy = (await fleet.operator.get(fleet.path)).json()
    assert (policy["version"], policy["rollout"]["id"]) == (1, begun["id"])
    assert policy["in_force"] == [{"version": 2, "nodes": 3}]
    await fleet.wait()
    done = await fleet.rollout(begun["id"])
    assert (done["state"], sorted(done["done_nodes"])) == ("done", ids)
    policy = (await fleet.operator.get(fleet.path)).json()
    assert (policy["version"], policy["rollout"]) == (2, None)
    async with fleet.nodes[0].backend.database.session() as session:
        query = select(AuditRow).where(AuditRow.target == f"policy {policy['name']}").order_by(AuditRow.id)
        entries = [(entry.actor, entry.action) for entry in await session.scalars(query)]
    assert entries[-3:] == [
        ("operator", "rollout.start"),
        ("coresteer", "rollout.advance"),
        ("coresteer", "rollout.finish"),
    ]


async def test_a_stage_without_figures_passes_and_this_is_told(fleet: Fleet) -> None:
    begun = await fleet.start()
    assert begun["evidence"] == []
    await fleet.wait()
    (evidence,) = (await fleet.rollout(begun["id"]))["evidence"]
    assert (evidence["stage"], evidence["window_s"]) == (0, 0.75 * WAIT_S)
    assert evidence["sentence"].startswith("No figures: no node of the stage has enough samples")
    assert evidence["basis"] == "none"
    await fleet.wait()
    done = await fleet.rollout(begun["id"])
    assert ", 0 passed on figures compared with waiting nodes, 0 on figures from before" in done["sentence"]
    assert done["sentence"].endswith("and 2 without figures.")


def minute(start_ms: int, *, busy: int) -> Rollup:
    """A minute with the busy share of both CPUs in units of 0.5 %, at 13 Mbit/s."""
    means = np.zeros((len(CPU_SHARES), 2), np.uint8)
    means[[CPU_SHARES.index("busy"), CPU_SHARES.index("user")]] = busy
    netdevs = {"eno1": [100 * 10**6, 0, 1000, 0, 0, 0, 0, 0]}
    return Rollup(start_ms, start_ms + 60_000, 1, 60, 60.0, 2, means, means, netdevs, {})


async def test_the_figures_are_of_the_nodes_before_and_after_next_to_those_that_wait(fleet: Fleet) -> None:
    begun = await fleet.start()
    stage_at = datetime.fromisoformat(begun["stage_at"])
    after = {0: 36, 1: 40, 2: 41}
    rollups = [
        (node.agent.node_id, minute(int(to_unix_ms(start)) + 60_000 * place, busy=busy))
        for number, node in enumerate(fleet.nodes)
        for start, busy in (
            (stage_at - timedelta(seconds=0.75 * WAIT_S), 40),
            (stage_at + timedelta(seconds=0.25 * WAIT_S + 2), after[number]),
        )
        for place in range(7)
    ]
    async with fleet.nodes[0].backend.database.pool.connection() as connection:
        parts = {partitions.partition_of("telemetry_minute", rollup.start_ms) for _, rollup in rollups}
        await partitions.create_partitions(connection, parts)
        await copy_minutes(connection, rollups)
    await fleet.wait()
    (evidence,) = (await fleet.rollout(begun["id"]))["evidence"]
    (cost,) = [one for one in evidence["figures"] if one["metric"] == "cpu_s_per_gbit"]
    assert (cost["nodes"], cost["waiting_nodes"]) == (1, 2)
    assert (cost["before"], cost["after"]) == (pytest.approx(30.0, rel=0.01), pytest.approx(27.0, rel=0.01))
    assert cost["change"] == pytest.approx(-0.1, abs=0.001)
    assert cost["waiting_change"] == pytest.approx(0.0124, abs=0.001)
    assert cost["low"] < cost["effect"] < cost["high"]
    assert cost["effect"] == pytest.approx(-0.111, abs=0.001)


async def test_a_stage_that_made_its_nodes_worse_rolls_the_version_back(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    worse = StageFigure(
        metric="rtt_p99_us", label="RTT p99", unit="µs", nodes=1,
        before=100.0, after=150.0, change=0.5, waiting_nodes=2, waiting_change=0.0,
        effect=0.5, low=0.3, high=0.7, verdict=StageVerdict.WORSENS, sentence="RTT p99: +50 % [+30 %, +70 %], worse.",
    )  # fmt: skip

    async def measured(_: object, row: RolloutRow, now: datetime) -> StageEvidence:
        return StageEvidence(stage=row.stage, at=now, window_s=60, figures=[worse], sentence=worse.sentence)

    monkeypatch.setattr(rollout_monitor, "measure_stage", measured)
    begun = await fleet.start()
    await fleet.wait()
    ended = await fleet.rollout(begun["id"])
    assert (ended["state"], ended["evidence"][0]["figures"][0]["verdict"]) == ("rolled_back", "worsens")
    assert "Stage 1 made the nodes worse. RTT p99: +50 %" in ended["sentence"]
    assert await fleet.versions() == [1, 1, 1]


async def test_agents_receive_the_version_of_their_stage(fleet: Fleet) -> None:
    begun = await fleet.start(canary=2)
    while (told := await fleet.nodes[1].told(fleet.policy["name"]))[0].version != 2:
        pass
    await asked(fleet.operator, f"/api/v1/rollouts/{begun['id']}/stop", {"roll_back": True})
    while (told := await fleet.nodes[1].told(fleet.policy["name"]))[0].version != 1:
        pass
    assert told[0].rank == 100


async def test_a_figure_over_its_guardrail_on_a_node_of_the_stage_rolls_the_version_back(fleet: Fleet) -> None:
    begun = await fleet.start(guardrails=[{"metric": "dropped_per_s", "max": 10}])
    canary, other, _ = fleet.nodes
    start = now_ms() - 4000
    await other.show([other.hot(1, start, dropped=50), other.hot(2, start + 1000, dropped=50)])
    await fleet.check()
    await canary.show([canary.hot(1, start, dropped=50)])
    await fleet.check()
    interest = canary.backend.app.state.interest
    assert [interest.detail(node.agent.node_id) for node in fleet.nodes[:2]] == [Detail.SUMMARIES, Detail.BLOCKS]
    await fleet.check()  # the same interval counts once
    assert (await fleet.rollout(begun["id"]))["state"] == "canary"
    await canary.show([canary.hot(2, start + 1000, dropped=70)])
    await fleet.check()
    rolled_back = await fleet.rollout(begun["id"])
    assert rolled_back["state"] == "rolled_back"
    assert f"On {canary.name} the dropped packets per second was 70" in rolled_back["sentence"]
    assert "Every node has version 1 again." in rolled_back["sentence"]
    assert await fleet.versions() == [1, 1, 1]


async def test_a_rollout_that_cannot_be_checked_does_not_keep_others_from_being_checked(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = await created(fleet.nodes[0], fleet.nodes[0].body())
    await asked(
        fleet.operator, f"/api/v1/policies/{other['id']}/rollouts", {"version": 1, "canary": 1, "batch": 1}, 201
    )
    begun = await fleet.start()
    checked: list[int] = []

    async def fail(seen: RolloutRow, now: datetime, **_: object) -> None:
        checked.append(seen.policy_id)
        raise OverflowError("math range error")

    monkeypatch.setattr(fleet.rollout_monitor, "_check_one", fail)
    with pytest.raises(OverflowError):
        await fleet.rollout_monitor.check(datetime.now(UTC))
    assert {other["id"], begun["policy_id"]} <= set(checked)


def test_a_version_that_was_rolled_back_and_is_in_force_after_all_is_not_called_rolled_back() -> None:
    policy = PolicyRow(version=1, rolled_back_version=2, rolled_back_because="It was worse.")
    finish(policy, RolloutRow(to_version=2, stages=[[1]], evidence=[]))
    assert (policy.version, policy.rolled_back_version, policy.rolled_back_because) == (2, None, None)


@pytest.mark.parametrize(
    ("state", "since_s", "expected"),
    [("canary", 0, 60), ("batches", 20, 40), ("batches", 90, 0), ("batches", -5, 60), ("stopped", 20, None)],
)
def test_a_rollout_says_how_long_its_stage_still_waits(state: str, since_s: float, expected: float | None) -> None:
    now = datetime(2026, 11, 21, tzinfo=UTC)
    row = RolloutRow(
        **{
            "id": 1,
            "policy_id": 1,
            "to_version": 1,
            "state": state,
            "stage": 0,
            "stages": [[1]],
            "sentence": "It waits.",
        },
        **{"wait_s": 60, "guardrails": [], "evidence": [], "started_at": now, "started_by": "tests"},
        stage_at=now - timedelta(seconds=since_s),
    )
    assert to_schema(row, now).remaining_s == expected


async def test_intervals_during_a_stop_of_enforcement_violate_no_guardrail(fleet: Fleet) -> None:
    begun = await fleet.start(guardrails=[{"metric": "dropped_per_s", "max": 10}])
    canary = fleet.nodes[0]
    database = canary.backend.database
    watch = GuardrailWatch(canary.backend.app.state.policies, lambda: False)
    admin = await canary.backend.client("admin")
    stop = await asked(admin, "/api/v1/stops", {"labels": fleet.policy["body"]["selector"]["labels"]}, 201)
    await fleet.check()
    assert "Held" in (await fleet.rollout(begun["id"]))["sentence"]
    start = now_ms() - 4000
    for seq in (1, 2):
        await canary.show([canary.hot(seq, start + 1000 * seq, dropped=50)])
        await watch.check()
    async with database.session() as session:
        assert (await session.get_one(RolloutRow, begun["id"])).violation is None
    assert (await admin.post(f"/api/v1/stops/{stop['id']}/lift")).status_code == 204
    await fleet.check()
    await watch.check()
    await fleet.check()
    assert (await fleet.rollout(begun["id"]))["state"] == "canary"


async def test_a_change_that_a_guardrail_rolled_back_on_the_node_rolls_the_version_back(fleet: Fleet) -> None:
    begun = await fleet.start()
    canary = fleet.nodes[0]
    change_id = str(uuid4())
    await canary.evaluate(fleet.policy, canary.action(), version=2, change_id=change_id)
    await canary.agent.say(
        ChangeMessage(change_id, ChangeState.ROLLED_BACK, "The busiest CPU was too busy.", [], EndedBy.GUARDRAIL)
    )
    while not isinstance(decode_to_agent(await canary.agent.receive()), ChangeAck):
        pass
    await fleet.check()
    rolled_back = await fleet.rollout(begun["id"])
    assert rolled_back["state"] == "rolled_back"
    assert change_id in rolled_back["sentence"]


async def test_a_node_that_stays_away_rolls_the_version_back(fleet: Fleet) -> None:
    begun = await fleet.start()
    await fleet.nodes[2].agent.websocket.close()
    await fleet.check()
    strict = RolloutMonitor(fleet.nodes[0].backend.app.state.policies, disconnected_s=0)
    await strict.check(datetime.now(UTC))
    assert (await fleet.rollout(begun["id"]))["state"] == "canary", "only nodes that have the version count"
    await fleet.nodes[0].agent.websocket.close()
    while fleet.nodes[0].backend.app.state.connections.is_connected(fleet.nodes[0].agent.node_id):
        await strict.check(datetime.now(UTC))
    await fleet.check()
    assert (await fleet.rollout(begun["id"]))["state"] in ("canary", "rolled_back")
    await strict.check(datetime.now(UTC))
    rolled_back = await fleet.rollout(begun["id"])
    assert rolled_back["state"] == "rolled_back"
    assert "has been disconnected" in rolled_back["sentence"]


def only_monitor(fleet: Fleet, monkeypatch: pytest.MonkeyPatch, monotonic: Callable[[], float]) -> RolloutMonitor:
    """A monitor with a clock of its own; the backend's, which would miss moments between its rounds, does nothing."""
    backend = fleet.nodes[0].backend

    async def nothing(_: datetime) -> bool:
        return True

    monkeypatch.setattr(backend.app.state.rollout_monitor, "check", nothing)
    monkeypatch.setattr(rollout_monitor, "time", SimpleNamespace(monotonic=monotonic))
    return RolloutMonitor(backend.app.state.policies)


@pytest.mark.parametrize(("with_backend", "allowed_s"), [(False, 30), (True, 120)])
async def test_a_node_has_longer_to_return_if_its_backend_has_vanished(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch, with_backend: bool, allowed_s: int
) -> None:
    begun = await fleet.start()
    node = fleet.nodes[0]
    clock = SimpleNamespace(now=1000.0)
    monitor = only_monitor(fleet, monkeypatch, lambda: clock.now)
    await node.agent.websocket.close()
    await poll_async(lambda: not node.backend.app.state.connections.is_connected(node.agent.node_id))
    monkeypatch.setattr(
        node.backend.app.state.registry,
        "is_lost_with_backend",
        lambda node_id: with_backend and node_id == node.agent.node_id,
    )
    await monitor.check(datetime.now(UTC))
    clock.now += allowed_s - 1
    await monitor.check(datetime.now(UTC))
    assert (await fleet.rollout(begun["id"]))["state"] == "canary"
    clock.now += 1
    await monitor.check(datetime.now(UTC))
    assert f"has been disconnected for {allowed_s} s." in (await fleet.rollout(begun["id"]))["sentence"]


async def test_the_first_rollout_of_a_disabled_policy_leaves_nothing_when_it_is_rolled_back(fleet: Fleet) -> None:
    await asked(fleet.operator, f"{fleet.path}/disable")
    begun = await fleet.start()
    assert begun["from_version"] is None
    assert await fleet.versions() == [2, None, None]
    await asked(fleet.operator, f"/api/v1/rollouts/{begun['id']}/stop", {"roll_back": True})
    assert await fleet.versions() == [None, None, None]
    assert not (await fleet.operator.get(fleet.path)).json()["enabled"]


async def test_a_stopped_rollout_stays_where_it_is_until_it_is_rolled_back(fleet: Fleet) -> None:
    begun = await fleet.start()
    stop = f"/api/v1/rollouts/{begun['id']}/stop"
    stopped = await asked(fleet.operator, stop, {"roll_back": False})
    assert (stopped["state"], stopped["sentence"]) == (
        "stopped",
        "An operator stopped the rollout with 1 of 3 nodes at version 2.",
    )
    await fleet.wait()
    assert await fleet.versions() == [2, 1, 1]
    assert (
        "roll it back first" in (await asked(fleet.operator, f"{fleet.path}/rollouts", {"version": 2}, 409))["detail"]
    )
    assert "unfinished" in (await asked(fleet.operator, f"{fleet.path}/enable", status=409))["detail"]
    assert (await asked(fleet.operator, stop, {"roll_back": True}))["state"] == "rolled_back"
    assert await fleet.versions() == [1, 1, 1]
    assert "has ended" in (await asked(fleet.operator, stop, {"roll_back": True}, 409))["detail"]


async def test_disabling_ends_a_rollout(fleet: Fleet) -> None:
    begun = await fleet.start()
    await asked(fleet.operator, f"{fleet.path}/disable")
    ended = await fleet.rollout(begun["id"])
    assert (ended["state"], ended["sentence"]) == ("rolled_back", "An operator disabled the policy.")
    assert await fleet.versions() == [None, None, None]


async def test_a_rollout_without_effect_is_refused(fleet: Fleet) -> None:
    refused = await asked(fleet.operator, f"{fleet.path}/rollouts", {"version": 1}, 409)
    assert "already in force" in refused["detail"]
    assert (await fleet.operator.post(f"{fleet.path}/rollouts", {"version": 9})).status_code == 404
    body = fleet.nodes[0].body(selector={"hostnames": ["nobody"]})
    policy = await created(fleet.nodes[0], body)
    refused = await asked(fleet.operator, f"/api/v1/policies/{policy['id']}/rollouts", {"version": 1}, 409)
    assert refused["detail"] == "The selector matches no node."


async def test_a_node_has_the_full_time_once_its_backend_has_woken_up_and_ended_its_connection(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun = await fleet.start()
    node = fleet.nodes[0]
    state = SimpleNamespace(now=1000.0, is_lost=True)
    monitor = only_monitor(fleet, monkeypatch, lambda: state.now)
    await node.agent.websocket.close()
    await poll_async(lambda: not node.backend.app.state.connections.is_connected(node.agent.node_id))
    registry = node.backend.app.state.registry
    monkeypatch.setattr(registry, "is_lost_with_backend", lambda node_id: state.is_lost)
    for seconds, is_lost in ((0, True), (60, True), (1, False), (28, False)):
        state.now, state.is_lost = state.now + seconds, is_lost
        await monitor.check(datetime.now(UTC))
        assert (await fleet.rollout(begun["id"]))["state"] == "canary"
    state.now += 1
    await monitor.check(datetime.now(UTC))
    assert (await fleet.rollout(begun["id"]))["state"] == "rolled_back"
