"""Reports: reads their data, writes them as files, and manages links to them."""

import asyncio
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from types import MappingProxyType
from typing import NamedTuple
from uuid import UUID

from sqlalchemy.ext.asyncio import AsyncSession

from coresteer.audit.service import record
from coresteer.auth.secrets import new_token, token_hash
from coresteer.changes import repository as changes
from coresteer.changes import service as change_service
from coresteer.changes.schemas import Change, ChangeFilter
from coresteer.db import Database
from coresteer.errors import Conflict
from coresteer.experiments import service as experiments
from coresteer.localization.language import Language
from coresteer.nodes import service as nodes
from coresteer.nodes.tables import NodeRow
from coresteer.reports import repository
from coresteer.reports.change import WINDOW_MIN, change_report
from coresteer.reports.comparison import comparison_report
from coresteer.reports.experiment import experiment_report
from coresteer.reports.minutes import Minute, observed_minutes
from coresteer.reports.model import Origin, Report
from coresteer.reports.simulation import simulation_report
from coresteer.reports.tables import ReportShareRow
from coresteer.reports.to_csv import to_csv
from coresteer.reports.to_html import to_html
from coresteer.reports.to_json import to_json
from coresteer.reports.to_md import to_md
from coresteer.reports.to_pdf import to_pdf
from coresteer.simulation import service as simulations
from coresteer.simulation.schemas import SimulationState
from coresteer.telemetry import history
from coresteer.telemetry.history import TelemetrySource, TimeRange
from coresteer.telemetry.repository import to_unix_ms
from coresteer.telemetry.service import Ingest
from coresteer_core.changes.report import ChangeState

_WINDOW = timedelta(minutes=WINDOW_MIN)
_MINUTE = timedelta(minutes=1)
_MAX_CHANGES = 1000


class ReportFormat(StrEnum):
    """File format of a report."""

    HTML = "html"
    PDF = "pdf"
    CSV = "csv"
    JSON = "json"
    MARKDOWN = "md"


_WRITERS: Mapping[ReportFormat, Callable[[Report], bytes]] = MappingProxyType(
    {
        ReportFormat.HTML: to_html,
        ReportFormat.PDF: to_pdf,
        ReportFormat.CSV: to_csv,
        ReportFormat.JSON: to_json,
        ReportFormat.MARKDOWN: to_md,
    }
)


_executor = ThreadPoolExecutor(2, "reports")
"""Reports take up to seconds of CPU time, so at most two are written at a time, one of them by link."""


class ReportFile(NamedTuple):
    """A report as a file to download."""

    name: str
    format: ReportFormat
    content: bytes


async def experiment_file(database: Database, experiment_id: int, kind: ReportFormat, language: Language) -> ReportFile:
    """Return the report of an experiment as a file. Raises NotFound and Conflict."""
    async with database.session() as session:
        found = await experiments.get_experiment(session, experiment_id)
    return await _file(kind, lambda: experiment_report(found, language))


async def comparison_file(
    database: Database, ids: tuple[int, int], kind: ReportFormat, language: Language
) -> ReportFile:
    """Return the comparison of two experiments as a file. Raises NotFound and Conflict."""
    async with database.session() as session:
        a, b = [await experiments.get_experiment(session, experiment_id) for experiment_id in ids]
    return await _file(kind, lambda: comparison_report(a, b, language))


async def change_file(
    database: Database, ingest: Ingest, change_id: UUID, kind: ReportFormat, language: Language
) -> ReportFile:
    """Return the report of a change's effect on its node's real traffic as a file. Raises NotFound."""
    change = await change_service.get_change(database, change_id)
    before, after = await _around(database, ingest, change)
    async with database.session() as session:
        node = await nodes.find_node(session, change.node_id)
    origin = _origin(node)
    return await _file(kind, lambda: change_report(change, before, after, language, origin=origin))


