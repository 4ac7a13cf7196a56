"""Response bodies of the audit log."""

from datetime import datetime
from typing import Annotated, Any, get_args
from uuid import UUID

from pydantic import BaseModel, Field, computed_field

from coresteer.audit.actions import Action
from coresteer.changes.records import change_of_target
from coresteer.changes.schemas import Change


class AuditEntry(BaseModel):
    """An entry of the audit log: who did what to which target, when, with which result; never changed or removed."""

    id: int
    at: datetime
    actor: str
    action: Annotated[str, Field(json_schema_extra={"enum": list(get_args(Action))})]
    target: str
    node_id: int | None
    result: str
    detail: dict[str, Any]  # Any: each action has its own fields

    @computed_field  # type: ignore[prop-decorator]  # mypy allows none above @property, pydantic needs it
    @property
    def change(self) -> UUID | None:
        """The change that the entry is about."""
        return change_of_target(self.target)


class AuditPage(BaseModel):
    """A page of the audit log, newest entries first.

    older: the id to request the next page with, None on the last one. changes: those that the entries are about, with
    their present state.
    """

    entries: list[AuditEntry]
    changes: list[Change]
    older: int | None
