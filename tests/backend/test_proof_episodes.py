"""The episodes of the proof of a policy from beginning to end, by the test's clock."""

from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import numpy as np
import pytest
import pytest_asyncio
from sqlalchemy import select, text
from sqlalchemy.ext.asyncio import AsyncSession
from tests.backend.conftest import Backend
from tests.backend.policy_node import asked
from tests.backend.proven import BLOCK_S, Proven, proven_policy

from coresteer.changes.tables import ChangeRow
from coresteer.policies.tables import DriftRow
from coresteer.proof import repository, sums_repository
from coresteer.proof.monitor import ProofMonitor
from coresteer.proof.tables import ProofBlockRow, ProofEpisodeRow, ProofVersionRow
from coresteer_core.policies.base import HoldoutReport, HoldoutState


@pytest_asyncio.fixture
async def proven(backend: Backend) -> AsyncIterator[Proven]:
    async with proven_policy(backend) as proven:
        yield proven


async def test_an_episode_is_held_out_measured_and_counted(proven: Proven) -> None:
    row = await proven.compared()
    assert (row.state, row.reason) == ("included", None)
    assert row.differences == pytest.approx({"cpu_s_per_gbit": np.log(0.9), "rtt_p99_us": 0.0})
    assert proven.published == [proven.node_id] * 2  # held out, and in force again
    async with proven.node.backend.database.session() as session:
        sums = await sums_repository.totals(session, proven.policy["id"])
        blocks = (await session.scalars(select(ProofBlockRow).where(ProofBlockRow.episode_id == row.id))).all()
    assert sums[proven.key]["cpu_s_per_gbit"] == pytest.approx((1, np.log(0.9), np.log(0.9) ** 2))
    assert {block.holdout: round(block.figures["cpu_busy_percent"]) for block in blocks} == {True: 80, False: 72}
    assert all(block.factors["governor"] == "performance" for block in blocks)
    assert all(len(block.parts) == 10 for block in blocks)


