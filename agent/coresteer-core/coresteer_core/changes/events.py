"""Change state, events and instructions of the state machine in coresteer_core.changes.machine."""

from typing import TypeAlias

from msgspec import Struct

from coresteer_core.changes.guardrail import Guardrail
from coresteer_core.changes.plan import Plan
from coresteer_core.changes.report import ChangeMessage, ChangeState, EndedBy, Result


class Change(Struct, frozen=True):
    """One change as its node knows it; also what the journal keeps.

    undo: the actions that put back what is written and not yet put back, in their order.
    ending: why the undo is under way, None when it is not. deadline: monotonic seconds.
    strikes: intervals in a row over each guardrail, over_s: how long these lasted.
    seen: the backend has stored its present state.
    policy: the name of the policy it is for, empty for a person's change. confirm_after_s: after so long it is kept
    without being asked, None where somebody has to confirm it. confirm_at: when that is, monotonic seconds.
    returns: it puts back what a policy had set, so nothing undoes it. delegated: another program may write its settings
    until it is undone; the backend is told nothing of it.
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
    strikes: list[int] = []
    over_s: list[float] = []
    seen: bool = False
    policy: str = ""
    confirm_after_s: float | None = None
    confirm_at: float | None = None
    returns: bool = False
    delegated: bool = False

    @property
    def open(self) -> bool:
        """It is not certain yet whether its settings stay."""
        return self.state in (ChangeState.APPLYING, ChangeState.UNCONFIRMED) or self.ending is not None

    @property
    def keys(self) -> frozenset[str]:
        """The settings it is about."""
        return frozenset(action.key for action in self.plan.actions)


class Changes(Struct, frozen=True):
    """Every change the node remembers, oldest first. observe_reason: why this agent may not write, None if it may."""

    changes: dict[str, Change] = {}
    observe_reason: str | None = None
    lost_since: float | None = None


# Events: what happened


class ApplyRequested(Struct, frozen=True):
    """The backend asks for a plan, or a policy does.

    policy, confirm_after_s: as in Change. With confirm_after_s nobody has to confirm it, and the backend may be away.
    """

    change_id: str
    plan: Plan
    confirm_timeout_s: float
    guardrails: list[Guardrail] = []
    policy: str = ""
    confirm_after_s: float | None = None


class RestoreRequested(Struct, frozen=True):
    """What a policy had set goes back, whatever becomes of each setting; why: a sentence. It is kept at once."""

    change_id: str
    plan: Plan
    policy: str
    why: str


class Delegated(Struct, frozen=True):
    """Another program is about to write these settings; each action becomes what stands there now.

    It is undone like a change that is not confirmed, but has no deadline. One at a time has the same change_id; what
    could not be put back after the one before still goes back to what stood before that.
    """

    change_id: str
    plan: Plan


class PlanRan(Struct, frozen=True):
    """RunPlan was carried out, up to the first action that did not work, or RunRestore, all of it."""

    change_id: str
    results: list[Result]


class Rechecked(Struct, frozen=True):
    """Recheck was carried out: each action's result is done while the setting stands as it became."""

    change_id: str
    results: list[Result]


class InverseRan(Struct, frozen=True):
    """RunInverse was carried out, every action of it."""

    change_id: str
    results: list[Result]


class ConfirmRequested(Struct, frozen=True):
    """Keep it."""

    change_id: str


class ConfirmFailed(Struct, frozen=True):
    """The confirmation could not be noted, so it must not count. change: as it stood before; why: within a sentence."""

    change: Change
    why: str


class RollbackRequested(Struct, frozen=True):
    """Undo it, confirmed or not."""

    change_id: str


class ExtendRequested(Struct, frozen=True):
    """Wait longer."""

    change_id: str
    seconds: float


class AcknowledgedByBackend(Struct, frozen=True):
    """The backend has stored that it stood so."""

    change_id: str
    state: ChangeState


class Measured(Struct, frozen=True):
    """One interval's guardrail metrics (coresteer_core.changes.guardrail.measure), and how long it was."""

    metrics: dict[str, float | None]
    duration_s: float


class BackendLost(Struct, frozen=True):
    """The connection ended."""


class BackendBack(Struct, frozen=True):
    """The backend welcomed this agent."""


class Tick(Struct, frozen=True):
    """Time went on."""


class Stopping(Struct, frozen=True):
    """The agent is about to end; nobody would be there to undo."""


class RestoredExternally(Struct, frozen=True):
    """``coresteer-agent restore`` put these settings back beside the running agent."""

    keys: frozenset[str]


class Restarted(Struct, frozen=True):
    """The agent starts with what its journal held, oldest first."""

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

# Instructions: what is to be done, in this order


class Note(Struct, frozen=True):
    """Keep this in the journal before going on."""

    change: Change


class RunPlan(Struct, frozen=True):
    """Apply the actions in order, stop at the first that does not work, then feed PlanRan."""

    change_id: str
    plan: Plan


class RunRestore(Struct, frozen=True):
    """Undo all these actions in order: each setting gets what its action becomes. Then feed PlanRan."""

    change_id: str
    plan: Plan


class Recheck(Struct, frozen=True):
    """Read what stands in the settings of the actions, write nothing, then feed Rechecked."""

    change_id: str
    plan: Plan


class RunInverse(Struct, frozen=True):
    """Undo all these actions in order, whatever becomes of each, then feed InverseRan."""

    change_id: str
    plan: Plan
    by: EndedBy


class Report(Struct, frozen=True):
    """Tell the backend. deadline_ms is left to the caller, who has a calendar clock."""

    message: ChangeMessage


Instruction: TypeAlias = Note | RunPlan | RunRestore | Recheck | RunInverse | Report
