"""State, events and instructions of the change state machine (coresteer_core.changes.machine)."""

from typing import TypeAlias

from msgspec import Struct

from coresteer_core.changes.guardrail import Guardrail, Strikes
from coresteer_core.changes.plan import Plan
from coresteer_core.changes.report import ChangeMessage, ChangeState, EndedBy, Result


class Change(Struct, frozen=True):
    """State of one change on its node, as the journal stores it.

    undo: the actions that restore what is written and not yet restored, in order. ending: the cause of the undo in
    progress, None without one. deadline: monotonic seconds. guardrail_strikes: by guardrail. acknowledged: the backend
    has stored the present state. policy: the name of its policy, empty for a person's change. confirm_after_s: time to
    its automatic confirmation, None where a person has to confirm it. confirm_at: that moment, monotonic seconds.
    restores: it restores originals of a policy's settings and is never undone. delegated: another program may write its
    settings until it is undone; it is not reported to the backend.
    """

    change_id: str
    plan: Plan
    state: ChangeState
    sentence: str
    confirm_timeout_s: float
    guardrails: list[Guardrail] = []
    results: list[Result] = []
    undo: Plan = Plan([])
    ending: EndedBy | None = None
    ended_by: EndedBy | None = None
    deadline: float | None = None
    guardrail_strikes: list[Strikes] = []
    acknowledged: bool = False
    policy: str = ""
    confirm_after_s: float | None = None
    confirm_at: float | None = None
    restores: bool = False
    delegated: bool = False

    @property
    def open(self) -> bool:
        """Whether it is being applied, unconfirmed or being undone."""
        return self.state in (ChangeState.APPLYING, ChangeState.UNCONFIRMED) or self.ending is not None

    @property
    def keys(self) -> frozenset[str]:
        """The keys of its settings."""
        return frozenset(action.key for action in self.plan.actions)


class Changes(Struct, frozen=True):
    """All changes of a node, oldest first. observe_reason: why this agent may not write, None if it may."""

    changes: dict[str, Change] = {}
    observe_reason: str | None = None
    lost_since: float | None = None


# Events


class ApplyRequested(Struct, frozen=True):
    """The backend or a policy requests a plan.

    policy, confirm_after_s: as in Change. With confirm_after_s it is confirmed automatically, even without a backend.
    """

    change_id: str
    plan: Plan
    confirm_timeout_s: float
    guardrails: list[Guardrail] = []
    policy: str = ""
    confirm_after_s: float | None = None


class RestoreRequested(Struct, frozen=True):
    """Originals of a policy's settings are to be restored, all of them, confirmed at once. why: a sentence."""

    change_id: str
    plan: Plan
    policy: str
    why: str


class Delegated(Struct, frozen=True):
    """Settings are delegated to another program; each action's becomes is the present value.

    Undone like an unconfirmed change, but without a deadline. A later delegation has the same change_id and takes over
    the settings that could not be restored after the one before, with their values from before it.
    """

    change_id: str
    plan: Plan


class PlanRan(Struct, frozen=True):
    """RunPlan was carried out up to the first failed action, or RunRestore completely."""

    change_id: str
    results: list[Result]


class Rechecked(Struct, frozen=True):
    """Recheck was carried out: a result is done where the setting still has the action's value."""

    change_id: str
    results: list[Result]


class InverseRan(Struct, frozen=True):
    """RunInverse was carried out completely."""

    change_id: str
    results: list[Result]


class ConfirmRequested(Struct, frozen=True):
    """The change is to be confirmed."""

    change_id: str


class ConfirmFailed(Struct, frozen=True):
    """The confirmation could not be recorded, so it is void. change: before it; why: within a sentence."""

    change: Change
    why: str


class RollbackRequested(Struct, frozen=True):
    """The change is to be rolled back, confirmed or not."""

    change_id: str


class ExtendRequested(Struct, frozen=True):
    """The confirmation timeout is to be extended."""

    change_id: str
    seconds: float


class AcknowledgedByBackend(Struct, frozen=True):
    """The backend has stored this state of the change."""

    change_id: str
    state: ChangeState


class Measured(Struct, frozen=True):
    """Guardrail metrics of one interval (coresteer_core.node.metric_values.guardrail_values) and its duration."""

    metrics: dict[str, float | None]
    duration_s: float


class BackendLost(Struct, frozen=True):
    """The connection ended."""


class BackendBack(Struct, frozen=True):
    """The backend welcomed this agent."""


class Tick(Struct, frozen=True):
    """Time has passed."""


class Stopping(Struct, frozen=True):
    """The agent is about to end and could not undo changes later."""


class RestoredExternally(Struct, frozen=True):
    """``coresteer-agent restore`` restored these settings while the agent runs."""

    keys: frozenset[str]


class Restarted(Struct, frozen=True):
    """The agent starts with the changes of its journal, oldest first."""

    changes: list[Change]


Event: TypeAlias = (
    ApplyRequested
    | RestoreRequested
    | Delegated
    | PlanRan
    | Rechecked
    | InverseRan
    | ConfirmRequested
    | ConfirmFailed
    | RollbackRequested
    | ExtendRequested
    | AcknowledgedByBackend
    | Measured
    | BackendLost
    | BackendBack
    | Tick
    | Stopping
    | RestoredExternally
    | Restarted
)

# Instructions, to be carried out in order


class RecordChange(Struct, frozen=True):
    """Record this change durably before the next instruction."""

    change: Change


class RunPlan(Struct, frozen=True):
    """Apply the actions in order, stop at the first that fails, then feed PlanRan."""

    change_id: str
    plan: Plan


class RunRestore(Struct, frozen=True):
    """Undo all these actions in order: set each action's becomes. Then feed PlanRan."""

    change_id: str
    plan: Plan


class Recheck(Struct, frozen=True):
    """Read the settings of the actions, write nothing, then feed Rechecked."""

    change_id: str
    plan: Plan


class RunInverse(Struct, frozen=True):
    """Undo all these actions in order, whatever the result of each, then feed InverseRan."""

    change_id: str
    plan: Plan
    by: EndedBy


class Report(Struct, frozen=True):
    """Send the message to the backend; the caller, which has a calendar clock, sets deadline_ms."""

    message: ChangeMessage


Instruction: TypeAlias = RecordChange | RunPlan | RunRestore | Recheck | RunInverse | Report
