"""Application metrics: declare, list, delete and try them, and find those that an experiment or a policy uses."""

from collections.abc import Collection
from datetime import UTC, datetime, timedelta

from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncSession

from coresteer.application_metrics import repository
from coresteer.application_metrics.prometheus import PrometheusReader
from coresteer.application_metrics.reading import DeclaredMetric
from coresteer.application_metrics.schemas import ApplicationMetric, ApplicationMetricCreate, ApplicationReading
from coresteer.application_metrics.tables import ApplicationMetricRow
from coresteer.audit.service import record
from coresteer.db import Database
from coresteer.errors import Conflict, Invalid, NotFound
from coresteer.nodes import service as nodes

MAX_METRICS = 100
_TRIED = timedelta(minutes=5)


async def list_metrics(session: AsyncSession) -> list[ApplicationMetric]:
    """Return the declared metrics by name."""
    return [
        ApplicationMetric.model_validate(row, from_attributes=True) for row in await repository.list_metrics(session)
    ]


async def create(session: AsyncSession, body: ApplicationMetricCreate, *, actor: str) -> ApplicationMetric:
    """Declare a metric. Raises Invalid for a name that is or was in use, Conflict above the maximum number."""
    sentence = f"The name {body.name} is in use, or was: evidence refers to it. Choose another one."
    if await repository.by_name(session, [body.name]):
        raise Invalid(sentence, field="name")
    if len(await repository.list_metrics(session)) >= MAX_METRICS:
        raise Conflict(f"There are {MAX_METRICS} application metrics; delete one first.")
    row = ApplicationMetricRow(**body.model_dump(), created_at=datetime.now(UTC), created_by=actor)
    session.add(row)
    try:
        await session.flush()
    except IntegrityError:  # two requests at the same time
        raise Invalid(sentence, field="name") from None
    detail = {"url": body.url, "query": body.query, "floor": body.floor}
    record(session, actor=actor, action="application-metric.create", target=body.name, detail=detail)
    return ApplicationMetric.model_validate(row, from_attributes=True)


async def delete(session: AsyncSession, metric_id: int, *, actor: str) -> None:
    """Delete a metric; nothing measures it any more. Raises NotFound."""
    row = await _found(session, metric_id, lock=True)
    row.deleted_at = datetime.now(UTC)
    record(session, actor=actor, action="application-metric.delete", target=row.name)


async def read_now(database: Database, reader: PrometheusReader, metric_id: int, node_id: int) -> ApplicationReading:
    """Return a metric's value for a node in the last five minutes. Raises NotFound."""
    async with database.session() as session:
        metric = declared(await _found(session, metric_id))
        node = (await nodes.find_node(session, node_id)).name
    to_time = datetime.now(UTC)
    reading = await reader.read(metric, node, to_time - _TRIED, to_time)
    return ApplicationReading(
        value=reading.value,
        missing=reading.missing,
        reason=reading.reason,
        from_time=to_time - _TRIED,
        to_time=to_time,
    )


async def find_declared(
    session: AsyncSession, names: Collection[str], *, deleted: bool = False
) -> dict[str, DeclaredMetric]:
    """Return declared metrics by name; those that are unknown are absent. deleted: return deleted ones, too."""
    rows = await repository.by_name(session, names)
    return {name: declared(row) for name, row in rows.items() if deleted or row.deleted_at is None}


def declared(row: ApplicationMetricRow) -> DeclaredMetric:
    """Return a metric's declaration."""
    return DeclaredMetric(row.name, row.label, row.unit, row.better, row.url, row.query, row.floor)


async def _found(session: AsyncSession, metric_id: int, *, lock: bool = False) -> ApplicationMetricRow:
    row = await repository.find_metric(session, metric_id, lock=lock)
    if row is None:
        raise NotFound(f"There is no application metric {metric_id}; it may have been deleted.")
    return row
