"""Application metrics in the proof of a policy."""

from collections.abc import AsyncIterator
from datetime import datetime, timedelta

import numpy as np
import pytest
import pytest_asyncio
from sqlalchemy import select, text
from tests.backend.conftest import Backend
from tests.backend.proven import Proven, nothing, proven_policy

from coresteer.application_metrics.reading import DeclaredMetric, Missing, Reading
from coresteer.db import Database
from coresteer.proof.tables import ProofBlockRow


@pytest_asyncio.fixture
async def proven(backend: Backend, request: pytest.FixtureRequest) -> AsyncIterator[Proven]:
    """Its param: further fields of the proof, and what reads application metrics."""
    more, read = getattr(request, "param", ({}, nothing))
    async with proven_policy(backend, more, read) as proven:
        yield proven


PERIODS: list[tuple[str, datetime, datetime]] = []


async def worse_where_enforced(metric: DeclaredMetric, node: str, start: datetime, end: datetime) -> Reading:
    """A response time of 0.2 s in the first block and 0.1 s in the second, or nothing for the other metric."""
    if metric.name == "errors":
        return Reading(missing=Missing.NO_DATA, reason="Prometheus has no data for this node in the period.")
    PERIODS.append((node, start, end))
    return Reading(0.2 if len(PERIODS) % 2 else 0.1)


@pytest.mark.parametrize(
    "proven", [({"application_metrics": ["checkout_p99", "errors"]}, worse_where_enforced)], indirect=True
)
async def test_an_application_metric_is_proven_in_the_same_blocks_and_a_missing_one_is_left_out(proven: Proven) -> None:
    PERIODS.clear()
    row = await proven.compared()
    sign = 1 if not row.holdout_first else -1
    assert row.differences["app.checkout_p99"] == pytest.approx(sign * np.log(2))
    assert "app.errors" not in row.differences
    assert row.differences["cpu_s_per_gbit"] == pytest.approx(np.log(0.9))
    washout = timedelta(seconds=row.washout_s)
    assert [start for _, start, _ in PERIODS[-2:]] == [start + washout for start in proven.starts(row).values()]
    proof = (await proven.node.operator.get(f"/api/v1/policies/{proven.policy['id']}/proof")).json()
    found = {one["metric"]: one for one in proof["versions"][0]["metrics"]}
    assert (found["app.checkout_p99"]["label"], found["app.checkout_p99"]["primary"]) == ("Checkout, p99", False)
    assert found["app.checkout_p99"]["effect"]["episodes"] == 1
    assert found["app.errors"]["finding"] == "no_evidence"


async def no_errors_in_the_second_block(metric: DeclaredMetric, node: str, start: datetime, end: datetime) -> Reading:
    """0.1 errors a second in the first block, and none in the second one."""
    PERIODS.append((node, start, end))
    return Reading(0.1 if len(PERIODS) == 1 else 0.0)


@pytest.mark.parametrize(
    "proven", [({"application_metrics": ["no_errors"]}, no_errors_in_the_second_block)], indirect=True
)
async def test_an_application_metric_of_0_counts_with_its_floor(proven: Proven) -> None:
    PERIODS.clear()
    row = await proven.compared()
    sign = 1 if not row.holdout_first else -1
    assert row.differences["app.no_errors"] == pytest.approx(sign * np.log(0.1 / 0.001))
    async with proven.node.backend.database.session() as session:
        blocks = (await session.scalars(select(ProofBlockRow).where(ProofBlockRow.episode_id == row.id))).all()
    assert sorted(block.figures["app.no_errors"] for block in blocks) == [0.0, 0.1]  # a floor is not a figure


UNTIL_ASKED_AGAIN: list[int] = []


async def answers_the_second_time(metric: DeclaredMetric, node: str, start: datetime, end: datetime) -> Reading:
    """A value of 0.2 in the first block and 0.1 in the second, once Prometheus has scraped them."""
    UNTIL_ASKED_AGAIN.append(1)
    if len(UNTIL_ASKED_AGAIN) <= 2:
        return Reading(missing=Missing.NO_DATA, reason="Prometheus has no data for this node in the period.")
    return Reading(0.2 if len(UNTIL_ASKED_AGAIN) == 3 else 0.1)


@pytest.mark.parametrize("proven", [({"metric": "app.cart_p99"}, answers_the_second_time)], indirect=True)
async def test_an_application_metric_is_the_primary_one_of_a_proof(proven: Proven) -> None:
    UNTIL_ASKED_AGAIN.clear()
    row = await proven.compared()
    assert row.state == "included"
    sign = 1 if not row.holdout_first else -1
    assert row.differences == pytest.approx({"app.cart_p99": sign * np.log(2), "rtt_p99_us": 0.0})
    version = await proven.version()
    assert [(one["metric"], one["primary"]) for one in version["metrics"]] == [
        ("app.cart_p99", True),
        ("rtt_p99_us", False),
    ]
    assert version["sentence"].startswith("No effect on checkout, p99 detected yet on 1 node since ")
    (line,) = [
        one for one in (await proven.get("/api/v1/proof"))["policies"] if one["policy_id"] == proven.policy["id"]
    ]
    assert (line["metric"], line["cores"], line["effect"]["episodes"]) == ("app.cart_p99", None, 1)


