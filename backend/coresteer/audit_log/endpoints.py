"""The audit log over HTTP: read only."""

from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import AwareDatetime

from coresteer.audit.tables import AuditRow
from coresteer.audit_log import repository
from coresteer.audit_log.former_names import PRESENT_ACTIONS, PRESENT_RESULTS
from coresteer.audit_log.schemas import AuditEntry, AuditPage
from coresteer.auth.dependencies import Viewer
from coresteer.changes.records import utc_now
from coresteer.changes.repository import find_changes
from coresteer.changes.undone import to_schemas
from coresteer.db import Session
from coresteer.inputs import STORABLE, RowId

router = APIRouter()


@router.get("/audit")
async def list_audit(
    _: Viewer,
    session: Session,
    *,
    node_id: RowId | None = None,
    actor: Annotated[Annotated[str, STORABLE] | None, Query(max_length=100)] = None,
    action: Annotated[Annotated[str, STORABLE] | None, Query(min_length=1, max_length=100)] = None,
    text: Annotated[Annotated[str, STORABLE] | None, Query(min_length=1, max_length=200)] = None,
    from_time: AwareDatetime | None = None,
    to_time: AwareDatetime | None = None,
    older_than: Annotated[int | None, Query(ge=1, le=2**63 - 1)] = None,
    limit: Annotated[int, Query(ge=1, le=500)] = 100,
) -> AuditPage:
    """List entries of the audit log, newest first; older is the older_than of the next page.

    action: of the entries, or the part before its point. text: in their actor, action, target or details.
    """
    rows = await repository.newest_entries(
        session,
        node_id=node_id,
        actor=actor,
        action=action,
        words=text,
        from_time=from_time,
        to_time=to_time,
        older_than=older_than,
        limit=limit + 1,
    )
    entries = [_entry(row) for row in rows[:limit]]
    changes = await find_changes(session, {entry.change for entry in entries if entry.change is not None})
    return AuditPage(
        entries=entries,
        changes=await to_schemas(session, changes, utc_now()),
        older=entries[-1].id if len(rows) > limit else None,
    )


def _entry(row: AuditRow) -> AuditEntry:
    """Convert a row; former names of actions and results are replaced by the present ones."""
    entry = AuditEntry.model_validate(row, from_attributes=True)
    entry.action = PRESENT_ACTIONS.get(entry.action, entry.action)
    entry.result = PRESENT_RESULTS.get(entry.result, entry.result)
    return entry