async def simulation_file(database: Database, simulation_id: int, kind: ReportFormat, language: Language) -> ReportFile:
    """Return the report of a coscheduling study as a file. Raises NotFound, and Conflict while it runs."""
    async with database.session() as session:
        found = await simulations.get_simulation(session, simulation_id)
        runs = await simulations.get_runs(session, simulation_id)
    if found.state is SimulationState.RUNNING:
        raise Conflict(f"Study {simulation_id} still runs; its report is made at its end.")
    return await _file(kind, lambda: simulation_report(found, runs, language))


async def _file(kind: ReportFormat, make: Callable[[], Report]) -> ReportFile:
    """Write a report in a thread, without holding one of the few connections to the database."""

    def write() -> ReportFile:
        report = make()
        return ReportFile(f"{report.slug}-{report.language}.{kind}", kind, _WRITERS[kind](report))

    return await asyncio.get_running_loop().run_in_executor(_executor, write)


def _origin(node: NodeRow) -> Origin:
    if node.simulated:
        return "simulated-node"
    return "emulated-machine" if (node.hello or {}).get("emulated") else "measured"


async def _around(database: Database, ingest: Ingest, change: Change) -> tuple[list[Minute], list[Minute]]:
    """Return the node's whole minutes before and after a change, up to its next change or this one's rollback.

    They are stored by the node's clock and returned by the backend's.
    """
    if change.applied_at is None:
        return [], []
    async with database.session() as session:
        node = await nodes.find_node(session, change.node_id)
        skew = timedelta(milliseconds=node.clock_skew_ms or 0.0)
        applied_at = change.applied_at + skew
        applied = applied_at.replace(second=0, microsecond=0)
        created = min(applied, (change.created_at + skew).replace(second=0, microsecond=0))
        first, last = created - _WINDOW, applied + _MINUTE + _WINDOW
        inventory = nodes.reported_state(node).inventory
        near = ChangeFilter(node_id=change.node_id, from_time=first - skew, to_time=last - skew, limit=_MAX_CHANGES)
        others = await changes.newest_changes(session, near)
        interval_s = (node.hello or {}).get("interval_s", nodes.DEFAULT_INTERVAL_S)
    moments = [at + skew for row in others if str(row.id) != change.id for at in (row.created_at, row.ended_at) if at]
    if change.state is ChangeState.ROLLED_BACK and change.ended_at:
        moments.append(change.ended_at + skew)
    start = max([first, *(at for at in moments if at <= applied_at)])
    end = min([last, *(at for at in moments if at > applied_at)])
    source = TelemetrySource(database, ingest, change.node_id, interval_s)
    physical = inventory.physical_netdevs() if inventory else None

    async def minutes_of(since: datetime, until: datetime) -> list[Minute]:
        rollups = await history.read_minutes(source, TimeRange(to_unix_ms(since), to_unix_ms(until)))
        minutes = observed_minutes(rollups, physical)
        return [one._replace(start_ms=one.start_ms - round(node.clock_skew_ms or 0.0)) for one in minutes]

    return await minutes_of(start, created), await minutes_of(applied + _MINUTE, end)


async def create_link(session: AsyncSession, experiment_id: int, *, days: int, actor: str) -> tuple[str, datetime]:
    """Create a link to the experiment's report; return its token and when it expires. Raises NotFound."""
    found = await experiments.find_row(session, experiment_id)
    now = datetime.now(UTC)
    await repository.delete_expired(session, now)
    token, expires_at = new_token(), now + timedelta(days=days)
    session.add(
        ReportShareRow(
            token_hash=token_hash(token),
            experiment_id=experiment_id,
            created_at=now,
            created_by=actor,
            expires_at=expires_at,
        )
    )
    detail = {"expires_at": expires_at.isoformat()}
    target = f"experiment {experiment_id}"
    record(session, actor=actor, action="report.share", target=target, node_id=found.node_id, detail=detail)
    return token, expires_at


async def delete_links(session: AsyncSession, experiment_id: int, *, actor: str) -> None:
    """Delete all links to the experiment's report. Raises NotFound."""
    found = await experiments.find_row(session, experiment_id)
    ended = await repository.delete_links(session, experiment_id)
    target, detail = f"experiment {experiment_id}", {"links": ended}
    record(session, actor=actor, action="report.unshare", target=target, node_id=found.node_id, detail=detail)
