"""Request and response bodies of policies, rollouts, decisions and drifts."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Annotated
from uuid import UUID

from fastapi import Query
from pydantic import AwareDatetime, BaseModel, Field

from coresteer.changes.schemas import GuardrailIn, Reason
from coresteer.inputs import STORABLE, RequestBody, RowId, TextPattern
from coresteer.policies.proof_settings import ProofSettings
from coresteer.structs import AsStruct, FormField, FromStruct
from coresteer_core.changes.guardrail import VIOLATION_PERIOD
from coresteer_core.changes.report import ChangeState
from coresteer_core.node.tasks import NetTask
from coresteer_core.policies import Spec
from coresteer_core.policies.base import (
    MODE_FIELD,
    OWNERSHIP_LABELS,
    Damping,
    Evaluation,
    HoldoutReport,
    Mode,
    Ownership,
    Scope,
)
from coresteer_core.schema import labelled

Glob = Annotated[str, Field(min_length=1, max_length=256), STORABLE]
Globs = Annotated[list[Glob], Field(max_length=64)]
Guardrails = Annotated[list[GuardrailIn], Field(max_length=3)]


class Selector(RequestBody):
    """The nodes that a policy applies to, as shell patterns.

    Every given field must match, a list by any of its patterns.

    labels: patterns by label name. hostnames: of the node's name or its hostname. netdevs, drivers: of one of its
    network devices. An empty selector matches every node.
    """

    labels: Annotated[
        dict[Annotated[str, Field(min_length=1, max_length=63), STORABLE], Glob],
        Field(max_length=32),
        FormField(
            labelled(
                "Labels",
                "Labels of nodes, with shell patterns, for example role=db rack=r0*.",
                format="labels",
                placeholder="all",
            )
        ),
    ] = Field(default={})
    hostnames: Annotated[
        Globs, FormField(labelled("Nodes", "Names as shell patterns, for example db-* web-1?.", placeholder="all"))
    ] = Field(default=[])
    netdevs: Annotated[
        Globs,
        FormField(
            labelled(
                "Network devices", "Nodes with one of these network devices, for example eth* bond0.", placeholder="all"
            )
        ),
    ] = Field(default=[])
    drivers: Annotated[
        Globs,
        FormField(
            labelled(
                "Drivers", "Nodes with a network device of one of these drivers, for example mlx5*.", placeholder="all"
            )
        ),
    ] = Field(default=[])


class PolicyBody(RequestBody):
    """Content of one version of a policy. rank: of two policies that set the same setting, the lower rank wins."""

    name: Annotated[
        str,
        Field(min_length=1, max_length=80),
        TextPattern(
            r"[^\x00-\x1f\x7f\ud800-\udfff]*[^\x00-\x20\x7f\ud800-\udfff]",
            "A name has no control characters.",
        ),
        FormField(labelled("Name", "Shown in lists and in the audit log.")),
    ]
    rank: Annotated[
        int,
        Field(ge=0, le=999),
        FormField(
            labelled(
                "Rank",
                "Of two policies that set the same setting, the lower rank wins; at the same rank, the older policy.",
            )
        ),
    ] = 100
    mode: Annotated[Mode, Field(examples=["recommend"]), FormField(MODE_FIELD)] = Mode.OBSERVE
    spec: Annotated[Spec, FromStruct(), FormField(labelled("Kind"))]
    selector: Annotated[Selector, FormField(labelled("Node selector", "All given fields must match."))] = Selector()
    scope: Annotated[
        Scope, FromStruct(), FormField(labelled("Scope", "The parts of a node that the policy applies to."))
    ] = Field(default={}, validate_default=True)
    damping: Annotated[
        Damping, FromStruct(), FormField(labelled("Flap damping", "Limits that prevent oscillation.", group="advanced"))
    ] = Field(default={}, validate_default=True)
    on_controller: Annotated[
        Ownership,
        FormField(
            labelled(
                "While another controller runs",
                "Reaction to irqbalance, TuneD or another program that writes the same settings.",
                group="advanced",
                options=OWNERSHIP_LABELS,
            )
        ),
    ] = Ownership.WARN
    on_drift: Annotated[
        Ownership,
        FormField(
            labelled(
                "When a setting drifts",
                "Reaction when a setting no longer has the value that the policy wrote.",
                group="advanced",
                options=OWNERSHIP_LABELS,
            )
        ),
    ] = Ownership.WARN
    guardrails: Annotated[
        Guardrails,
        FormField(
            labelled("Guardrails", f"A new change is rolled back if a metric exceeds its bound {VIOLATION_PERIOD}.")
        ),
    ] = Field(default=[])
    proof: Annotated[
        ProofSettings,
        FormField(
            labelled("Proof", "While it is enforced, the policy is held out at random moments to measure its effect.")
        ),
    ] = ProofSettings()


class PolicyVersionCreate(RequestBody):
    """The next version of a policy. note: its purpose."""

    body: PolicyBody
    note: Reason = ""


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
    """What a stage of a rollout shows about one metric. higher, lower: where neither is better."""

    IMPROVES = "improves"
    WORSENS = "worsens"
    HIGHER = "higher"
    LOWER = "lower"
    NONE_FOUND = "none_found"
    TOO_FEW = "too_few"


class StageFigure(BaseModel):
    """One metric of a stage. before, after: of its nodes together; change: relative, the mean of its nodes.

    waiting_change: of the nodes that waited, None without any. effect: the difference of both with its interval, which
    is None for too few nodes.
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


