"""Reports over HTTP: permissions, their data, and links that work without an account."""

import asyncio
import csv
import io
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from uuid import UUID, uuid4

import msgspec
import numpy as np
import pytest
import pytest_asyncio
from sqlalchemy import select, update
from tests.backend.conftest import Backend
from tests.backend.simulated_experiments import START, ab_spec, longer_coalescing, simulated
from tests.support.polling import poll_async

from coresteer.audit.tables import AuditRow
from coresteer.auth.secrets import token_hash
from coresteer.changes.tables import ChangeRow
from coresteer.db import Database
from coresteer.experiments.tables import ExperimentRow, ExperimentRunRow
from coresteer.extras import Extra
from coresteer.nodes.tables import NodeRow
from coresteer.reports.service import ReportFile, ReportFormat
from coresteer.reports.tables import ReportShareRow
from coresteer.telemetry import partitions, repository
from coresteer.telemetry.rollup import Rollup
from coresteer_core.changes.plan import Action, Plan
from coresteer_core.node.rates import CPU_SHARES

APPLIED = datetime(2026, 3, 1, 12, 0, 30, tzinfo=UTC)
CPUS = 2


@dataclass
class Stored:
    """The rows in the database."""

    node_id: int
    experiments: list[int]
    change: UUID


def parts(start: datetime, interrupts: int) -> list[Rollup]:
    """A minute that was stored in two parts, as most are."""
    return [rollup(start, interrupts // 2), rollup(start + timedelta(seconds=30), interrupts // 2)]


def rollup(start: datetime, interrupts: int) -> Rollup:
    shares = np.full((len(CPU_SHARES), CPUS), 40, np.uint8)
    return Rollup(
        start_ms=int(start.timestamp() * 1000),
        end_ms=int(start.timestamp() * 1000) + 30_000,
        first_seq=1,
        samples=30,
        duration_s=30.0,
        cpus=CPUS,
        peaks=shares,
        means=shares,
        netdevs={"eth0": [30 * 10**8, 0, 30 * 70_000, 0, 0, 0, 0, 0], "lo": [10**12] * 8},
        amounts={"interrupts": interrupts, "dropped": 0},
    )


def change_row(node: NodeRow, change_id: UUID, at: datetime) -> ChangeRow:
    return ChangeRow(
        id=change_id,
        node_id=node.id,
        plan=msgspec.to_builtins(Plan([Action("irq/41/affinity", "0", "1", "Moved.")])),
        sentence="IRQ 41 from CPU 0 to CPU 1.",
        state="confirmed",
        created_by="kim",
        reason="",
        created_at=at - timedelta(seconds=1),
        applied_at=at,
        ended_at=at + timedelta(seconds=20),
        confirm_timeout_s=120,
        guardrails=[],
        results=[],
        steps=[],
    )


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def stored(backend: Backend) -> AsyncIterator[Stored]:
    """Two experiments with the same runs, and a change with minutes around it, half of them before."""
    made = simulated(ab_spec(), effect=longer_coalescing)
    change_id = uuid4()
    async with backend.database.session() as session:
        node = NodeRow(name="lab-3", simulated=False, labels={}, created_at=START)
        session.add(node)
        await session.flush()
        rows = [
            ExperimentRow(
                node_id=node.id,
                node=node,
                spec=msgspec.to_builtins(made.spec),
                seed=made.seed,
                runs_planned=made.runs_planned,
                planned_s=600.0,
                state="done",
                sentence="Measured.",
                activity="",
                machine=made.machine,
                settings_before=made.settings.before,
                settings_after=made.settings.after,
                created_at=START + timedelta(seconds=index),
                created_by="kim",
                started_at=START,
                ended_at=made.ended_at,
            )
            for index in range(2)
        ]
        session.add_all([*rows, change_row(node, change_id, APPLIED)])
        session.add(change_row(node, uuid4(), APPLIED + timedelta(minutes=20)))
        await session.flush()
        for row in rows:
            for run in made.runs:
                session.add(
                    ExperimentRunRow(
                        experiment_id=row.id,
                        number=run.planned.number,
                        attempt=run.attempt,
                        recorded_at=START,
                        run=msgspec.to_builtins(run),
                        discarded=run.discarded,
                    )
                )
        found = Stored(node.id, [row.id for row in rows], change_id)
    first = APPLIED.replace(second=0)
    counts = {at: 1_200_000 + at % 3 * 9000 if at < 0 else 600_000 + at % 3 * 2 for at in range(-70, 60)}
    minutes = [
        (found.node_id, part) for at, count in counts.items() for part in parts(first + timedelta(minutes=at), count)
    ]
    async with backend.database.pool.connection() as connection:
        needed = {partitions.partition_of("telemetry_minute", minute.start_ms) for _, minute in minutes}
        await partitions.create_partitions(connection, needed)
        await repository.copy_minutes(connection, minutes)
    yield found


async def test_a_viewer_can_export_the_report_in_every_format(backend: Backend, stored: Stored) -> None:
    viewer = await backend.client("viewer")
    path = f"/api/v1/experiments/{stored.experiments[0]}/report"
    page = await viewer.get(path)
    assert page.status_code == 200
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    assert "default-src 'none'" in page.headers["content-security-policy"]
    assert page.headers["content-disposition"].startswith("inline")
    assert "Device interrupts: 37.8 % lower with 90 µs than with 18 µs" in page.text
    for kind, media in (
        ("pdf", "application/pdf"),
        ("csv", "text/csv; charset=utf-8"),
        ("json", "application/json"),
        ("md", "text/markdown; charset=utf-8"),
    ):
        answer = await viewer.get(f"{path}?format={kind}&language=ko")
        assert answer.headers["content-type"] == media
        name = f"experiment-{stored.experiments[0]}-ko.{kind}"
        assert answer.headers["content-disposition"] == f'attachment; filename="{name}"'
        assert answer.content == (await viewer.get(f"{path}?format={kind}&language=ko")).content


async def test_without_typst_a_report_as_pdf_says_what_to_install(
    backend: Backend, stored: Stored, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Extra, "is_installed", False)
    viewer = await backend.client("viewer")
    path = f"/api/v1/experiments/{stored.experiments[0]}/report"
    answer = await viewer.get(f"{path}?format=pdf")
    assert (answer.status_code, answer.headers["content-type"]) == (501, "application/problem+json")
    assert "pip install 'coresteer[pdf]'" in answer.json()["detail"]
    assert (await viewer.get(path)).status_code == 200


async def test_a_report_requires_signing_in(backend: Backend, stored: Stored) -> None:
    anonymous = backend.anonymous()
    for path in (
        f"/api/v1/experiments/{stored.experiments[0]}/report",
        f"/api/v1/changes/{stored.change}/report",
        f"/api/v1/reports/compare?a={stored.experiments[0]}&b={stored.experiments[1]}",
    ):
        assert (await anonymous.get(path)).status_code == 401


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/api/v1/experiments/999999/report", 404),
        ("/api/v1/experiments/1/report?format=docx", 422),
        ("/api/v1/experiments/1/report?language=tlh", 422),
        ("/api/v1/changes/00000000-0000-4000-8000-000000000000/report", 404),
        ("/api/v1/reports/compare?a=999999&b=999998", 404),
        ("/shared/wrong", 404),
    ],
)
async def test_reports_of_missing_objects_are_not_found(backend: Backend, path: str, status: int) -> None:
    viewer = await backend.client("viewer")
    answer = await viewer.get(path)
    assert (answer.status_code, answer.headers["content-type"]) == (status, "application/problem+json")


