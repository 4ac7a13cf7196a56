"""SQL of the audit log."""

from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import Text, cast, or_, select
from sqlalchemy.ext.asyncio import AsyncSession

from coresteer.audit.tables import AuditRow


async def newest_entries(
    session: AsyncSession,
    *,
    node_id: int | None,
    actor: str | None,
    action: str | None,
    words: str | None,
    from_time: datetime | None,
    to_time: datetime | None,
    older_than: int | None,
    limit: int,
) -> Sequence[AuditRow]:
    """Return at most limit entries of the audit log, newest first, each with an id below older_than.

    action: the entry's, or the part before its point. words: part of the actor, action, target or details, in any case.
    """
    query = select(AuditRow).order_by(AuditRow.id.desc()).limit(limit)
    if node_id is not None:
        query = query.where(AuditRow.node_id == node_id)
    if actor is not None:
        query = query.where(AuditRow.actor == actor)
    if action is not None:
        query = query.where(or_(AuditRow.action == action, AuditRow.action.startswith(f"{action}.", autoescape=True)))
    if words is not None:
        columns = (AuditRow.actor, AuditRow.action, AuditRow.target, cast(AuditRow.detail, Text))
        query = query.where(or_(*(column.icontains(words, autoescape=True) for column in columns)))
    if from_time is not None:
        query = query.where(AuditRow.at >= from_time)
    if to_time is not None:
        query = query.where(AuditRow.at <= to_time)
    if older_than is not None:
        query = query.where(AuditRow.id < older_than)
    return (await session.scalars(query)).all()
