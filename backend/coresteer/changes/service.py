"""Changes as the API returns them: one by id, or a page."""

from collections.abc import Sequence
from dataclasses import replace
from uuid import UUID

from sqlalchemy.ext.asyncio import AsyncSession

from coresteer.changes import repository
from coresteer.changes.events import ChangeEvent
from coresteer.changes.records import find_change, utc_now
from coresteer.changes.schemas import Change, ChangeFilter, ChangePage
from coresteer.changes.undone import to_schemas
from coresteer.db import Database


async def get_change(database: Database, change_id: UUID) -> Change:
    """Return one change by id. Raises NotFound."""
    async with database.session() as session:
        (change,) = await to_schemas(session, [await find_change(session, change_id)], utc_now())
    return change


async def list_changes(session: AsyncSession, filters: ChangeFilter) -> ChangePage:
    """Return a page of changes, newest first; a time range includes every change that was open at some time of it."""
    rows = await repository.newest_changes(session, replace(filters, limit=filters.limit + 1))
    changes = await to_schemas(session, rows[: filters.limit], utc_now())
    return ChangePage(changes=changes, older=changes[-1].id if len(rows) > filters.limit else None)


async def events_of(database: Database, change_ids: Sequence[str]) -> list[ChangeEvent]:
    """Return the events that say what state these changes are in now."""
    async with database.session() as session:
        rows = [await repository.find_change(session, UUID(change_id)) for change_id in change_ids]
        return [
            ChangeEvent(change)
            for change in await to_schemas(session, [row for row in rows if row is not None], utc_now())
        ]
