"""SQL of links to reports."""

from datetime import datetime

from sqlalchemy import delete, select
from sqlalchemy.ext.asyncio import AsyncSession

from coresteer.reports.tables import ReportShareRow


async def shared_experiment(session: AsyncSession, token_hash: bytes, now: datetime) -> int | None:
    """Return the id of the experiment that a report link leads to, None when the link does not exist or has expired."""
    query = select(ReportShareRow.experiment_id)
    query = query.where(ReportShareRow.token_hash == token_hash, ReportShareRow.expires_at > now)
    return (await session.scalars(query)).one_or_none()


async def delete_expired(session: AsyncSession, now: datetime) -> None:
    """Delete the report links that have expired."""
    await session.execute(delete(ReportShareRow).where(ReportShareRow.expires_at <= now))


async def delete_links(session: AsyncSession, experiment_id: int) -> int:
    """Delete all report links of an experiment; return their number."""
    ended = delete(ReportShareRow).where(ReportShareRow.experiment_id == experiment_id)
    return len((await session.scalars(ended.returning(ReportShareRow.experiment_id))).all())
