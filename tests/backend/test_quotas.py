"""What one node or user may have stored, and what becomes of what exceeds it."""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import closing
from http.client import HTTPConnection
from uuid import uuid4

import pytest
import pytest_asyncio
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from sqlalchemy import select
from tests.backend.conftest import Backend, running_backend
from tests.backend.fake_agent import FakeAgent, enrolled, now_ms, rates
from tests.support.polling import PATIENCE_S

from coresteer.audit.tables import AuditRow
from coresteer.auth.secrets import SESSION_COOKIE
from coresteer.config import Config
from coresteer.db import Database
from coresteer.gateway.reports import MAX_REPORT_BYTES
from coresteer.gateway.throttle import BURST, BURST_BYTES, BYTES_PER_S, MESSAGES_PER_S, Throttle
from coresteer.quotas import Peer, Quota, Quotas, Stored, quotas_of, stored_size
from coresteer.simulation.swf import MAX_BYTES as MAX_TRACE_BYTES
from coresteer_core.changes.report import ChangeMessage, ChangeState, Outcome, Result
from coresteer_core.policies.base import Evaluation, Mode, Skipped
from coresteer_core.protocol import MAX_FRAME_BYTES, DecisionMessage

NODE = Peer("node", 1)


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def backend(database_url: str) -> AsyncIterator[Backend]:
    """A backend that stores and acknowledges samples soon."""
    async with running_backend(database_url, chunk_seconds=1) as backend:
        yield backend


class Clock:
    """A clock that a test moves."""

    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


@given(
    st.lists(st.tuples(st.floats(0, 100), st.integers(1, 5), st.integers(0, 200)), max_size=60),
    st.floats(0, 10),
    st.floats(0, 50),
)
def test_no_more_is_admitted_than_at_once_and_the_rate_since(
    requests: list[tuple[float, int, int]], rows_per_s: float, bytes_per_s: float
) -> None:
    clock = Clock()
    quota = Quota(rows=10, bytes=300, rows_per_s=rows_per_s, bytes_per_s=bytes_per_s)
    quotas = Quotas(Database.__new__(Database), {Stored.REPORTS: quota}, clock)
    rejected = 0
    for pause_s, rows, size in requests:
        clock.now_s += pause_s
        rejected += 0 if quotas.admit(NODE, Stored.REPORTS, size, rows) else rows
    if not requests:
        return
    usage = quotas.usages()[NODE, Stored.REPORTS]
    assert usage.rows <= quota.rows + rows_per_s * clock.now_s + 1e-6
    assert usage.bytes <= quota.bytes + bytes_per_s * clock.now_s + 1e-6
    assert usage.rejected_rows == rejected


@given(st.lists(st.tuples(st.floats(0, 60), st.integers(0, MAX_FRAME_BYTES)), min_size=1, max_size=60))
def test_a_connection_is_read_no_faster_than_its_rates(frames: list[tuple[float, int]]) -> None:
    now_s = read_at_s = 0.0
    throttle = Throttle(now_s)
    read = count = 0
    for idle_s, size in frames:
        now_s = max(now_s + idle_s, read_at_s)
        read_at_s = now_s + max(0.0, throttle.pause_s(now_s, size))
        read, count = read + size, count + 1
        assert read <= BURST_BYTES + BYTES_PER_S * read_at_s + 1
        assert count <= BURST + MESSAGES_PER_S * read_at_s + 1


def test_peers_and_kinds_have_quotas_of_their_own() -> None:
    limits = dict.fromkeys(Stored, Quota(rows=1, bytes=10, rows_per_s=0, bytes_per_s=0))
    quotas = Quotas(Database.__new__(Database), limits)
    for peer in (NODE, Peer("node", 2), Peer("user", "1")):
        for stored in Stored:
            assert quotas.admit(peer, stored, 10)
            assert not quotas.admit(peer, stored, 0)
    quotas.forget(NODE)
    assert quotas.admit(NODE, Stored.REPORTS, 10)


