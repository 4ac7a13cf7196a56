"""The proof of a policy: its episodes from beginning to end, by the test's clock, and the sentences of its verdicts."""

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import msgspec
import numpy as np
import pytest
import pytest_asyncio
from sqlalchemy import select
from tests.backend.conftest import Backend
from tests.backend.policy_node import PolicyNode, asked, created, policy_node

from coresteer.application_metrics.reading import DeclaredMetric, Missing, Reading
from coresteer.audit.tables import AuditRow
from coresteer.changes.tables import ChangeRow
from coresteer.policies.schemas import PolicyBody
from coresteer.policies.tables import DecisionRow, DriftRow, PolicyRow, PolicyVersionRow, RolloutRow
from coresteer.proof import findings, repository
from coresteer.proof.context import ProofContext
from coresteer.proof.monitor import ProofMonitor
from coresteer.proof.repository import Sum, SumKey
from coresteer.proof.schedule import Design, Subject, planned
from coresteer.proof.tables import ProofBlockRow, ProofEpisodeRow, ProofVersionRow
from coresteer.telemetry import partitions
from coresteer.telemetry.repository import copy_minutes, to_unix_ms
from coresteer.telemetry.rollup import Rollup
from coresteer_core.node.rates import CPU_SHARES
from coresteer_core.policies.base import HoldoutReport, HoldoutState

CPUS = 4
BLOCK_S = 600


def minute(start_ms: int, *, busy: int, megabytes: int) -> Rollup:
    """A minute with the busy share of all CPUs in units of 0.5 %, and the megabytes received."""
    means = np.zeros((len(CPU_SHARES), CPUS), np.uint8)
    means[CPU_SHARES.index("busy")] = busy
    means[CPU_SHARES.index("softirq")] = busy // 2
    netdevs = {"eno1": [megabytes * 10**6, 0, 1000, 0, 0, 0, 0, 0]}
    amounts: dict[str, float] = {"rtt_p99_us": 200, "dropped": 0}
    return Rollup(start_ms, start_ms + 60_000, 1, 60, 60.0, CPUS, means, means, netdevs, amounts)


