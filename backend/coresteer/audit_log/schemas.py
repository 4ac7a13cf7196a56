"""What the API says about the audit log."""

from datetime import datetime
from typing import Any

from pydantic import BaseModel


class AuditEntry(BaseModel):
    """Who did what, when, on what, with which result. Entries are never changed or removed."""

    id: int
    at: datetime
    actor: str
    action: str
    target: str
    node_id: int | None
    result: str
    detail: dict[str, Any]  # Any: each action tells what it has to tell


class AuditPage(BaseModel):
    """Newest first; older: the id to ask for the next page with, None at the end."""

    entries: list[AuditEntry]
    older: int | None