async def test_traffic_counts_once_on_a_node_that_is_connected_to_another_backend(
    proven: Proven, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(proven.context.policies.registry.get(proven.node_id), "physical", None)
    row = await proven.compared()
    async with proven.node.backend.database.session() as session:
        blocks = (await session.scalars(select(ProofBlockRow).where(ProofBlockRow.episode_id == row.id))).all()
    megabit_per_s = 100 * 8 / 60
    assert [block.figures["rx_bit_per_s"] / 1e6 for block in blocks] == pytest.approx([megabit_per_s] * 2)


@pytest.mark.parametrize("in_holdout", [True, False])
async def test_a_drift_is_recorded_with_an_episode_and_does_not_exclude_it(proven: Proven, in_holdout: bool) -> None:
    row = await proven.episode()
    at = proven.starts(row)[in_holdout] + timedelta(seconds=30)
    drift = {"key": "irq/30/affinity", "expected": "1", "found": "0", "cause": None, "response": "warn"}
    await proven.add(DriftRow(node_id=proven.node_id, at=at, policy_id=proven.policy["id"], **drift))
    await proven.measure(row, busy={True: 40, False: 36})
    await proven.switch(row)
    assert (await proven.until_decided()).state == "included"
    async with proven.node.backend.database.session() as session:
        blocks = (await session.scalars(select(ProofBlockRow).where(ProofBlockRow.episode_id == row.id))).all()
    assert [block.factors["drift"] for block in blocks] == ["yes", "yes"]


async def is_changed_by_a_person(proven: Proven, row: ProofEpisodeRow) -> None:
    at = row.started_at + timedelta(seconds=700)
    await proven.add(
        ChangeRow(
            id=uuid4(),
            node_id=proven.node_id,
            plan={"actions": []},
            sentence="Moved.",
            state="confirmed",
            created_by="operator",
            reason="",
            created_at=at,
            applied_at=at,
            confirm_timeout_s=120,
            guardrails=[],
            results=[],
        )
    )


async def runs_an_experiment(proven: Proven, _: ProofEpisodeRow) -> None:
    proven.in_use.add(proven.node_id)


async def disconnects(proven: Proven, _: ProofEpisodeRow) -> None:
    proven.node.backend.app.state.registry.get(proven.node_id).connected = False


async def gets_no_policy(proven: Proven, _: ProofEpisodeRow) -> None:
    await asked(proven.node.operator, f"/api/v1/policies/{proven.policy['id']}/disable")


async def is_part_of_a_rollout(proven: Proven, _: ProofEpisodeRow) -> None:
    path = f"/api/v1/policies/{proven.policy['id']}"
    await asked(proven.node.operator, f"{path}/versions", {"body": proven.policy["body"] | {"rank": 50}}, 201)
    await asked(proven.node.operator, f"{path}/rollouts", {"version": 2, "wait_s": 3600}, 201)


async def is_paused(proven: Proven, _: ProofEpisodeRow) -> None:
    await asked(proven.node.operator, "/api/v1/proof/pause")
    await asked(proven.node.operator, "/api/v1/proof/resume")


async def disconnects_between_two_checks(proven: Proven, _: ProofEpisodeRow) -> None:
    proven.node.backend.app.state.registry.get(proven.node_id).epoch += 1


async def is_left_alone_by_the_backend(proven: Proven, _: ProofEpisodeRow) -> None:
    proven.monitor = ProofMonitor(proven.context)


async def is_told_too_late_to_switch(proven: Proven, _: ProofEpisodeRow) -> None:
    await proven.tick(590)
    proven.now += timedelta(seconds=45)


DISTURBANCES: list[tuple[str, Callable[[Proven, ProofEpisodeRow], Any]]] = [
    ("change", is_changed_by_a_person),
    ("experiment", runs_an_experiment),
    ("disconnected", disconnects),
    ("disconnected", disconnects_between_two_checks),
    ("rollout", is_part_of_a_rollout),
    ("version", gets_no_policy),
    ("paused", is_paused),
    ("interrupted", is_left_alone_by_the_backend),
    ("late", is_told_too_late_to_switch),
]


@pytest.mark.parametrize(("reason", "disturb"), DISTURBANCES)
async def test_an_episode_does_not_count_when_the_node(
    proven: Proven, reason: str, disturb: Callable[[Proven, ProofEpisodeRow], Any]
) -> None:
    row = await proven.episode()
    await disturb(proven, row)
    await proven.measure(row, busy={True: 40, False: 36})
    await proven.switch(row)
    row = await proven.until_decided()
    assert (row.state, row.reason) == ("excluded", reason)
    await proven.tick()
    version = await proven.version()
    assert [(one["reason"], one["episodes"]) for one in version["excluded"]] == [(reason, 1)]
    assert version["metrics"][0]["finding"] == "no_evidence"


async def test_a_check_that_is_late_between_two_switches_excludes_nothing(proven: Proven) -> None:
    row = await proven.episode()
    await proven.measure(row, busy={True: 40, False: 36})
    await proven.switch(row)
    for seconds in (590, 20, 570, 20):
        await proven.tick(seconds)
    assert (await proven.until_decided()).state == "included"


async def test_a_policy_that_an_agent_has_just_put_in_force_again_is_not_held_out(proven: Proven) -> None:
    episode = await proven.planned()
    proven.node.backend.app.state.registry.get(proven.node_id).epoch += 1
    for seconds in (-BLOCK_S + 5, 1):  # in force for less than a block before
        proven.now = datetime.fromtimestamp(episode.start_s + seconds, UTC)
        await proven.monitor.check(proven.now)
    assert await proven.episodes() == []


@pytest.mark.parametrize("holdout", [True, False])
@pytest.mark.parametrize("disturb", [disconnects, is_changed_by_a_person])
async def test_the_block_for_which_an_episode_does_not_count_is_told(
    proven: Proven, disturb: Callable[[Proven, ProofEpisodeRow], Any], holdout: bool
) -> None:
    row = await proven.episode()
    if (holdout is row.holdout_first) == (disturb is is_changed_by_a_person):  # which is in the second block
        async with proven.node.backend.database.session() as session:
            (await session.merge(row)).holdout_first = row.holdout_first = not row.holdout_first
    await disturb(proven, row)
    await proven.measure(row, busy={True: 40, False: 36})
    await proven.switch(row)
    await proven.until_decided()
    balance = (await proven.version())["balance"]
    expected = {"ended": 1, "enforced": int(not holdout), "holdout": int(holdout), "biased": False}
    assert {name: balance[name] for name in expected} == expected
    words = (
        f"{int(not holdout)} of 1 episodes excluded because of the enforced block, {int(holdout)} of the holdout block."
    )
    assert balance["sentence"] == words


@pytest.mark.parametrize(
    "told",
    [
        pytest.param([], id="nothing"),
        pytest.param([(HoldoutState.HELD_OUT, 300.0)], id="held out too late"),
        pytest.param([(HoldoutState.HELD_OUT, 0.0), (HoldoutState.REFUSED, 5.0)], id="refused"),
    ],
)
async def test_an_episode_does_not_count_when_the_agent_reports(
    proven: Proven, told: list[tuple[HoldoutState, float]]
) -> None:
    row = await proven.episode()
    async with proven.node.backend.database.session() as session:
        (await session.merge(row)).washout_s = 60.0  # as it becomes once the decay is known
    await proven.measure(row, busy={True: 40, False: 36})
    begins = proven.starts(row)[True]
    for state, after_s in told:
        await proven.report(row, state, begins + timedelta(seconds=after_s))
    await proven.report(row, HoldoutState.IN_FORCE, begins + timedelta(seconds=BLOCK_S))
    row = await proven.until_decided()
    assert (row.state, row.reason) == ("excluded", "not_switched")


@pytest.mark.parametrize(
    ("traffic", "state", "reason"),
    [
        pytest.param({"megabytes_before": 1}, "excluded", "little_traffic", id="before the coin"),
        pytest.param({"enforced_megabytes": 1}, "included", None, id="of the version's own doing"),
        pytest.param({"enforced_megabytes": 0}, "excluded", "missing_data", id="none, so that there is no ratio"),
    ],
)
async def test_only_the_traffic_before_the_coin_decides_whether_an_episode_counts(
    proven: Proven, traffic: dict[str, int], state: str, reason: str | None
) -> None:
    row = await proven.compared(**traffic)
    assert (row.state, row.reason) == (state, reason)
    assert row.block == ("enforced" if reason == "missing_data" else None)


async def test_an_episode_whose_analysis_fails_does_not_hold_up_the_others(
    proven: Proven, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = await proven.episode()
    await proven.measure(row, busy={True: 40, False: 36})
    await proven.switch(row)
    earlier = row.started_at - timedelta(seconds=4 * BLOCK_S)
    copied = {name: getattr(row, name) for name in ("policy_id", "version", "node_id", "block_s", "labels")}
    other = ProofEpisodeRow(**copied, period=1, started_at=earlier, washout_s=60, holdout_first=True, state="waiting")
    await proven.add(other)
    reports = repository.holdout_reports

    async def fails(
        session: AsyncSession, node_id: int, policy_id: int, start: datetime, end: datetime
    ) -> list[HoldoutReport]:
        if start == earlier:
            await session.execute(text("SELECT 1 / 0"))
        return await reports(session, node_id, policy_id, start, end)

    monkeypatch.setattr(repository, "holdout_reports", fails)
    assert (await proven.until_decided()).state == "included"
    decided = (await proven.episodes())[:2]  # by chance, that of the next period may run already
    assert [one.state for one in decided] == ["included", "waiting"]
    await proven.tick(3600)
    assert (await proven.episodes())[1].reason == "failed"


async def test_an_episode_begins_while_others_of_its_version_are_included(proven: Proven) -> None:
    await proven.episode()
    database = proven.node.backend.database
    async with database.session() as session, database.session() as other:
        assert await repository.find_version(session, *proven.key, lock=True) is not None
        # as the foreign key of a new episode locks it
        query = select(ProofVersionRow).where(ProofVersionRow.policy_id == proven.policy["id"])
        assert (await other.scalars(query.with_for_update(read=True, key_share=True, nowait=True))).all() != []
        assert (await other.scalars(query.with_for_update(skip_locked=True))).all() == []


async def test_samples_that_are_late_are_waited_for(proven: Proven) -> None:
    row = await proven.episode()
    await proven.switch(row)
    await proven.until_waiting()
    await proven.tick()
    assert (await proven.episodes())[0].state == "waiting"
    await proven.measure(row, busy={True: 40, False: 36})
    assert (await proven.until_decided()).state == "included"


async def test_samples_that_never_come_are_counted_as_missing(proven: Proven) -> None:
    row = await proven.episode()
    await proven.switch(row)
    await proven.until_waiting()
    await proven.tick(3500)
    assert (await proven.episodes())[0].state == "waiting"
    await proven.tick(200)
    row, *_ = await proven.episodes()
    assert (row.state, row.reason) == ("excluded", "missing_data")


async def test_an_agent_is_told_which_policy_it_holds_out_and_when_that_ends(proven: Proven) -> None:
    context = proven.node.backend.app.state
    (policy,) = await proven.node.told(proven.policy["name"])
    assert not policy.holdout
    row = await proven.episode()
    async with proven.node.backend.database.session() as session:
        stored = await session.merge(row)
        stored.started_at = datetime.now(UTC) - timedelta(seconds=1 if row.holdout_first else BLOCK_S + 1)
    context.agents.publisher.schedule(proven.node_id)
    (policy,) = await proven.node.told(proven.policy["name"])
    assert policy.holdout
    await asked(proven.node.operator, "/api/v1/proof/pause")
    (policy,) = await proven.node.told(proven.policy["name"])
    assert not policy.holdout
    await asked(proven.node.operator, "/api/v1/proof/pause", status=409)
    await asked(proven.node.operator, "/api/v1/proof/resume")