async def test_a_changes_report_compares_stored_minutes_up_to_the_next_change(backend: Backend, stored: Stored) -> None:
    viewer = await backend.client("viewer")
    page = (await viewer.get(f"/api/v1/changes/{stored.change}/report")).text
    assert "Device interrupts: 50.4 % lower after the change than before" in page
    assert "60 minutes before, 19 after" in page
    table = (await viewer.get(f"/api/v1/changes/{stored.change}/report?format=csv")).content.decode("utf-8-sig")
    rows = [row for row in csv.DictReader(io.StringIO(table)) if row["figure"] == "rx_bit_per_s"]
    assert len(rows) == 79
    assert {float(row["value"]) for row in rows} == {8e8}, "lo does not count"


async def test_a_changes_report_reads_the_minutes_of_a_node_whose_clock_is_ahead(
    backend: Backend, stored: Stored
) -> None:
    async def put_ahead(skew: timedelta, by: timedelta) -> None:
        times = {name: getattr(ChangeRow, name) - by for name in ("created_at", "applied_at", "ended_at")}
        async with backend.database.session() as session:
            (await session.get_one(NodeRow, stored.node_id)).clock_skew_ms = skew / timedelta(milliseconds=1)
            await session.execute(update(ChangeRow).where(ChangeRow.node_id == stored.node_id).values(times))

    viewer = await backend.client("viewer")
    skew = timedelta(minutes=10)
    await put_ahead(skew, skew)
    try:
        page = (await viewer.get(f"/api/v1/changes/{stored.change}/report")).text
        table = (await viewer.get(f"/api/v1/changes/{stored.change}/report?format=csv")).content.decode("utf-8-sig")
    finally:
        await put_ahead(timedelta(), -skew)
    assert "Device interrupts: 50.4 % lower after the change than before" in page
    assert "60 minutes before, 19 after" in page
    last = max(row["minute"] for row in csv.DictReader(io.StringIO(table.replace("\r", ""))))
    assert last == (APPLIED.replace(second=0) + timedelta(minutes=19) - skew).isoformat(), "by the backend's clock"


