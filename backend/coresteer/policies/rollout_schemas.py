"""Request and response bodies of rollouts, and the figures of their stages."""

from datetime import datetime
from enum import StrEnum
from typing import Annotated

from pydantic import BaseModel, Field, computed_field

from coresteer.changes.schemas import GuardrailIn
from coresteer.inputs import RequestBody, RowId
from coresteer.structs import FormField
from coresteer_core.schema import labelled

Guardrails = Annotated[list[GuardrailIn], Field(max_length=3)]


class RolloutState(StrEnum):
    """State of a rollout.

    canary: on the first nodes; batches: on the others in turn; stopped: nodes keep the versions that they have.
    """

    CANARY = "canary"
    BATCHES = "batches"
    DONE = "done"
    STOPPED = "stopped"
    ROLLED_BACK = "rolled_back"


class StageVerdict(StrEnum):
    """What a stage of a rollout shows about one metric. higher, lower: where neither is better.

    not_compared: no node that waited has a value, so only before and after are known.
    """

    IMPROVES = "improves"
    WORSENS = "worsens"
    HIGHER = "higher"
    LOWER = "lower"
    NONE_FOUND = "none_found"
    TOO_FEW = "too_few"
    NOT_COMPARED = "not_compared"


class StageFigure(BaseModel):
    """One metric of a stage. before, after: of its nodes together; change: relative, the mean of its nodes.

    waiting_change: of the nodes that waited, None without a value. effect: the difference of both with its interval,
    which is None for too few nodes, and for nodes that do not vary.
    """

    metric: str
    label: str
    unit: str
    nodes: int
    before: float
    after: float
    change: float
    waiting_nodes: int
    waiting_change: float | None
    effect: float | None
    low: float | None
    high: float | None
    verdict: StageVerdict
    sentence: str


class EvidenceBasis(StrEnum):
    """What a stage's figures rest on: a comparison with waiting nodes, before and after alone, or nothing."""

    COMPARED = "compared"
    BEFORE_AFTER = "before_after"
    NONE = "none"


class StageEvidence(BaseModel):
    """The figures on which a stage of a rollout passed or failed. window_s: length of time before and after.

    lost_traffic: whether all of its nodes lost their traffic, and of several waiting nodes none did; the stage failed.
    """

    stage: int
    at: datetime
    window_s: float
    figures: list[StageFigure]
    lost_traffic: bool = False
    sentence: str

    @computed_field  # type: ignore[prop-decorator]  # mypy allows none above @property, pydantic needs it
    @property
    def basis(self) -> EvidenceBasis:
        """Return what the stage passed on; with the basis ``none`` it passed without figures."""
        if any(figure.low is not None for figure in self.figures):
            return EvidenceBasis.COMPARED
        return EvidenceBasis.BEFORE_AFTER if self.figures else EvidenceBasis.NONE


class Rollout(BaseModel):
    """A policy version on its way to the nodes, in stages. from_version: the one they had before, None for none.

    stages: node ids, the canary first; stage: index of the last one that has the version; done_nodes: nodes of
    completed stages. remaining_s: seconds until the stage may end, at this answer; 0 while samples of its nodes are
    awaited; None unless it is in progress, and while it waits for a change window or the end of a stop of enforcement.
    evidence: of the stages that have ended.
    """

    id: int
    policy_id: int
    from_version: int | None
    to_version: int
    state: RolloutState
    stage: int
    stages: list[list[int]]
    done_nodes: list[int]
    sentence: str
    wait_s: float
    remaining_s: float | None
    guardrails: list[GuardrailIn]
    stage_at: datetime
    started_at: datetime
    started_by: str
    ended_at: datetime | None
    evidence: list[StageEvidence]


class RolloutPace(RequestBody):
    """How a version spreads.

    canary: number of nodes in the first stage; batch: in each later stage; wait_s: duration of a stage in seconds.

    leave_pages: nodes that stop enforcing the policy leave memory where it has moved it.
    """

    canary: Annotated[
        int, Field(ge=1, le=1000), FormField(labelled("Canary", "Number of nodes in the first stage.", unit="nodes"))
    ] = 1
    batch: Annotated[
        int,
        Field(ge=1, le=1000),
        FormField(labelled("Batch size", "Number of nodes in each later stage.", unit="nodes")),
    ] = 10
    wait_s: Annotated[
        float, Field(ge=0, le=86_400), FormField(labelled("Wait", "Duration of each stage.", unit="s"))
    ] = 60
    leave_pages: Annotated[
        bool,
        FormField(
            labelled(
                "Leave pages where they are",
                "Memory that the policy has moved stays on its NUMA node; affinities are restored.",
            )
        ),
    ] = False


class RolloutCreate(RolloutPace):
    """A rollout to start. guardrails: a violation on a node of the rollout rolls it back; None: the version's own."""

    version: RowId
    guardrails: Guardrails | None = None
