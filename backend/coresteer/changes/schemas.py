"""Request and response bodies of previews and changes."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Literal, TypeAlias
from uuid import UUID

from fastapi import Query
from pydantic import AwareDatetime, BaseModel, Field

from coresteer.changes.observation import Observation
from coresteer.inputs import STORABLE, RequestBody, RowId
from coresteer.structs import AsStruct, FormField
from coresteer_core.bounds import MAX_CONFIRM_TIMEOUT_S, MIN_CONFIRM_TIMEOUT_S
from coresteer_core.changes.guard import MAX_PLAN_ACTIONS, PlanWarning, Refusal
from coresteer_core.changes.guardrail import VIOLATION_PERIOD
from coresteer_core.changes.plan import Action, Plan
from coresteer_core.changes.report import ChangeState, EndedBy, Result
from coresteer_core.metrics import GUARDRAIL_METRICS
from coresteer_core.policies.suggest import Suggestions
from coresteer_core.schema import labelled

SettingKey = Annotated[str, Field(min_length=1, max_length=200), STORABLE]
SettingValue = Annotated[str, Field(max_length=4096), STORABLE]
Reason = Annotated[str, Field(max_length=500), STORABLE]
if TYPE_CHECKING:
    GuardrailMetric: TypeAlias = str
else:
    GuardrailMetric = Literal[tuple(GUARDRAIL_METRICS)]  # which a type checker cannot follow
ConfirmTimeoutS = Annotated[float, Field(ge=MIN_CONFIRM_TIMEOUT_S, le=MAX_CONFIRM_TIMEOUT_S)]


class DesiredValueIn(RequestBody):
    """A setting and its desired value, for example irq/41/affinity and 2-3."""

    key: SettingKey
    value: SettingValue


class PreviewRequest(RequestBody):
    """Desired values to preview. allow_isolated: the plan may use isolated CPUs."""

    desired: list[DesiredValueIn] = Field(min_length=1, max_length=MAX_PLAN_ACTIONS)
    allow_isolated: bool = False


class PreviewResponse(BaseModel):
    """A plan and its expected effect. blocked_because: why it cannot be applied, None when can_apply is true.

    expected: effects as ranges, one sentence each, from the node's last minute; empty without samples of it.
    """

    plan: Annotated[Plan, AsStruct()]
    sentence: str
    commands: list[str]
    expected: list[str]
    warnings: list[Annotated[PlanWarning, AsStruct()]]
    refused: list[Annotated[Refusal, AsStruct()]]
    can_apply: bool
    blocked_because: str | None


class NodeSuggestions(BaseModel):
    """Suggested moves for the hot CPUs of a node. exclude: CPUs off limits, for a policy that does the same.

    measuring_s: seconds left until enough of the load after the node's last change is known; until then there are no
    suggestions, and the sentence says so.
    """

    suggestions: Annotated[Suggestions, AsStruct()]
    exclude: str
    measuring_s: int = 0


MAX_SUGGESTED_NODES = 8
"""Maximum number of nodes of one request for suggestions."""


class FleetSuggestion(BaseModel):
    """What would help a node's hottest CPU most. helps: whether the sentence is a move, or why there is none."""

    node_id: int
    cpu: int
    cause: str
    sentence: str
    helps: bool


class GuardrailIn(RequestBody):
    """A bound on a metric; a violation rolls the change back."""

    metric: Annotated[
        GuardrailMetric,
        FormField(labelled("Metric", options=GUARDRAIL_METRICS)),
    ]
    max: Annotated[float, Field(ge=0, le=1e9, description=f"Violated when the metric exceeds it {VIOLATION_PERIOD}.")]


class ActionIn(RequestBody):
    """One action of a plan: a setting, its present value (was), its new one (becomes), and the reason."""

    key: SettingKey
    was: SettingValue
    becomes: SettingValue
    reason: Reason


