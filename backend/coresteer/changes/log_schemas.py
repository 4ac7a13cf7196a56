"""Query parameters and response bodies of the log of changes."""

from dataclasses import dataclass
from datetime import datetime
from typing import Annotated

from fastapi import Query
from pydantic import AwareDatetime, BaseModel

from coresteer.changes.schemas import Change, ChangeStatus, Origin
from coresteer.inputs import STORABLE, RowId

SearchText = Annotated[Annotated[str, STORABLE] | None, Query(min_length=1, max_length=200)]


@dataclass(frozen=True)
class LogFilter:
    """Query parameters that select changes; None selects any.

    from_time, to_time: when the changes were made. by: an author, as in created_by.
    setting: a setting's key, in which * stands for any text. text: part of the sentence, the author, the reason or the
    node's name, in any case. grouped: changes of policies and experiments are one entry for each hour.
    """

    node_id: RowId | None = None
    by: SearchText = None
    origin: Origin | None = None
    setting: SearchText = None
    state: ChangeStatus | None = None
    text: SearchText = None
    from_time: AwareDatetime | None = None
    to_time: AwareDatetime | None = None
    grouped: bool = True


class LogEntry(BaseModel):
    """An entry of the log: one change, or those of one policy or experiment in one hour.

    change: the newest of them. hour: when the hour of a group began, None for a single change. statuses: how many of
    the changes have which status.
    """

    change: Change
    hour: datetime | None
    changes: int
    nodes: int
    statuses: dict[ChangeStatus, int]


class LogPage(BaseModel):
    """A page of the log, newest first. older: the older_than of the next page, None on the last one.

    people, policies, experiments: how many changes of each match the filters, on all pages.
    """

    entries: list[LogEntry]
    older: str | None
    people: int
    policies: int
    experiments: int


class EarlierValue(BaseModel):
    """A value that changes wrote to a setting: when last and by whom; both None for what the first change found."""

    value: str
    at: datetime | None
    by: str | None
    policy_id: int | None


class WrittenSetting(BaseModel):
    """A setting of a node that changes on record wrote. values: newest first; the last one is the value as found."""

    key: str
    values: list[EarlierValue]
