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
    settings until it is undone; it is not reported to the backend. rollback_requested: while its plan runs, so it is
    undone afterwards.
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
    rollback_requested: bool = False

    @property
    def open(self) -> bool:
        """Return whether the change is being applied, is unconfirmed, or is being undone."""
        return self.state in (ChangeState.APPLYING, ChangeState.UNCONFIRMED) or self.ending is not None

    @property
    def keys(self) -> frozenset[str]:
        """Return the keys of the settings that the change sets."""
        return frozenset(action.key for action in self.plan.actions)


class Changes(Struct, frozen=True):
    """State of the change machine: all changes of a node by change_id, oldest first.

    observe_reason: why this agent may not write, None if it may. lost_since: when the connection to the backend was
    lost, in monotonic seconds; None while there is one.
    """

    changes: dict[str, Change] = {}
    observe_reason: str | None = None
    lost_since: float | None = None


# Events


class ApplyRequested(Struct, frozen=True):
    """Event: the backend or a policy requests that a plan be applied.

    policy, confirm_after_s: as in Change. With confirm_after_s it is confirmed automatically, even without a backend.
    """

    change_id: str
    plan: Plan
    confirm_timeout_s: float
    guardrails: list[Guardrail] = []
    policy: str = ""
    confirm_after_s: float | None = None


class RestoreRequested(Struct, frozen=True):
    """Event: settings of a policy are to get their original values back, without a confirmation. why: a sentence."""

    change_id: str
    plan: Plan
    policy: str
    why: str


class SettingsDelegated(Struct, frozen=True):
    """Event: another program (irqbalance) may write these settings for now; becomes is their present value.

    Undone like an unconfirmed change, but without a deadline. A later delegation has the same change_id and takes over
    the settings that could not be restored after the one before, with their values from before it.
    """

    change_id: str
    plan: Plan


class PlanRan(Struct, frozen=True):
    """Event: the caller carried out RunPlan (up to the first failed action) or RunRestore, with these results."""

    change_id: str
    results: list[Result]


class Rechecked(Struct, frozen=True):
    """Event: the caller carried out Recheck; a result is done where the setting still has the action's value."""

    change_id: str
    results: list[Result]


class InverseRan(Struct, frozen=True):
    """Event: the caller carried out RunInverse, with these results."""

    change_id: str
    results: list[Result]


class ConfirmRequested(Struct, frozen=True):
    """Event: a person confirms the change, which makes it permanent."""

    change_id: str


class ConfirmFailed(Struct, frozen=True):
    """Event: the journal could not record a confirmation, so the change is unconfirmed again.

    change: its state before the confirmation. why: the error, for use within a sentence.
    """

    change: Change
    why: str


class RollbackRequested(Struct, frozen=True):
    """Event: a person rolls the change back, whether it is confirmed or not."""

    change_id: str


class ExtendRequested(Struct, frozen=True):
    """Event: a person extends the confirmation timeout of a change by some seconds."""

    change_id: str
    seconds: float


class AcknowledgedByBackend(Struct, frozen=True):
    """Event: the backend has stored this state of the change, so it need not be sent again."""

    change_id: str
    state: ChangeState


class MetricsMeasured(Struct, frozen=True):
    """Event: metrics of one interval, to be checked against guardrails (node.metric_values.guardrail_values)."""

    metrics: dict[str, float | None]
    duration_s: float


class BackendLost(Struct, frozen=True):
    """Event: the agent's connection to the backend ended."""


class BackendReconnected(Struct, frozen=True):
    """Event: the agent is connected to the backend again."""


class Tick(Struct, frozen=True):
    """Event: time has passed; timeouts and automatic confirmations that are due take place."""


class AgentStopping(Struct, frozen=True):
    """Event: the agent is about to exit, so it undoes its unconfirmed changes now."""


class RestoredExternally(Struct, frozen=True):
    """Event: these settings have their originals again: by ``coresteer-agent restore``, or by a stop of enforcement.

    sentence: says so, for the changes that have nothing left to undo.
    """

    keys: frozenset[str]
    sentence: str = "Restored on the node by coresteer-agent restore."


class AgentRestarted(Struct, frozen=True):
    """Event: the agent started and read these changes from its journal, oldest first."""

    changes: list[Change]


Event: TypeAlias = (
    ApplyRequested
    | RestoreRequested
    | SettingsDelegated
    | PlanRan
    | Rechecked
    | InverseRan
    | ConfirmRequested
    | ConfirmFailed
    | RollbackRequested
    | ExtendRequested
    | AcknowledgedByBackend
    | MetricsMeasured
    | BackendLost
    | BackendReconnected
    | Tick
    | AgentStopping
    | RestoredExternally
    | AgentRestarted
)

# Instructions, to be carried out in order


class RecordChange(Struct, frozen=True):
    """Instruction: write this change to the journal durably before the next instruction."""

    change: Change


class RunPlan(Struct, frozen=True):
    """Instruction: apply the plan's actions in order, stop at the first that fails, then pass in the event PlanRan."""

    change_id: str
    plan: Plan


class RunRestore(Struct, frozen=True):
    """Instruction: restore originals by setting each action's becomes, in order; then pass in the event PlanRan."""

    change_id: str
    plan: Plan


class Recheck(Struct, frozen=True):
    """Instruction: read the settings of the plan without writing, then pass in the event Rechecked."""

    change_id: str
    plan: Plan


class RunInverse(Struct, frozen=True):
    """Instruction: apply all actions of an inverse plan, even if some fail, then pass in the event InverseRan."""

    change_id: str
    plan: Plan
    by: EndedBy


class SendChangeState(Struct, frozen=True):
    """Instruction: send the change's state to the backend. The caller, which has a Unix clock, sets deadline_ms."""

    message: ChangeMessage


Instruction: TypeAlias = RecordChange | RunPlan | RunRestore | Recheck | RunInverse | SendChangeState
