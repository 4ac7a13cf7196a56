"""Response bodies of the audit log."""

from datetime import datetime
from typing import Any

from pydantic import BaseModel


class AuditEntry(BaseModel):
    """An entry of the audit log: who did what to which target, when, with which result; never changed or removed."""

    id: int
    at: datetime
    actor: str
    action: str
    target: str
    node_id: int | None
    result: str
    detail: dict[str, Any]  # Any: each action has its own fields


class AuditPage(BaseModel):
    """A page of the audit log, newest entries first.

    older: the id to request the next page with, None on the last one.
    """

    entries: list[AuditEntry]
    older: int | None