class StageEvidence(BaseModel):
    """The figures on which a stage of a rollout passed or failed. window_s: length of time before and after."""

    stage: int
    at: datetime
    window_s: float
    figures: list[StageFigure]
    sentence: str


class Rollout(BaseModel):
    """A policy version on its way to the nodes, in stages. from_version: the one they had before, None for none.

    stages: node ids, the canary first; stage: index of the last one that has the version; done_nodes: nodes of
    completed stages. evidence: of the stages that have ended.
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
    guardrails: list[GuardrailIn]
    stage_at: datetime
    started_at: datetime
    started_by: str
    ended_at: datetime | None
    evidence: list[StageEvidence]


class RolloutCreate(RequestBody):
    """A rollout to start.

    canary: number of nodes in the first stage; batch: in each later stage; wait_s: duration of a stage in seconds.

    guardrails: a violation on a node of the rollout rolls it back; None uses the version's own.

    leave_pages: nodes that stop enforcing the policy leave memory where it has moved it.
    """

    version: RowId
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
    guardrails: Guardrails | None = None
    leave_pages: Annotated[
        bool,
        FormField(
            labelled(
                "Leave pages where they are",
                "Memory that the policy has moved stays on its NUMA node; affinities are restored.",
            )
        ),
    ] = False


class RolloutStop(RequestBody):
    """Stop a rollout. roll_back: nodes that already have the version return to the one that they had before."""

    roll_back: bool


class Policy(BaseModel):
    """A policy with its current version. versions: their number; nodes: number of nodes that the selector matches.

    rollout: the one in progress or stopped, None if there is none.
    """

    id: int
    name: str
    version: int
    versions: int
    body: PolicyBody
    enabled: bool
    nodes: int
    created_at: datetime
    created_by: str
    rollout: Rollout | None


class PolicyVersion(BaseModel):
    """One version of a policy; it never changes."""

    version: int
    body: PolicyBody
    created_at: datetime
    created_by: str
    note: str


class Difference(BaseModel):
    """One field that differs between two policy versions, as JSON unless it is text; None where a version lacks it."""

    path: str
    was: str | None
    becomes: str | None


class PolicyPreviewRequest(RequestBody):
    """A policy, stored or not, and the nodes to evaluate it on. It replaces a stored policy of the same name."""

    body: PolicyBody
    node_ids: list[RowId] = Field(min_length=1, max_length=50)


class NodeEvaluation(BaseModel):
    """Evaluation of a policy on a node. view_age_s: age of the newest sample; error: why there is no evaluation."""

    node_id: int
    node_name: str
    evaluation: Annotated[Evaluation, AsStruct()] | None
    view_age_s: float | None
    error: str | None


class BacktestRequest(RequestBody):
    """A policy to backtest: a stored version, or a body instead; by default the current version.

    The range is at most one hour.
    """

    version: RowId | None = None
    body: PolicyBody | None = None
    node_id: RowId
    from_time: AwareDatetime
    to_time: AwareDatetime


class BacktestStep(BaseModel):
    """A round of a backtest whose evaluation differs from the round before."""

    at: datetime
    evaluation: Annotated[Evaluation, AsStruct()]


class BacktestResult(BaseModel):
    """Result of a backtest. moves: number of settings written; from_time, to_time: range of the samples found."""

    steps: list[BacktestStep]
    moves: int
    sentence: str
    from_time: datetime
    to_time: datetime


class Decision(BaseModel):
    """Result of a policy's evaluation on a node.

    outcome: state of the change that carries it out, None without one. holdout: whether the policy is held out to
    measure its effect, None if it never was.
    """

    id: int
    node_id: int
    at: datetime
    policy_id: int
    policy_name: str
    version: int
    mode: Mode
    evaluation: Annotated[Evaluation, AsStruct()]
    change_id: UUID | None
    outcome: ChangeState | None
    holdout: Annotated[HoldoutReport, AsStruct()] | None


class DriftEntry(BaseModel):
    """A setting that a policy had set and another program changed.

    cause: its name, if known; response: of the policy.
    """

    at: datetime
    node_id: int
    key: str
    expected: str
    found: str
    cause: str | None
    response: Ownership
    policy_id: int


class NodeFlows(BaseModel):
    """The node's processes that use the network now. at: None until the agent has reported them.

    exact: byte counts come from eBPF and include UDP; otherwise from TCP sockets only, and UDP is unknown.
    """

    at: datetime | None
    exact: bool
    tasks: list[Annotated[NetTask, AsStruct()]]


@dataclass(frozen=True)
class TimeFilter:
    """Query parameters that select the newest entries of a time range, at most limit of them; None: no bound."""

    from_time: AwareDatetime | None = None
    to_time: AwareDatetime | None = None
    limit: Annotated[int, Query(ge=1, le=500)] = 100