@pytest.mark.parametrize("backends", [1, 2, 3, 16])
def test_each_of_several_backends_admits_the_largest_trace(backends: int) -> None:
    quotas = Quotas(Database.__new__(Database), quotas_of(Config()), backends=lambda: backends)
    assert quotas.admit(Peer("user", "ada"), Stored.REQUESTS, MAX_TRACE_BYTES)


def test_one_node_and_its_reports_leave_a_quarter_of_the_budget_to_the_others() -> None:
    config = Config.model_validate({"retention_bytes": 10**9, "retention_days": 10})
    limits = quotas_of(config)
    of_a_node = limits[Stored.TELEMETRY].bytes_per_s + limits[Stored.REPORTS].bytes_per_s
    assert of_a_node * 10 * 86_400 == pytest.approx(0.75e9)


@pytest.mark.parametrize(
    ("data", "least", "most"),
    [
        (os.urandom(10_000), 10_000, 10_000),
        (os.urandom(5_000).hex().encode(), 10_000, 10_000),
        (b"".join(b"cpu %d handles 71 %% of its packets. " % cpu for cpu in range(300)), 500, 6000),
        (bytes(64_000), 1000, 1000),
    ],
)
def test_the_size_of_data_is_what_the_database_can_compress_it_to(data: bytes, least: int, most: int) -> None:
    assert least <= stored_size(data) <= most


def _decision(number: int) -> DecisionMessage:
    skipped = [Skipped(f"{number} {n}", os.urandom(100).hex()) for n in range(300)]
    return DecisionMessage(now_ms(), Evaluation("1", 1, Mode.OBSERVE, f"Decision {number}.", skipped=skipped))


def _report(number: int) -> ChangeMessage:
    results = [Result(f"irq/{n}/affinity", Outcome.FAILED, os.urandom(100).hex()) for n in range(200)]
    return ChangeMessage(str(uuid4()), ChangeState.APPLYING, f"Report {number}.", results)


async def _stored(database: Database, node_id: int) -> tuple[int, int]:
    async with database.pool.connection() as connection:
        cursor = await connection.execute(
            "SELECT (SELECT count(*) FROM decision WHERE node_id = %(n)s),"
            " (SELECT count(*) FROM early_report WHERE node_id = %(n)s)",
            {"n": node_id},
        )
        row = await cursor.fetchone()
    assert row is not None
    return row[0], row[1]


async def _flood(agent: FakeAgent) -> None:
    for number in range(20):
        await agent.say(_decision(number))
        await agent.say(_report(number))


