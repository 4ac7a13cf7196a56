"""Facts about an experiment and the Step that next_step.py derives from them for run_loop.py."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias
from uuid import UUID

from coresteer.experiments.schemas import ExperimentState
from coresteer.experiments.spec import Attempt, PlannedRun, Spec
from coresteer_core.changes.report import ChangeState, EndedBy
from coresteer_core.experiments.model import RunResult
from coresteer_core.protocol import ExperimentMessage


@dataclass(frozen=True)
class Timeouts:
    """Timeouts of an experiment, s.

    away_s: for a disconnected node to reconnect. ready_s: for a node to prepare the load. run_s: for a run's result,
    in addition to its warm-up and measuring time. restored_s: for settings to return to their values before the
    experiment. pause_s: for paused policies to restore their settings. answer_s: for Prometheus to answer with the
    primary metric of a run.
    """

    away_s: float = 300.0
    ready_s: float = 60.0
    run_s: float = 60.0
    restored_s: float = 60.0
    pause_s: float = 15.0
    answer_s: float = 60.0


@dataclass(frozen=True)
class Participant:
    """One node of an experiment and the latest messages of its agent.

    Times are of time.monotonic(). All fields but away_since_s refer to the present connection. session_message: the
    latest message about the experiment as a whole; run_message: about the active run.
    """

    name: str
    away_since_s: float | None = None
    prepare_sent_at_s: float | None = None
    session_message: ExperimentMessage | None = None
    run_sent_at_s: float | None = None
    run_message: ExperimentMessage | None = None

    @property
    def measured(self) -> RunResult | None:
        """Return the participant's result of the active run, None until it is measured."""
        return None if self.run_message is None else self.run_message.measured


@dataclass(frozen=True)
class ChangeStatus:
    """State of a change that applies an arm's settings."""

    change_id: UUID
    state: ChangeState
    ended_by: EndedBy | None
    sentence: str


@dataclass(frozen=True)
class Facts:
    """Everything from which the next step of an experiment is decided.

    participants: the node under test, then its peer. stopped: enforcement is stopped on one of them. run_active: this
    process applied a run's settings. change: the active run's change, None where it needs none. failure: why the active
    run cannot be completed. violation: the guardrail violation of the active run. settings: present values of
    settings_before's keys and of the netdev's settings, None when they must be read again. netdev_settings_before: of a
    netdev that exists only during the experiment. phase_started_s: when settings began to be restored, or the
    experiment began to end. elapsed_s: since the experiment started.
    """

    spec: Spec
    plan: Sequence[PlannedRun]
    attempts: Sequence[Attempt]
    ending_state: str | None
    settings_before: Mapping[str, str] | None
    open_changes: Sequence[ChangeStatus]
    participants: Sequence[Participant]
    now_s: float
    timeouts: Timeouts
    phase_started_s: float
    stopped: bool = False
    run_active: bool = False
    change: ChangeStatus | None = None
    leased: bool = False
    failure: str | None = None
    violation: str | None = None
    paused_at_s: float | None = None
    policies_paused: bool = False
    end_sent: bool = False
    settings: Mapping[str, str] | None = None
    netdev_settings_before: Mapping[str, str] = field(default_factory=dict)
    elapsed_s: float = 0.0

    @property
    def netdev(self) -> str:
        """Return the netdev by which the load arrives, empty where it is not known."""
        message = self.participants[0].session_message
        return "" if message is None else message.netdev


@dataclass(frozen=True)
class AwaitMessage:
    """Wait for a message of an agent, at most until until_s. activity: the sentence shown meanwhile."""

    activity: str
    until_s: float


@dataclass(frozen=True)
class PausePolicies:
    """Pause the enforced policies of the nodes."""


@dataclass(frozen=True)
class RecordSettings:
    """Store the node's settings before the experiment, and its machine."""


@dataclass(frozen=True)
class ReadSettings:
    """Read the node's present values of settings."""


@dataclass(frozen=True)
class Prepare:
    """Let a participant (by its index) prepare what all runs share, e.g. the network namespace of the load."""

    participant: int


@dataclass(frozen=True)
class ApplySettings:
    """Apply the run's settings and lease its policies."""

    planned: PlannedRun


@dataclass(frozen=True)
class StartRun:
    """Let a participant (by its index) carry out the active run."""

    planned: PlannedRun
    participant: int


@dataclass(frozen=True)
class RecordRun:
    """Store the result of a run. discarded: the reason by rule, None when the run counts."""

    planned: PlannedRun
    attempt: int
    measured: RunResult
    discarded: str | None


@dataclass(frozen=True)
class AbandonRun:
    """Store a run without result as discarded, and prepare the nodes again. violated: because of a guardrail."""

    planned: PlannedRun
    attempt: int
    reason: str
    violated: bool = False


@dataclass(frozen=True)
class EndPolicyLease:
    """End the lease of the active run's policies."""


@dataclass(frozen=True)
class RollBackChange:
    """Roll back a change that applied a run's settings."""

    change_id: UUID


@dataclass(frozen=True)
class EndLoad:
    """Stop the load on all nodes, and remove what was prepared for it."""


@dataclass(frozen=True)
class StopMeasuring:
    """Start no further run; the node's settings are restored next, and the experiment ends in this state."""

    state: ExperimentState
    sentence: str


@dataclass(frozen=True)
class Finish:
    """End the experiment. after: its settings now, None where they could not be read. note: problems in a sentence."""

    after: Mapping[str, str] | None
    note: str


Step: TypeAlias = (
    AwaitMessage
    | PausePolicies
    | RecordSettings
    | ReadSettings
    | Prepare
    | ApplySettings
    | StartRun
    | RecordRun
    | AbandonRun
    | EndPolicyLease
    | RollBackChange
    | EndLoad
    | StopMeasuring
    | Finish
)
