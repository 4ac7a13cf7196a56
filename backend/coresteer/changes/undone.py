"""Which confirmed changes a later change undid: SQL, and changes for the API with the answer."""

from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

from sqlalchemy import ColumnElement, and_, case, exists, func, or_, select
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import aliased

from coresteer.changes.schemas import Change, ChangeStatus, Undone
from coresteer.changes.serialize import to_schema
from coresteer.changes.tables import ChangeRow
from coresteer_core.changes.report import ChangeState

_UNDO, _REDO = aliased(ChangeRow), aliased(ChangeRow)
_ACTION = func.jsonb_array_elements(ChangeRow.plan["actions"]).table_valued("value")
_KEY = func.jsonb_build_object("key", func.jsonb_extract_path(_ACTION.c.value, "key"))
_HAS_OTHER_SETTINGS = select(_ACTION).where(~_UNDO.plan["actions"].contains(func.jsonb_build_array(_KEY))).exists()
_IS_RESTORED_BY = and_(
    _UNDO.restores,
    _UNDO.node_id == ChangeRow.node_id,
    _UNDO.created_at > ChangeRow.created_at,
    or_(_UNDO.policy_id.is_(None), _UNDO.policy_id == ChangeRow.policy_id),
    ~ChangeRow.restores,
    ~_HAS_OTHER_SETTINGS,
)
_IS_REDONE = exists().where(_REDO.undoes == _UNDO.id, _REDO.state == ChangeState.CONFIRMED)
_UNDID = and_(_UNDO.state == ChangeState.CONFIRMED, ~_IS_REDONE)
"""Confirmed changes that undid another and were not undone themselves."""
_IS_CONFIRMED = ChangeRow.state == ChangeState.CONFIRMED
_IS_UNDONE_LATER = or_(
    exists().where(_UNDO.undoes == ChangeRow.id, _UNDID), exists().where(_IS_RESTORED_BY, _UNDID)
)  # apart: each uses an index

STATUS = case((~_IS_CONFIRMED, ChangeRow.state), (_IS_UNDONE_LATER, ChangeStatus.UNDONE), else_=ChangeStatus.CONFIRMED)
"""The ChangeStatus of a change."""


def has_status(status: ChangeStatus) -> ColumnElement[bool]:
    """Return the condition that a change has this status; a simple one where it needs no other change."""
    if status is ChangeStatus.UNDONE:
        return and_(_IS_CONFIRMED, _IS_UNDONE_LATER)
    if status is ChangeStatus.CONFIRMED:
        return and_(_IS_CONFIRMED, ~_IS_UNDONE_LATER)
    return ChangeRow.state == status


async def undone(session: AsyncSession, change_ids: Sequence[UUID]) -> dict[UUID, Undone]:
    """Return which change undid each, by the id of the one undone; those still in force are omitted."""
    found: list[tuple[UUID, ChangeRow]] = []
    for undid in (_UNDO.undoes == ChangeRow.id, _IS_RESTORED_BY):
        query = select(ChangeRow.id, _UNDO).join(_UNDO, undid)
        query = query.where(ChangeRow.id.in_(change_ids), _UNDID, _IS_CONFIRMED)
        found += [(row[0], row[1]) for row in await session.execute(query)]
    first = dict(sorted(found, key=lambda pair: pair[1].created_at, reverse=True))  # the first of several
    return {change_id: Undone(change=str(by.id), by=by.created_by, at=by.created_at) for change_id, by in first.items()}


async def to_schemas(session: AsyncSession, rows: Sequence[ChangeRow], now: datetime) -> list[Change]:
    """Convert rows of changes for the API, in order."""
    by = await undone(session, [row.id for row in rows])
    return [to_schema(row, now, by.get(row.id)) for row in rows]