async def test_two_experiments_are_compared(backend: Backend, stored: Stored) -> None:
    viewer = await backend.client("viewer")
    a, b = stored.experiments
    page = (await viewer.get(f"/api/v1/reports/compare?a={a}&b={b}")).text
    assert "The two experiments agree on 90 µs" in page


async def test_a_link_to_a_report_works_without_signing_in_until_it_is_revoked(
    backend: Backend, stored: Stored
) -> None:
    operator, anonymous = await backend.client("operator"), backend.anonymous()
    path = f"/api/v1/experiments/{stored.experiments[0]}/share"
    shared = (await operator.post(path, {"days": 3})).json()
    assert shared["url"] == f"{backend.url}/shared/{shared['token']}"
    page = await anonymous.get(f"/shared/{shared['token']}")
    assert "Device interrupts: 37.8 % lower" in page.text
    assert page.headers["cache-control"] == "no-store"
    assert (await anonymous.get(f"/shared/{shared['token']}?format=pdf")).content.startswith(b"%PDF-")
    async with backend.database.session() as session:
        (row,) = (await session.scalars(select(ReportShareRow))).all()
        assert row.token_hash == token_hash(shared["token"])
    assert (await operator.delete(path)).status_code == 204
    assert (await anonymous.get(f"/shared/{shared['token']}")).status_code == 404
    async with backend.database.session() as session:
        query = select(AuditRow.action).where(AuditRow.action.startswith("report.")).order_by(AuditRow.id)
        assert list(await session.scalars(query)) == ["report.share", "report.unshare"]


async def test_requests_by_link_have_one_report_made_at_a_time_and_the_same_one_once(
    backend: Backend, stored: Stored, monkeypatch: pytest.MonkeyPatch
) -> None:
    operator, made, most, running = await backend.client("operator"), [], 0, 0
    wait = asyncio.Event()

    async def make(database: Database, experiment_id: int, kind: ReportFormat, language: str) -> ReportFile:
        nonlocal most, running
        running += 1
        most = max(most, running)
        made.append((experiment_id, kind))
        await wait.wait()
        running -= 1
        return ReportFile("report.md", kind, b"made")

    monkeypatch.setattr("coresteer.reports.shared.experiment_file", make)
    first, second = [
        (await operator.post(f"/api/v1/experiments/{each}/share", {})).json()["token"] for each in stored.experiments
    ]
    links = [f"{first}?format=md", f"{first}?format=md", f"{second}?format=md"]
    answers = [asyncio.create_task(backend.anonymous().get(f"/shared/{link}")) for link in links]
    await poll_async(lambda: len(backend.app.state.shared_reports._in_work) == 2)
    page = await operator.get(f"/api/v1/experiments/{stored.experiments[0]}/report?format=md")
    assert (page.status_code, len(made)) == (200, 1)
    wait.set()
    assert {(await answer).content for answer in answers} == {b"made"}
    assert most == 1
    assert sorted({each for each, _ in made}) == stored.experiments


async def test_an_expired_link_is_not_found(backend: Backend, stored: Stored) -> None:
    operator = await backend.client("operator")
    token = (await operator.post(f"/api/v1/experiments/{stored.experiments[1]}/share", {})).json()["token"]
    async with backend.database.session() as session:
        await session.execute(update(ReportShareRow).values(expires_at=START))
    assert (await backend.anonymous().get(f"/shared/{token}")).status_code == 404


async def test_a_viewer_cannot_share(backend: Backend, stored: Stored) -> None:
    viewer = await backend.client("viewer")
    path = f"/api/v1/experiments/{stored.experiments[0]}/share"
    assert (await viewer.post(path, {})).status_code == 403
    assert (await viewer.delete(path)).status_code == 403
