"""What the API says about previews and changes."""

from datetime import datetime
from typing import Annotated, Literal

from pydantic import BaseModel, Field

from coresteer.inputs import KEPT, Body
from coresteer.structs import AsStruct
from coresteer_core.changes.guard import MAX_MOVES, PlanWarning, Refusal
from coresteer_core.changes.plan import Action, Plan
from coresteer_core.protocol import ChangeState, EndedBy, Result

Key = Annotated[str, Field(min_length=1, max_length=200), KEPT]
Value = Annotated[str, Field(max_length=4096), KEPT]
Reason = Annotated[str, Field(max_length=500), KEPT]
Seconds = Annotated[float, Field(ge=30, le=600)]


class DesiredValueIn(Body):
    """A setting and the value it should have, for example irq/41/affinity and 2-3."""

    key: Key
    value: Value


class PreviewRequest(Body):
    """What to look at. allow_isolated: isolated CPUs are meant."""

    desired: list[DesiredValueIn] = Field(min_length=1, max_length=MAX_MOVES)
    allow_isolated: bool = False


class PreviewAnswer(BaseModel):
    """What would happen. It can be applied when can_apply says so, else blocked_because says why not.

    expected: effects as ranges, one sentence each, from the node's last minute; empty when there is no base for one.
    """

    plan: Annotated[Plan, AsStruct()]
    sentence: str
    commands: list[str]
    expected: list[str]
    warnings: list[Annotated[PlanWarning, AsStruct()]]
    refused: list[Annotated[Refusal, AsStruct()]]
    can_apply: bool
    blocked_because: str | None


class GuardrailIn(Body):
    """Undo at once when the metric rises over max."""

    metric: Literal["rtt_p99_us", "dropped_per_s", "busiest_cpu_percent"]
    max: Annotated[float, Field(ge=0, le=1e9)]


class ActionIn(Body):
    """A coresteer_core Action as somebody sends it."""

    key: Key
    was: Value
    becomes: Value
    reason: Reason


class PlanIn(Body):
    """A coresteer_core Plan as somebody sends it."""

    actions: list[ActionIn] = Field(min_length=1, max_length=MAX_MOVES)
    allow_isolated: bool = False

    def to_plan(self) -> Plan:
        """The same for the core."""
        return Plan([Action(a.key, a.was, a.becomes, a.reason) for a in self.actions], self.allow_isolated)


class ChangeRequest(Body):
    """Apply a preview. plan: as the preview returned it; a setting that has changed since refuses the whole."""

    plan: PlanIn
    confirm_timeout_s: Seconds = 120
    guardrails: list[GuardrailIn] = Field(default=[], max_length=3)
    reason: Reason = ""


class ExtendRequest(Body):
    """More time before the change returns; at most 600 s from now."""

    seconds: Annotated[float, Field(ge=10, le=600)] = 120


class ChangeStep(BaseModel):
    """One step of a change's life."""

    at: datetime
    state: ChangeState
    sentence: str


class Change(BaseModel):
    """A plan under way or ended. remaining_s: until an unconfirmed change returns, as of this answer.

    policy_id: of the policy that began it by itself and keeps or undoes it by itself; None where a person did.
    experiment_id: of the experiment whose run it stands for; it is never kept.
    """

    id: str
    node_id: int
    node_name: str
    plan: Annotated[Plan, AsStruct()]
    sentence: str
    state: ChangeState
    ended_by: EndedBy | None
    created_by: str
    policy_id: int | None
    experiment_id: int | None
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


class ChangePage(BaseModel):
    """Newest first; older: the id to ask for the next page with, None at the end."""

    changes: list[Change]
    older: str | None
