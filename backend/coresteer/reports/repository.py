"""Reads and keeps links to reports."""

from datetime import datetime

from sqlalchemy import delete, select
from sqlalchemy.ext.asyncio import AsyncSession

from coresteer.reports.tables import ReportShareRow


async def shared(session: AsyncSession, token_hash: bytes, now: datetime) -> int | None:
    """The experiment that a link shows, None when there is no such link any more."""
    query = select(ReportShareRow.experiment_id)
    query = query.where(ReportShareRow.token_hash == token_hash, ReportShareRow.expires_at > now)
    return (await session.scalars(query)).one_or_none()


async def forget_expired(session: AsyncSession, now: datetime) -> None:
    """Keep no links that work no more."""
    await session.execute(delete(ReportShareRow).where(ReportShareRow.expires_at <= now))


async def unshare(session: AsyncSession, experiment_id: int) -> int:
    """End all links of an experiment; how many there were."""
    ended = delete(ReportShareRow).where(ReportShareRow.experiment_id == experiment_id)
    return len((await session.scalars(ended.returning(ReportShareRow.experiment_id))).all())
