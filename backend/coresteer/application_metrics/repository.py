"""SQL of application metrics."""

from collections.abc import Collection, Sequence

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncSession

from coresteer.application_metrics.tables import ApplicationMetricRow


async def list_metrics(session: AsyncSession) -> Sequence[ApplicationMetricRow]:
    """Return the metrics that are not deleted, by name."""
    rows = select(ApplicationMetricRow).where(ApplicationMetricRow.deleted_at.is_(None))
    return (await session.scalars(rows.order_by(ApplicationMetricRow.name))).all()


async def find_metric(session: AsyncSession, metric_id: int, *, lock: bool = False) -> ApplicationMetricRow | None:
    """Return a metric that is not deleted. lock: until the end of the transaction."""
    row = await session.get(ApplicationMetricRow, metric_id, with_for_update=lock)
    return None if row is None or row.deleted_at is not None else row


async def by_name(session: AsyncSession, names: Collection[str]) -> dict[str, ApplicationMetricRow]:
    """Return metrics by name, deleted ones too."""
    if not names:
        return {}
    rows = await session.scalars(select(ApplicationMetricRow).where(ApplicationMetricRow.name.in_(names)))
    return {row.name: row for row in rows}
