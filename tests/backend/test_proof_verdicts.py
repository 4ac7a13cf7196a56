"""The verdicts of the proof of a policy, their sentences, and the sums that they are computed from."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pytest
import pytest_asyncio
from sqlalchemy import select
from tests.backend.conftest import Backend
from tests.backend.policy_node import asked, created
from tests.backend.proven import Proven, proven_policy

from coresteer.audit.tables import AuditRow
from coresteer.policies.schemas import PolicyBody
from coresteer.policies.tables import PolicyRow, PolicyVersionRow, RolloutRow
from coresteer.proof import findings, repository, sums_repository
from coresteer.proof.analysis import MAX_GROUPS, OTHER_VALUES, new_sums
from coresteer.proof.confidence_sequence import Evidence, effect
from coresteer.proof.course import POINTS, course_step_s
from coresteer.proof.exclusion import Block, missing_in
from coresteer.proof.schemas import PolicyProofLine, SavedCores
from coresteer.proof.service import MeasuredPolicy, _fleet_sentence, saved_cores, saved_together
from coresteer.proof.sums_repository import Sum, SumKey
from coresteer.proof.tables import ProofBlockRow, ProofEpisodeRow, ProofVersionRow
from coresteer.proof.verdict import Finding


@pytest_asyncio.fixture
async def proven(backend: Backend) -> AsyncIterator[Proven]:
    async with proven_policy(backend) as proven:
        yield proven


async def settle(proven: Proven, differences: list[float], *, version: int = 1) -> bool:
    """Let episodes with these differences have been included; whether the version is rolled back."""
    values, policy_id = np.array(differences), proven.policy["id"]
    async with proven.node.backend.database.session() as session:
        row = await repository.find_version(session, policy_id, version)
        if row is None:
            row = ProofVersionRow(
                policy_id=policy_id,
                version=version,
                started_at=proven.now,
                rho=0.1,
                washout_s=60,
                washout_at=proven.now,
                findings={},
            )
            session.add(row)
            await session.flush()
        some = Sum(len(values), float(values.sum()), float((values**2).sum()))
        await sums_repository.add_sums(
            session, {SumKey(policy_id, version, "cpu_s_per_gbit", "", "", proven.now): some}
        )
        stored = await session.get(PolicyVersionRow, (policy_id, version))
        assert stored is not None
        return await findings.update(session, row, PolicyBody.model_validate(stored.body), proven.now)


async def audited(proven: Proven) -> list[tuple[str, dict[str, Any]]]:  # Any: JSON
    async with proven.node.backend.database.session() as session:
        query = select(AuditRow).where(AuditRow.target == f"policy {proven.policy['name']}").order_by(AuditRow.id)
        return [(row.action, row.detail) for row in await session.scalars(query)]


async def test_counts_and_sums_outlive_the_episodes(proven: Proven) -> None:
    row = await proven.compared()
    copied = {
        name: getattr(row, name) for name in ("policy_id", "version", "node_id", "block_s", "labels", "started_at")
    }
    copied |= {"washout_s": 60, "holdout_first": True, "state": "excluded"}
    for period, (reason, block) in enumerate([("disconnected", "enforced"), ("disconnected", None), ("paused", None)]):
        await proven.add(ProofEpisodeRow(**copied, period=period, reason=reason, block=block))
    await proven.tick()
    before = await proven.version()
    assert (before["episodes"], before["nodes"], before["balance"]["ended"]) == (1, 1, 4)
    assert [(one["reason"], one["episodes"], one["enforced"]) for one in before["excluded"]] == [
        ("disconnected", 2, 1),
        ("paused", 1, 0),
    ]
    async with proven.node.backend.database.session() as session:
        await repository.prune(session, blocks_before=proven.now, before=proven.now)
    # the schedule is random: its next episode may have begun
    assert {row.state for row in await proven.episodes()} <= {"running"}
    after = await proven.version()
    told = ("episodes", "nodes", "excluded", "balance", "sentence")
    assert {name: after[name] for name in told} == {name: before[name] for name in told}
    assert [one["effect"] for one in after["metrics"]] == [one["effect"] for one in before["metrics"]]


async def test_the_sums_of_a_version_become_fewer_and_none_is_lost(proven: Proven) -> None:
    await settle(proven, [0.01])
    start, random = proven.now, np.random.default_rng(8)
    days = [start + timedelta(hours=2 * at) for at in range(12 * 90)]
    values = random.normal(-0.03, 0.05, len(days))
    of_metric = (*proven.key, "cpu_s_per_gbit", "", "")
    now = start + timedelta(days=90)
    async with proven.node.backend.database.session() as session:
        sums = {SumKey(*of_metric, at): Sum(1, v, v**2) for at, v in zip(days, values.tolist(), strict=True)}
        await sums_repository.add_sums(session, sums)
        before = (await sums_repository.totals(session))[proven.key]["cpu_s_per_gbit"]
        for _ in range(2):  # the second time there is nothing to do
            await sums_repository.thin_sums(session, {proven.key: course_step_s(90 * 86_400)})
        (course,) = (await sums_repository.courses(session, proven.policy["id"], [1])).values()
        after = (await sums_repository.totals(session))[proven.key]["cpu_s_per_gbit"]
    assert after == pytest.approx(before)
    assert POINTS / 2 < len(course) <= POINTS + 1
    # the answer for a time contains nothing that ended after it
    until, _ = course[20]
    known = sum(one.episodes for at, one in course if at <= until)
    assert known == sum(at <= until for at in days) + 1
    assert max(at for at, _ in course) - now < timedelta(seconds=course_step_s(90 * 86_400))


@pytest.mark.parametrize("age_s", [0.0, 3600.0, 86_400.0, 30 * 86_400.0, 1e9])
def test_a_version_of_any_age_has_a_bounded_number_of_times(age_s: float) -> None:
    assert age_s / course_step_s(age_s) <= POINTS
    assert course_step_s(2 * age_s) in (course_step_s(age_s), 2 * course_step_s(age_s))


async def test_a_label_that_names_each_node_has_a_bounded_number_of_groups(proven: Proven) -> None:
    version = ProofVersionRow(policy_id=1, version=1, started_at=proven.now, rho=0.1, washout_s=60)
    rows = [
        ProofEpisodeRow(
            started_at=proven.now, block_s=600.0, labels={"rack": f"r{at % 3}", "serial": str(at)}, differences=found
        )
        for at in range(3 * MAX_GROUPS)
        for found in [{"cpu_s_per_gbit": 0.1, "rtt_p99_us": 0.2}]
    ]
    sums = new_sums(version, "cpu_s_per_gbit", rows, {"serial": {"before"}}, proven.now)
    groups = {
        label: {key.value: one.episodes for key, one in sums.items() if key.label == label}
        for label in ("rack", "serial")
    }
    assert groups["rack"] == dict.fromkeys(("r0", "r1", "r2"), MAX_GROUPS)
    assert len(groups["serial"]) == MAX_GROUPS
    assert sum(groups["serial"].values()) == 3 * MAX_GROUPS
    assert groups["serial"][OTHER_VALUES] == 2 * MAX_GROUPS + 1
    assert {key.metric for key in sums if key.label} == {"cpu_s_per_gbit"}


def test_the_cores_that_policies_save_share_no_error_with_policies_of_another_metric() -> None:
    noise = np.random.default_rng(9).normal(-0.05, 0.05, 200)
    one = Sum(len(noise), float(noise.sum()), float((noise**2).sum()))
    alone, known = saved_together([MeasuredPolicy("cpu_s_per_gbit", 0.1, one, 40.0)])
    others = [MeasuredPolicy("rtt_p99_us", 0.1, one, 40.0)] * 3
    assert saved_together([MeasuredPolicy("cpu_s_per_gbit", 0.1, one, 40.0), *others]) == (alone, known)
    assert known == 1
    assert saved_cores("rtt_p99_us", effect(Evidence.of(*one), 0.1), 40.0) is None


LINE = PolicyProofLine(
    policy_id=1,
    name="spread",
    version=1,
    nodes=1,
    since=None,
    metric="cpu_s_per_gbit",
    finding=Finding.NO_EVIDENCE,
    effect=None,
    cores=None,
    sentence="",
)


@pytest.mark.parametrize(
    ("total", "words"),
    [
        ((3.0, 1.0, 5.0), "Together, 2 enforced policies save 3 cores [1, 5]."),
        ((-3.0, -5.0, -1.0), "Together, 2 enforced policies cost 3 cores [1, 5]."),
    ],
)
def test_the_bounds_of_what_policies_save_or_cost_have_the_sign_of_the_verb(
    total: tuple[float, float, float], words: str
) -> None:
    estimate, low, high = total
    assert _fleet_sentence([LINE, LINE], SavedCores(estimate=estimate, low=low, high=high), 2) == words


@pytest.mark.parametrize(
    ("enforced", "holdout", "ending"),
    [
        (9, 0, "more than chance explains, so that the effect may be biased."),
        (9, 9, None),
        (0, 0, None),
    ],
)
async def test_a_guardrail_that_more_episodes_lack_in_one_block_than_chance_explains_is_called_biased(
    proven: Proven, enforced: int, holdout: int, ending: str | None
) -> None:
    await settle(proven, [0.01, -0.01] * 10)
    lacking = {Block.ENFORCED: enforced, Block.HOLDOUT: holdout}
    async with proven.node.backend.database.session() as session:
        sums = {
            SumKey(*proven.key, missing_in("rtt_p99_us", block), "", "", proven.now): Sum(number, 0.0, 0.0)
            for block, number in lacking.items()
            if number
        }
        await sums_repository.add_sums(session, sums)
    metrics = (await proven.version())["metrics"]
    assert [one["metric"] for one in metrics] == ["cpu_s_per_gbit", "rtt_p99_us"]
    told = f" {enforced} of 20 episodes lack it in the enforced block only, {holdout} in the holdout block only"
    told += "." if ending is None else f": {ending}"
    assert metrics[1]["sentence"] == "No evidence yet." + (told if enforced else "")


async def test_saved_cores_count_each_node_with_its_latest_episodes(proven: Proven) -> None:
    await settle(proven, [-0.03, -0.031, -0.029] * 20)
    days_ago = {20.0: 900.0, 10.5: 100.0, 10.0: 200.0}
    episodes = [
        ProofEpisodeRow(
            policy_id=proven.policy["id"],
            version=1,
            node_id=proven.node_id,
            period=period,
            started_at=datetime.now(UTC) - timedelta(days=days),
            block_s=600.0,
            washout_s=60,
            holdout_first=True,
            labels={},
            state="included",
        )
        for period, days in enumerate(days_ago)
    ]
    await proven.add(*episodes)
    stored = zip(await proven.episodes(), days_ago.values(), strict=True)
    await proven.add(
        *(
            ProofBlockRow(
                episode_id=row.id,
                holdout=False,
                started_at=row.started_at,
                figures={"cpu_busy_percent": busy},
                parts=[],
                factors={},
            )
            for row, busy in stored
        )
    )
    version = await proven.version()
    effect_of_version = version["metrics"][0]["effect"]["estimate"]
    assert version["cores"]["estimate"] == pytest.approx(1.5 * (1 / (1 + effect_of_version) - 1))


async def test_nothing_is_expected_by_a_date_while_all_proofs_are_paused(proven: Proven) -> None:
    noise = np.random.default_rng(5).normal(0, 0.3, 100)
    await settle(proven, (noise - noise.mean()).tolist())
    async with proven.node.backend.database.session() as session:
        version = await repository.find_version(session, *proven.key)
        assert version is not None
        version.started_at = datetime.now(UTC) - timedelta(days=3)

    async def expected() -> object:
        return (await proven.version())["metrics"][0]["expected"]

    assert await expected() is not None
    await asked(proven.node.operator, "/api/v1/proof/pause")
    assert await expected() is None
    await asked(proven.node.operator, "/api/v1/proof/resume")
    assert await expected() is not None
    await asked(proven.node.operator, f"/api/v1/policies/{proven.policy['id']}/disable")
    assert await expected() is None
    await asked(proven.node.operator, f"/api/v1/policies/{proven.policy['id']}/enable")


async def test_an_effect_is_told_and_audited_once_it_is_found(proven: Proven) -> None:
    noise = np.random.default_rng(5).normal(-0.05, 0.05, 200)
    assert not await settle(proven, noise[:3].tolist())
    assert not await settle(proven, noise[3:].tolist())
    assert not await settle(proven, [-0.05])
    found = [detail for action, detail in await audited(proven) if action == "policy.find_effect"]
    assert [(one["metric"], one["finding"]) for one in found] == [("cpu_s_per_gbit", "improves")]
    proof = (await proven.node.operator.get(f"/api/v1/policies/{proven.policy['id']}/proof")).json()
    assert proof["sentence"].startswith("Saves 5.2 % [4.2, 6.2] of CPU per gigabit")
    fleet = (await proven.node.operator.get("/api/v1/proof")).json()
    (line,) = [one for one in fleet["policies"] if one["policy_id"] == proven.policy["id"]]
    assert (line["finding"], line["version"]) == ("improves", 1)


HARM = np.random.default_rng(6).normal(0.1, 0.05, 200).tolist()


async def test_a_harmful_version_stays_unless_the_operator_wants_it_rolled_back(proven: Proven) -> None:
    assert not await settle(proven, HARM)
    policy = (await proven.node.operator.get(f"/api/v1/policies/{proven.policy['id']}")).json()
    assert policy["enabled"]


@pytest.mark.parametrize("before", [None, 1])
async def test_a_harmful_version_is_rolled_back_to_the_one_before_it(proven: Proven, before: int | None) -> None:
    path = f"/api/v1/policies/{proven.policy['id']}"
    body = proven.policy["body"] | {"proof": proven.policy["body"]["proof"] | {"roll_back": True}}
    await asked(proven.node.operator, f"{path}/versions", {"body": body}, 201)
    async with proven.node.backend.database.session() as session:
        policy = await session.get(PolicyRow, proven.policy["id"])
        assert policy is not None
        policy.version = 2
        if before is not None:
            session.add(
                RolloutRow(
                    policy_id=policy.id,
                    from_version=before,
                    to_version=2,
                    state="done",
                    stage=0,
                    stages=[[proven.node_id]],
                    sentence="Done.",
                    wait_s=0,
                    guardrails=[],
                    stage_at=proven.now,
                    started_at=proven.now,
                    started_by="operator",
                )
            )
    assert await settle(proven, HARM, version=2)
    found = (await proven.node.operator.get(path)).json()
    assert (found["enabled"], found["version"]) == ((True, 1) if before else (False, 2))
    (detail,) = [detail for action, detail in await audited(proven) if action == "policy.roll_back"]
    assert detail["becomes"] == before
    assert detail["sentence"].startswith("Version 2: Worsens CPU per gigabit: +1")
    # an operator who puts it in force again knows what it does
    await asked(proven.node.operator, f"{path}/enable")
    assert not await settle(proven, HARM, version=2)


async def test_a_version_without_a_holdout_says_that_nothing_is_measured(proven: Proven) -> None:
    body = proven.node.body(proof={"holdout_percent": 0})
    policy = await created(proven.node, body)
    sentences = []
    for _ in range(2):
        sentences.append((await proven.node.operator.get(f"/api/v1/policies/{policy['id']}/proof")).json()["sentence"])
        await asked(proven.node.operator, f"/api/v1/policies/{policy['id']}/enable")
    assert sentences == [
        "No evidence: the policy is not enabled.",
        "No evidence: this version has no holdout, so that its effect is not measured.",
    ]


@pytest.mark.parametrize(
    ("field", "value"),
    [("holdout_percent", 21), ("block_s", 5), ("metric", "luck"), ("guardrails", ["luck"]), ("domain_percent", 0)],
)
async def test_an_invalid_field_is_named(proven: Proven, field: str, value: object) -> None:
    answer = await proven.node.operator.post("/api/v1/policies", proven.node.body(proof={field: value}))
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["field"].startswith(f"proof.{field}")
