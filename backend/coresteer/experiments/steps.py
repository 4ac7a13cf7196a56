"""What an experiment's next step follows from (Facts), and what it can be (Step): between progress.py and drive.py."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias
from uuid import UUID

from coresteer.experiments.repository import Attempt
from coresteer.experiments.schemas import ExperimentState
from coresteer.experiments.spec import PlannedRun, Spec
from coresteer_core.experiments.model import Measured
from coresteer_core.protocol import ChangeState, EndedBy, ExperimentMessage


@dataclass(frozen=True)
class Patience:
    """How long to wait, s. away: for a node that is away; ready: for what its runs share; run: beyond a run's own time;
    returned: until settings are as before; pause: until paused policies have given back what they held.
    """

    away_s: float = 300.0
    ready_s: float = 60.0
    run_s: float = 60.0
    returned_s: float = 60.0
    pause_s: float = 15.0


@dataclass(frozen=True)
class Side:
    """A node and its agent's word. Times are monotonic; all but away_since_s are of the present connection.

    word: of the experiment as a whole; run_word: of the run at hand.
    """

    name: str
    away_since_s: float | None = None
    begun_at_s: float | None = None
    word: ExperimentMessage | None = None
    run_at_s: float | None = None
    run_word: ExperimentMessage | None = None

    @property
    def measured(self) -> Measured | None:
        """What the run at hand came to."""
        return None if self.run_word is None else self.run_word.measured


@dataclass(frozen=True)
class Standing:
    """A change as far as it matters here."""

    change_id: UUID
    state: ChangeState
    ended_by: EndedBy | None
    sentence: str


@dataclass(frozen=True)
class Facts:
    """All that the next step follows from. sides: the node under test, then its peer.

    at_hand: whether a run's settings were put in place by this driver; change: its change, None where it needs none.
    broken: why the run at hand cannot be finished; tripped: what a guardrail said. settings: the node's as it told
    last, of what was before and of the netdev's; netdev_before: of the netdev that is there for the experiment.
    since_s: when the node began to be put back, or the experiment to end.
    """

    spec: Spec
    plan: Sequence[PlannedRun]
    attempts: Sequence[Attempt]
    ending: str | None
    before: Mapping[str, str] | None
    open_changes: Sequence[Standing]
    sides: Sequence[Side]
    now_s: float
    patience: Patience
    since_s: float
    at_hand: bool = False
    change: Standing | None = None
    leased: bool = False
    broken: str | None = None
    tripped: str | None = None
    paused_at_s: float | None = None
    pauses: bool = False
    told_to_end: bool = False
    settings: Mapping[str, str] | None = None
    netdev_before: Mapping[str, str] = field(default_factory=dict)

    @property
    def netdev(self) -> str:
        """Under which the load arrives; empty where that is not known."""
        word = self.sides[0].word
        return "" if word is None else word.netdev


@dataclass(frozen=True)
class Wait:
    """For word of an agent, at the most until then. now: what is waited for."""

    now: str
    until_s: float


@dataclass(frozen=True)
class Pause:
    """Tell the nodes' policies that an experiment runs."""


@dataclass(frozen=True)
class TakeBefore:
    """Note the node's settings and its machine."""


@dataclass(frozen=True)
class Look:
    """Read the node's settings."""


@dataclass(frozen=True)
class Begin:
    """Let a side prepare what its runs share."""

    side: int


@dataclass(frozen=True)
class Open:
    """Put the run's settings and policies in place."""

    planned: PlannedRun


@dataclass(frozen=True)
class Start:
    """Tell a side to do the run at hand."""

    planned: PlannedRun
    side: int


@dataclass(frozen=True)
class Keep:
    """Store a run, discarded where a rule says so."""

    planned: PlannedRun
    attempt: int
    measured: Measured
    discarded: str | None


@dataclass(frozen=True)
class Lose:
    """Store that a run came to nothing, and begin anew on the nodes."""

    planned: PlannedRun
    attempt: int
    why: str


@dataclass(frozen=True)
class EndLease:
    """Take the run's policies out of force."""


@dataclass(frozen=True)
class RollBack:
    """Undo a change."""

    change_id: UUID


@dataclass(frozen=True)
class TellEnd:
    """End all load and what was prepared for it."""


@dataclass(frozen=True)
class Conclude:
    """Measure no more; what is left is to put the node back."""

    state: ExperimentState
    sentence: str


@dataclass(frozen=True)
class Finish:
    """It is over. after: the settings now, None where they were not seen. note: what is not as it should be."""

    after: Mapping[str, str] | None
    note: str


Step: TypeAlias = (
    Wait
    | Pause
    | TakeBefore
    | Look
    | Begin
    | Open
    | Start
    | Keep
    | Lose
    | EndLease
    | RollBack
    | TellEnd
    | Conclude
    | Finish
)
