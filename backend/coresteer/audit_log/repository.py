"""SQL of the audit log."""

from collections.abc import Sequence

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncSession

from coresteer.audit.tables import AuditRow


async def newest_entries(
    session: AsyncSession, *, node_id: int | None, actor: str | None, older_than: int | None, limit: int
) -> Sequence[AuditRow]:
    """Return at most limit entries of the audit log, newest first, each with an id below older_than."""
    query = select(AuditRow).order_by(AuditRow.id.desc()).limit(limit)
    if node_id is not None:
        query = query.where(AuditRow.node_id == node_id)
    if actor is not None:
        query = query.where(AuditRow.actor == actor)
    if older_than is not None:
        query = query.where(AuditRow.id < older_than)
    return (await session.scalars(query)).all()
