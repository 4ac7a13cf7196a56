"""Response bodies of the audit log."""

from datetime import datetime
from typing import Any

from pydantic import BaseModel


class AuditEntry(BaseModel):
    """An entry: who did what to which target, when, with which result. Entries are never changed or removed."""

    id: int
    at: datetime
    actor: str
    action: str
    target: str
    node_id: int | None
    result: str
    detail: dict[str, Any]  # Any: each action has its own fields


class AuditPage(BaseModel):
    """Entries, newest first. older: the id to request the next page with, None on the last one."""

    entries: list[AuditEntry]
    older: int | None