@dataclass
class Proven:
    """A node with a policy in force whose effect is measured, and the clock."""

    node: PolicyNode
    policy: dict[str, Any]  # Any: JSON
    monitor: ProofMonitor
    now: datetime
    in_use: set[int] = field(default_factory=set)
    published: list[int] = field(default_factory=list)

    @property
    def node_id(self) -> int:
        return self.node.agent.node_id

    @property
    def key(self) -> tuple[int, int]:
        return self.policy["id"], 1

    async def tick(self, seconds: float = 59) -> None:
        self.now += timedelta(seconds=seconds)
        await self.monitor.check(self.now)
        await self.monitor.analyse(self.now)

    async def episodes(self) -> list[ProofEpisodeRow]:
        async with self.node.backend.database.session() as session:
            query = select(ProofEpisodeRow).where(ProofEpisodeRow.policy_id == self.policy["id"])
            return list(await session.scalars(query.order_by(ProofEpisodeRow.id)))

    async def episode(self) -> ProofEpisodeRow:
        """The next episode, which has just begun."""
        await self.monitor.check(self.now)
        async with self.node.backend.database.session() as session:
            seed = (await repository.fleet(session)).seed
        design, at = Design(BLOCK_S, 0.2, 0.25), self.now
        while (episode := planned(seed, Subject(*self.key, self.node_id), design, at.timestamp())) is None or (
            episode.start_s < (self.now + timedelta(seconds=BLOCK_S)).timestamp()
        ):
            at += timedelta(seconds=design.period_s)
        self.now = datetime.fromtimestamp(episode.start_s, UTC) - timedelta(seconds=1)
        await self.tick(2)
        (row,) = await self.episodes()
        assert row.state == "running"
        return row

    async def until_waiting(self) -> None:
        """Let the blocks of the first episode go by."""
        while (await self.episodes())[0].state == "running":
            await self.tick()

    async def until_decided(self) -> ProofEpisodeRow:
        """The first episode, once it is included or excluded."""
        for _ in range(100):
            row, *_ = await self.episodes()
            if row.state in ("included", "excluded"):
                return row
            await self.tick()
        raise AssertionError("the episode still waits")

    async def add(self, *rows: object) -> None:
        async with self.node.backend.database.session() as session:
            session.add_all(rows)

    def starts(self, row: ProofEpisodeRow) -> dict[bool, datetime]:
        """When the holdout block (True) and the enforced one begin."""
        second = row.started_at + timedelta(seconds=BLOCK_S)
        return {row.holdout_first: row.started_at, not row.holdout_first: second}

    async def measure(self, row: ProofEpisodeRow, *, busy: dict[bool, int], megabytes: int = 100) -> None:
        """Store the minutes of both blocks. busy: while the policy is held out (True), and enforced."""
        rollups = []
        for holdout, start in self.starts(row).items():
            start_ms = int(to_unix_ms(start))
            rollups += [minute(start_ms + 60_000 * at, busy=busy[holdout], megabytes=megabytes) for at in range(10)]
        async with self.node.backend.database.pool.connection() as connection:
            parts = {partitions.partition_of("telemetry_minute", rollup.start_ms) for rollup in rollups}
            await partitions.create_partitions(connection, parts)
            await copy_minutes(connection, [(self.node_id, rollup) for rollup in rollups])

    async def report(self, row: ProofEpisodeRow, state: HoldoutState, at: datetime) -> None:
        """The agent reports a state of the holdout, reached two seconds after this moment."""
        holdout = HoldoutReport(state, 1, int(to_unix_ms(at)) + 2000)
        await self.add(
            DecisionRow(
                node_id=self.node_id,
                at=at + timedelta(seconds=7),
                policy_id=self.policy["id"],
                policy_name=self.policy["name"],
                version=1,
                mode="enforce",
                evaluation={},
                change_id=None,
                holdout=msgspec.to_builtins(holdout),
            )
        )

    async def switch(self, row: ProofEpisodeRow) -> None:
        """The agent reports both switches."""
        begins = self.starts(row)[True]
        await self.report(row, HoldoutState.HELD_OUT, begins)
        await self.report(row, HoldoutState.IN_FORCE, begins + timedelta(seconds=BLOCK_S))


async def nothing(*_: object) -> Reading:
    return Reading(missing=Missing.NO_DATA, reason="None is declared.")


PERIODS: list[tuple[str, datetime, datetime]] = []


async def worse_where_enforced(metric: DeclaredMetric, node: str, start: datetime, end: datetime) -> Reading:
    """A response time of 0.2 s in the first block and 0.1 s in the second, or nothing for the other metric."""
    if metric.name == "errors":
        return Reading(missing=Missing.NO_DATA, reason="Prometheus has no data for this node in the period.")
    PERIODS.append((node, start, end))
    return Reading(0.2 if len(PERIODS) % 2 else 0.1)


@pytest_asyncio.fixture
async def proven(backend: Backend, request: pytest.FixtureRequest) -> AsyncIterator[Proven]:
    """Proven: its param are further fields of the proof, and what reads application metrics."""
    empty: dict[str, Any] = {}
    more, read = getattr(request, "param", (empty, nothing))
    await backend.app.state.proof_monitor.stop()
    async with policy_node(backend) as node:
        for name in more.get("application_metrics", ()):
            metric = {"name": name, "label": "Checkout, p99", "better": "less", "url": "http://p", "query": "{{node}}"}
            await asked(await backend.client("admin"), "/api/application-metrics", metric, 201)
        body = node.body(proof={"holdout_percent": 20, "block_s": BLOCK_S, "guardrails": ["rtt_p99_us"], **more})
        policy = await created(node, body)
        await asked(node.operator, f"/api/policies/{policy['id']}/enable")
        in_use, published = set[int](), list[int]()

        async def nodes_in_use(_: object, __: object) -> set[int]:
            return in_use

        parts = replace(backend.app.state.policies, read_application_metric=read)
        context = ProofContext(parts, published.append, nodes_in_use, 1, timedelta(days=400))
        monitor = ProofMonitor(context)
        yield Proven(node, policy, monitor, datetime.now(UTC), in_use, published)
        await asked(node.operator, f"/api/policies/{policy['id']}/disable")


