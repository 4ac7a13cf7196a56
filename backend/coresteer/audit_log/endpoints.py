"""The audit log over HTTP: read only."""

from typing import Annotated

from fastapi import APIRouter, Query

from coresteer.audit.tables import AuditRow
from coresteer.audit_log import repository
from coresteer.audit_log.former_names import PRESENT_ACTIONS, PRESENT_RESULTS
from coresteer.audit_log.schemas import AuditEntry, AuditPage
from coresteer.auth.dependencies import Viewer
from coresteer.db import Session
from coresteer.inputs import STORABLE, RowId

router = APIRouter(tags=["audit"])


@router.get("/api/audit")
async def list_audit(
    _: Viewer,
    session: Session,
    node_id: RowId | None = None,
    actor: Annotated[Annotated[str, STORABLE] | None, Query(max_length=100)] = None,
    older_than: Annotated[int | None, Query(ge=1, le=2**63 - 1)] = None,
    limit: Annotated[int, Query(ge=1, le=500)] = 100,
) -> AuditPage:
    """List entries of the audit log, newest first; older is the older_than of the next page."""
    rows = await repository.newest_entries(
        session, node_id=node_id, actor=actor, older_than=older_than, limit=limit + 1
    )
    entries = [_entry(row) for row in rows[:limit]]
    return AuditPage(entries=entries, older=entries[-1].id if len(rows) > limit else None)


def _entry(row: AuditRow) -> AuditEntry:
    """Convert a row; former names of actions and results are replaced by the present ones."""
    entry = AuditEntry.model_validate(row, from_attributes=True)
    entry.action = PRESENT_ACTIONS.get(entry.action, entry.action)
    entry.result = PRESENT_RESULTS.get(entry.result, entry.result)
    return entry