async def waits_for_almost_an_hour(proven: Proven) -> None:
    row = await proven.episode()
    await proven.measure(row, busy={True: 40, False: 36})
    await proven.switch(row)
    await proven.until_waiting()
    await proven.tick(3500)
    assert (await proven.episodes())[0].state == "waiting"


@pytest.mark.parametrize("proven", [({"metric": "app.search_p99"}, nothing)], indirect=True)
async def test_an_episode_without_its_primary_application_metric_does_not_count(proven: Proven) -> None:
    await waits_for_almost_an_hour(proven)
    await proven.tick(200)
    row, *_ = await proven.episodes()
    assert (row.state, row.reason, row.block) == ("excluded", "missing_data", None)


@pytest.mark.parametrize("proven", [({"application_metrics": ["late_p99"]}, answers_the_second_time)], indirect=True)
async def test_a_guardrail_that_prometheus_does_not_have_yet_is_waited_for(proven: Proven) -> None:
    UNTIL_ASKED_AGAIN.clear()
    row = await proven.compared()
    assert row.state == "included"
    assert row.differences["app.late_p99"] == pytest.approx((1 if not row.holdout_first else -1) * np.log(2))
    assert (await proven.version())["metrics"][2][
        "sentence"
    ] == "No effect on checkout, p99 detected yet; too few blocks for an interval."


async def no_answer_in_the_first_block(metric: DeclaredMetric, node: str, start: datetime, end: datetime) -> Reading:
    """Nothing in the first block, as while the application is down, and 0.1 s in the second one."""
    PERIODS.append((node, start, end))
    return Reading(missing=Missing.NO_DATA, reason="None.") if len(PERIODS) % 2 else Reading(0.1)


@pytest.mark.parametrize(
    "proven", [({"application_metrics": ["login_p99"]}, no_answer_in_the_first_block)], indirect=True
)
async def test_the_block_in_which_episodes_lack_a_guardrail_is_told(proven: Proven) -> None:
    PERIODS.clear()
    row = await proven.compared()
    assert row.state == "included"
    assert "app.login_p99" not in row.differences
    assert len(PERIODS) < 40  # it is asked for ever more rarely
    found = {one["metric"]: one["sentence"] for one in (await proven.version())["metrics"]}
    enforced, holdout = int(not row.holdout_first), int(row.holdout_first)
    lacking = f"{enforced} of 1 episodes lack it in the enforced block only, {holdout} in the holdout block only."
    assert found["app.login_p99"] == f"No evidence yet. {lacking}"
    assert "lack" not in "".join(one for metric, one in found.items() if metric != "app.login_p99")


async def no_number(metric: DeclaredMetric, node: str, start: datetime, end: datetime) -> Reading:
    return Reading(np.inf)


@pytest.mark.parametrize("proven", [({"application_metrics": ["wrong_p99"]}, no_number)], indirect=True)
async def test_an_episode_that_cannot_be_stored_is_tried_for_an_hour(proven: Proven) -> None:
    await waits_for_almost_an_hour(proven)
    row = await proven.until_decided()
    assert (row.state, row.reason, row.block) == ("excluded", "failed", None)


DATABASES: list[Database] = []


async def while_another_backend_decides(metric: DeclaredMetric, node: str, start: datetime, end: datetime) -> Reading:
    """0.1 s; meanwhile another backend leaves the episode out, unless it is locked."""
    async with DATABASES[0].session() as session:
        await session.execute(
            text("""
                UPDATE proof_episode SET state = 'excluded', reason = 'paused' WHERE id IN (
                    SELECT e.id FROM proof_episode e JOIN proof_version USING (policy_id, version)
                    WHERE state = 'waiting' FOR UPDATE SKIP LOCKED
                )
            """)
        )
    return Reading(0.1)


@pytest.mark.parametrize("proven", [({"metric": "app.order_p99"}, while_another_backend_decides)], indirect=True)
async def test_nothing_is_locked_while_prometheus_is_asked_and_what_is_decided_meanwhile_stays(proven: Proven) -> None:
    DATABASES[:] = [proven.node.backend.database]
    row = await proven.compared()
    assert (row.state, row.reason, row.differences) == ("excluded", "paused", {})
    await proven.tick()
    assert (await proven.version())["episodes"] == 0


async def test_a_policy_cannot_name_an_application_metric_that_is_not_declared(proven: Proven) -> None:
    body = proven.node.body(proof={"application_metrics": ["none_such"]})
    answer = await proven.node.operator.post("/api/v1/policies", body)
    assert (answer.status_code, answer.json()["errors"][0]["field"]) == (422, "proof.application_metrics[0]")
    answer = await proven.node.operator.post("/api/v1/policies", proven.node.body(proof={"metric": "app.none_such"}))
    assert (answer.status_code, answer.json()["errors"][0]["field"]) == (422, "proof.metric")
