"""Request and response bodies of stops of enforcement."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Annotated

from pydantic import AwareDatetime, BaseModel, Field

from coresteer.changes.log_schemas import SearchText
from coresteer.changes.schemas import Reason
from coresteer.inputs import STORABLE, RequestBody, RowId
from coresteer.policies.schemas import Glob

Labels = Annotated[
    dict[Annotated[str, Field(min_length=1, max_length=63), STORABLE], Glob],
    Field(max_length=32, description="Labels of the nodes, with shell patterns; empty selects every node."),
]


class StopScope(RequestBody):
    """The nodes of a stop."""

    labels: Labels = Field(default={})


class StopCreate(StopScope):
    """A stop to begin.

    restore: every setting gets the value that Coresteer found, also one that a person has set; otherwise settings keep
    their values.
    """

    restore: bool = False
    reason: Reason = ""


class Reach(BaseModel):
    """Some nodes. settings: of theirs that Coresteer has changed; uncounted: nodes where this is unknown."""

    nodes: int
    settings: int
    uncounted: int


class StoppedPolicy(BaseModel):
    """A policy that writes on nodes unless enforcement is stopped. nodes: on how many of a stop's it is enforced."""

    id: int
    name: str
    nodes: int


class StopEffect(BaseModel):
    """What a stop of enforcement reaches now.

    rollouts: names of the policies whose rollout is held. experiments: number of those that a new stop cancels.
    """

    connected: Reach
    disconnected: Reach
    policies: list[StoppedPolicy]
    rollouts: list[str]
    experiments: int


class Stop(BaseModel):
    """A stop of enforcement in force.

    effect: what it reaches now. obeyed: nodes whose agents have reported that they obey. within_s: how long the slowest
    of those that were connected at the beginning took; None while no such node has answered. unanswered: connected
    nodes whose agents have not reported it. stuck: settings that could not be restored.
    """

    id: int
    labels: dict[str, str]
    restore: bool
    reason: str
    created_at: datetime
    created_by: str
    effect: StopEffect
    obeyed: int
    within_s: float | None
    unanswered: int
    waiting: int
    stuck: int


class StopAction(StrEnum):
    """What a person did to a stop: began it, had every setting restored, or lifted it."""

    STOP = "stop"
    RESTORE = "restore"
    LIFT = "lift"


@dataclass(frozen=True)
class StopLogFilter:
    """Query parameters that select events of stops; None selects any.

    node_id: a node that the stop's labels select now. by: a user's name. text: part of the event's words, its author,
    the labels or the reason, in any case.
    """

    node_id: RowId | None = None
    by: SearchText = None
    text: SearchText = None
    from_time: AwareDatetime | None = None
    to_time: AwareDatetime | None = None


class StopEvent(BaseModel):
    """The beginning or the lifting of a stop. nodes, settings: that the stop reached when it began, None if unknown.

    in_force: whether the stop is in force now.
    """

    stop: int
    action: StopAction
    at: datetime
    by: str
    labels: dict[str, str]
    reason: str
    nodes: int | None
    settings: int | None
    in_force: bool