class PlanIn(RequestBody):
    """A plan as a preview returned it: actions in order."""

    actions: list[ActionIn] = Field(min_length=1, max_length=MAX_PLAN_ACTIONS)
    allow_isolated: bool = False

    def to_plan(self) -> Plan:
        """Convert to coresteer_core's Plan."""
        return Plan([Action(a.key, a.was, a.becomes, a.reason) for a in self.actions], self.allow_isolated)


class ChangeRequest(RequestBody):
    """A plan to apply, as its preview returned it; it is refused if a setting has changed since.

    undoes: the earlier change of the node that this one undoes. restores: the values are those found before the first
    change on record, so that it undoes every earlier change of its settings.
    """

    plan: PlanIn
    confirm_timeout_s: ConfirmTimeoutS = 120
    guardrails: list[GuardrailIn] = Field(default=[], max_length=3)
    reason: Reason = ""
    undoes: UUID | None = None
    restores: bool = False


class ExtendRequest(RequestBody):
    """Seconds to add to the confirmation timeout of a change; at most 600 s from now in total."""

    seconds: Annotated[float, Field(ge=10, le=MAX_CONFIRM_TIMEOUT_S)] = 120


class ChangeStep(BaseModel):
    """One step in the history of a change."""

    at: datetime
    state: ChangeState
    sentence: str


class Undone(BaseModel):
    """The confirmed change that undid another: its id, and who made it when."""

    change: str
    by: str
    at: datetime


class ChangeStatus(StrEnum):
    """What became of a change: its state, or undone if it was confirmed and a later change undid it."""

    APPLYING = "applying"
    UNCONFIRMED = "unconfirmed"
    CONFIRMED = "confirmed"
    UNDONE = "undone"
    ROLLED_BACK = "rolled_back"
    FAILED = "failed"


class Change(BaseModel):
    """A plan in progress or ended. deadline_at: until when it had, or has, to be confirmed, extensions included.

    remaining_s: seconds until an unconfirmed change is rolled back, at this answer.

    status: the word for it everywhere; undone: by which later change, None unless the status is undone. created_by: a
    user, a policy with its version, or an experiment with its number. policy_id: the policy that started, confirms and
    rolls back the change; None for a person's. experiment_id: the experiment whose run it belongs to; it is never
    confirmed. undoes, restores: as in ChangeRequest. observation: its figures before and after, None until the 2
    minutes after it are over.
    """

    id: str
    node_id: int
    node_name: str
    plan: Annotated[Plan, AsStruct()]
    sentence: str
    state: ChangeState
    status: ChangeStatus
    undone: Undone | None
    ended_by: EndedBy | None
    created_by: str
    policy_id: int | None
    experiment_id: int | None
    undoes: str | None
    restores: bool
    reason: str
    created_at: datetime
    applied_at: datetime | None
    ended_at: datetime | None
    deadline_at: datetime | None
    remaining_s: float | None
    confirm_timeout_s: float
    guardrails: list[GuardrailIn]
    results: list[Annotated[Result, AsStruct()]]
    steps: list[ChangeStep]
    observation: Annotated[Observation, AsStruct()] | None


class ChangePage(BaseModel):
    """A page of changes, newest first. older: the id to request the next page with, None on the last one."""

    changes: list[Change]
    older: str | None


class Origin(StrEnum):
    """What started a change: a person, a policy or an experiment."""

    PEOPLE = "people"
    POLICIES = "policies"
    EXPERIMENTS = "experiments"


@dataclass(frozen=True)
class ChangeFilter:
    """Query parameters that select changes, at most limit of them; None selects any.

    from_time, to_time: changes that were open at some time between them. older_than: changes before this one.
    """

    node_id: RowId | None = None
    origin: Origin | None = None
    is_open: Annotated[bool | None, Query(alias="open")] = None
    from_time: AwareDatetime | None = None
    to_time: AwareDatetime | None = None
    older_than: UUID | None = None
    limit: Annotated[int, Query(ge=1, le=500)] = 100