async def test_an_episode_is_held_out_measured_and_counted(proven: Proven) -> None:
    row = await proven.episode()
    await proven.measure(row, busy={True: 40, False: 36})
    await proven.switch(row)
    row = await proven.until_decided()
    assert (row.state, row.reason) == ("included", None)
    assert row.differences == pytest.approx({"cpu_s_per_gbit": np.log(0.9), "rtt_p99_us": 0.0})
    assert proven.published == [proven.node_id] * 2  # held out, and in force again
    async with proven.node.backend.database.session() as session:
        sums = await repository.totals(session, proven.policy["id"])
        blocks = (await session.scalars(select(ProofBlockRow).where(ProofBlockRow.episode_id == row.id))).all()
    assert sums[proven.key]["cpu_s_per_gbit"] == pytest.approx((1, np.log(0.9), np.log(0.9) ** 2))
    assert {block.holdout: round(block.figures["cpu_busy_percent"]) for block in blocks} == {True: 80, False: 72}
    assert all(block.factors["governor"] == "performance" for block in blocks)
    assert all(len(block.parts) == 10 for block in blocks)


@pytest.mark.parametrize(
    "proven", [({"application_metrics": ["checkout_p99", "errors"]}, worse_where_enforced)], indirect=True
)
async def test_an_application_metric_is_proven_in_the_same_blocks_and_a_missing_one_is_left_out(proven: Proven) -> None:
    row = await proven.episode()
    await proven.measure(row, busy={True: 40, False: 36})
    await proven.switch(row)
    row = await proven.until_decided()
    sign = 1 if not row.holdout_first else -1
    assert row.differences["app.checkout_p99"] == pytest.approx(sign * np.log(2))
    assert "app.errors" not in row.differences
    assert row.differences["cpu_s_per_gbit"] == pytest.approx(np.log(0.9))
    washout = timedelta(seconds=row.washout_s)
    assert [start for _, start, _ in PERIODS] == [start + washout for start in proven.starts(row).values()]
    proof = (await proven.node.operator.get(f"/api/policies/{proven.policy['id']}/proof")).json()
    found = {one["metric"]: one for one in proof["versions"][0]["metrics"]}
    assert (found["app.checkout_p99"]["label"], found["app.checkout_p99"]["primary"]) == ("Checkout, p99", False)
    assert found["app.checkout_p99"]["effect"]["episodes"] == 1
    assert found["app.errors"]["finding"] == "no_evidence"


async def test_a_policy_cannot_name_an_application_metric_that_is_not_declared(proven: Proven) -> None:
    body = proven.node.body(proof={"application_metrics": ["none_such"]})
    answer = await proven.node.operator.post("/api/policies", body)
    assert (answer.status_code, answer.json()["errors"][0]["field"]) == (422, "proof.application_metrics[0]")


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
    await asked(proven.node.operator, f"/api/policies/{proven.policy['id']}/disable")


async def is_paused(proven: Proven, _: ProofEpisodeRow) -> None:
    await asked(proven.node.operator, "/api/proof/pause")
    await asked(proven.node.operator, "/api/proof/resume")


async def is_left_alone_by_the_backend(proven: Proven, _: ProofEpisodeRow) -> None:
    proven.now += timedelta(seconds=61)


DISTURBANCES: dict[str, Callable[[Proven, ProofEpisodeRow], Any]] = {
    "change": is_changed_by_a_person,
    "experiment": runs_an_experiment,
    "disconnected": disconnects,
    "version": gets_no_policy,
    "paused": is_paused,
    "interrupted": is_left_alone_by_the_backend,
}


