"""Request and response bodies of change windows."""

from datetime import datetime
from typing import Annotated

from pydantic import AfterValidator, BaseModel, Field

from coresteer.inputs import STORABLE, RequestBody, TextPattern, validation_error
from coresteer.policies.schemas import Glob
from coresteer.policies.windows import zone

ClockTime = Annotated[str, Field(max_length=5), TextPattern("([01][0-9]|2[0-3]):[0-5][0-9]", "Write a time as 22:00.")]


def _known(name: str) -> str:
    if zone(name) is None:
        raise validation_error("There is no such time zone; write an IANA name such as Europe/Berlin, or UTC.")
    return name


class ChangeWindowBody(RequestBody):
    """A change window: a time of the week at which policies may write on the nodes of labels.

    labels: with shell patterns; empty for every node. zone: IANA name. weekdays: on which it begins, 0 is Monday.
    end: on the next day if it is not after start; 24 hours if they are equal.
    """

    name: Annotated[str, Field(min_length=1, max_length=100), STORABLE]
    labels: Annotated[
        dict[Annotated[str, Field(min_length=1, max_length=63), STORABLE], Glob], Field(max_length=32)
    ] = Field(default={})
    zone: Annotated[str, Field(min_length=1, max_length=64), STORABLE, AfterValidator(_known)]
    weekdays: Annotated[list[Annotated[int, Field(ge=0, le=6)]], Field(min_length=1, max_length=7)]
    start: ClockTime
    end: ClockTime


class ChangeWindow(BaseModel):
    """A change window. open: now. changes_at: when it closes or opens next. nodes: how many its labels select.

    held: on how many of these policies may not write now, because no window of theirs is open.
    """

    id: int
    name: str
    labels: dict[str, str]
    zone: str
    weekdays: list[int]
    start: str
    end: str
    open: bool
    changes_at: datetime | None
    nodes: int
    held: int
    created_at: datetime
    created_by: str