async def test_a_flood_of_decisions_and_reports_is_stored_up_to_the_quota_and_no_further(
    backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    quotas: Quotas = backend.app.state.quotas
    reports = Quota(rows=1000, bytes=300_000, rows_per_s=0, bytes_per_s=0)
    monkeypatch.setitem(quotas.limits, Stored.REPORTS, reports)
    rogue = await enrolled(backend.database, backend.url, "fills-the-disk")
    honest = await enrolled(backend.database, backend.url, "works-beside")
    async with asyncio.timeout(PATIENCE_S), rogue, honest:
        await _flood(rogue)
        await honest.say(_decision(0))
        for agent in (rogue, honest):  # everything before has been handled
            await agent.send_rates([rates(1)])
            await agent.until_acked(1)
    decisions, early = await _stored(backend.database, rogue.node_id)
    assert 0 < decisions < 20 and 0 < early < 20
    assert (await _stored(backend.database, honest.node_id))[0] == 1
    await quotas.flush()
    async with backend.database.session() as session:
        entries = (await session.scalars(select(AuditRow).where(AuditRow.action == "quota.exceed"))).all()
    assert [(entry.target, entry.node_id, entry.result) for entry in entries] == [
        ("node fills-the-disk", rogue.node_id, "refused")
    ]
    admin = await backend.client("admin")
    storage = (await admin.get("/api/v1/storage")).json()
    (exceeded,) = [each for each in storage["exceeded"] if each["id"] == str(rogue.node_id)]
    assert exceeded["quota"] == "reports" and exceeded["bytes"] <= reports.bytes
    assert exceeded["rejected_rows"] == 41 - exceeded["rows"]  # with Hello
    assert storage["used_bytes"] == sum(storage["tables"].values()) > storage["tables"]["decision"] > 0


async def test_a_report_that_is_too_large_is_refused_with_its_size(backend: Backend) -> None:
    agent = await enrolled(backend.database, backend.url, "too-large")
    decision = _decision(0)
    reasons = [Skipped(f"irq/{n}", "x" * 1000) for n in range(MAX_REPORT_BYTES // 1000)]
    async with asyncio.timeout(PATIENCE_S), agent:
        await agent.say(replace(decision, evaluation=replace(decision.evaluation, skipped=reasons)))
        code, reason = await agent.closed()
    assert code == 1009 and f"exceed the limit of {MAX_REPORT_BYTES}" in reason
    assert await _stored(backend.database, agent.node_id) == (0, 0)


async def test_a_users_requests_above_the_quota_are_refused_until_later(
    backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    quotas: Quotas = backend.app.state.quotas
    monkeypatch.setitem(quotas.limits, Stored.REQUESTS, Quota(rows=3, bytes=2000, rows_per_s=0, bytes_per_s=0))
    operator, admin = await backend.client("operator"), await backend.client("admin")
    path = f"/api/v1/nodes/{(await enrolled(backend.database, backend.url, 'labelled')).node_id}"
    answers = [await operator.patch(path, {"labels": {"rack": str(number)}}) for number in range(5)]
    assert [answer.status_code for answer in answers] == [200, 200, 200, 429, 429]
    assert answers[-1].headers["retry-after"] == "60" and "quota of requests" in answers[-1].json()["detail"]
    assert (await operator.get(path)).json()["labels"] == {"rack": "2"}
    assert (await admin.patch(path, {"labels": {"big": "x" * 50}})).status_code == 200
    too_big = await admin.request(
        "PATCH", path, data=iter([b'{"labels": {}}']), headers={"content-type": "application/json"}
    )
    assert too_big.status_code == 429  # a body in chunks counts as a large one
    await quotas.flush()
    async with backend.database.session() as session:
        entries = (await session.scalars(select(AuditRow).where(AuditRow.target == "user operator"))).all()
    assert [entry.action for entry in entries].count("quota.exceed") == 1


async def test_a_request_without_a_body_counts_no_bytes(backend: Backend) -> None:
    admin = await backend.client("admin")
    quotas: Quotas = backend.app.state.quotas
    quotas.forget(Peer("user", "admin"))
    sent = {"X-CSRF-Token": admin.session.headers["X-CSRF-Token"]}
    sent["Cookie"] = f"{SESSION_COOKIE}={admin.session.cookies[SESSION_COOKIE]}"

    def delete_as_browsers_do() -> int:
        """Without Content-Length, which requests would send."""
        with closing(HTTPConnection(backend.url.removeprefix("http://"), timeout=PATIENCE_S)) as connection:
            connection.request("DELETE", "/api/v1/nodes/999999", headers=sent)
            return connection.getresponse().status

    assert await asyncio.to_thread(delete_as_browsers_do) == 404
    usage = quotas.usages()[Peer("user", "admin"), Stored.REQUESTS]
    assert (usage.rows, usage.bytes) == (1, 0)


async def test_an_upload_counts_once(backend: Backend) -> None:
    operator = await backend.client("operator")
    quotas: Quotas = backend.app.state.quotas
    quotas.forget(Peer("user", "operator"))
    await operator.request("PUT", "/api/v1/simulation-traces/once.swf", data=b"; no jobs")
    assert quotas.usages()[Peer("user", "operator"), Stored.REQUESTS].rows == 1