@pytest.mark.parametrize("reason", DISTURBANCES)
async def test_an_episode_does_not_count_when_the_node(proven: Proven, reason: str) -> None:
    row = await proven.episode()
    await DISTURBANCES[reason](proven, row)
    await proven.measure(row, busy={True: 40, False: 36})
    await proven.switch(row)
    row = await proven.until_decided()
    assert (row.state, row.reason) == ("excluded", reason)
    proof = (await proven.node.operator.get(f"/api/policies/{proven.policy['id']}/proof")).json()
    (version,) = proof["versions"]
    assert [(one["reason"], one["episodes"]) for one in version["excluded"]] == [(reason, 1)]
    assert version["metrics"][0]["finding"] == "no_evidence"


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


async def test_an_episode_with_little_traffic_does_not_count(proven: Proven) -> None:
    row = await proven.episode()
    await proven.measure(row, busy={True: 40, False: 36}, megabytes=1)
    await proven.switch(row)
    row = await proven.until_decided()
    assert (row.state, row.reason) == ("excluded", "little_traffic")


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
    await asked(proven.node.operator, "/api/proof/pause")
    (policy,) = await proven.node.told(proven.policy["name"])
    assert not policy.holdout
    await asked(proven.node.operator, "/api/proof/pause", status=409)
    await asked(proven.node.operator, "/api/proof/resume")


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
        await repository.add_sums(session, {SumKey(policy_id, version, "cpu_s_per_gbit", "", "", proven.now): some})
        stored = await session.get(PolicyVersionRow, (policy_id, version))
        assert stored is not None
        return await findings.update(session, row, PolicyBody.model_validate(stored.body), proven.now)


async def audited(proven: Proven) -> list[tuple[str, dict[str, Any]]]:  # Any: JSON
    async with proven.node.backend.database.session() as session:
        query = select(AuditRow).where(AuditRow.target == f"policy {proven.policy['name']}").order_by(AuditRow.id)
        return [(row.action, row.detail) for row in await session.scalars(query)]


async def test_an_effect_is_told_and_audited_once_it_is_found(proven: Proven) -> None:
    noise = np.random.default_rng(5).normal(-0.05, 0.05, 200)
    assert not await settle(proven, noise[:3].tolist())
    assert not await settle(proven, noise[3:].tolist())
    assert not await settle(proven, [-0.05])
    found = [detail for action, detail in await audited(proven) if action == "policy.find_effect"]
    assert [(one["metric"], one["finding"]) for one in found] == [("cpu_s_per_gbit", "improves")]
    proof = (await proven.node.operator.get(f"/api/policies/{proven.policy['id']}/proof")).json()
    assert proof["sentence"].startswith("Saves 5.2 % [4.2, 6.2] of CPU per gigabit")
    fleet = (await proven.node.operator.get("/api/proof")).json()
    (line,) = [one for one in fleet["policies"] if one["policy_id"] == proven.policy["id"]]
    assert (line["finding"], line["version"]) == ("improves", 1)


HARM = np.random.default_rng(6).normal(0.1, 0.05, 200).tolist()


async def test_a_harmful_version_stays_unless_the_operator_wants_it_rolled_back(proven: Proven) -> None:
    assert not await settle(proven, HARM)
    policy = (await proven.node.operator.get(f"/api/policies/{proven.policy['id']}")).json()
    assert policy["enabled"]


@pytest.mark.parametrize("before", [None, 1])
async def test_a_harmful_version_is_rolled_back_to_the_one_before_it(proven: Proven, before: int | None) -> None:
    path = f"/api/policies/{proven.policy['id']}"
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
        sentences.append((await proven.node.operator.get(f"/api/policies/{policy['id']}/proof")).json()["sentence"])
        await asked(proven.node.operator, f"/api/policies/{policy['id']}/enable")
    assert sentences == [
        "No evidence: the policy is not enabled.",
        "No evidence: this version has no holdout, so that its effect is not measured.",
    ]


@pytest.mark.parametrize(
    ("field", "value"),
    [("holdout_percent", 21), ("block_s", 5), ("metric", "luck"), ("guardrails", ["luck"]), ("domain_percent", 0)],
)
async def test_an_invalid_field_is_named(proven: Proven, field: str, value: object) -> None:
    answer = await proven.node.operator.post("/api/policies", proven.node.body(proof={field: value}))
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["field"].startswith(f"proof.{field}")
