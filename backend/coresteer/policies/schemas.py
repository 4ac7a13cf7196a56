"""Request and response bodies of policies, rollouts, decisions and drifts."""

from dataclasses import dataclass
from datetime import datetime
from typing import Annotated
from uuid import UUID

from fastapi import Query
from pydantic import AwareDatetime, BaseModel, Field

from coresteer.changes.schemas import DesiredValueIn, Reason
from coresteer.inputs import STORABLE, RequestBody, RowId, TextPattern
from coresteer.policies.proof_settings import ProofSettings
from coresteer.policies.rollout_schemas import Guardrails, Rollout, RolloutPace
from coresteer.structs import AsStruct, FormField, FromStruct
from coresteer_core.changes.guard import MAX_PLAN_ACTIONS
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
from coresteer_core.policies.response import Response
from coresteer_core.schema import labelled

Glob = Annotated[str, Field(min_length=1, max_length=256), STORABLE]
Globs = Annotated[list[Glob], Field(max_length=64)]


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


class RolloutStop(RequestBody):
    """Stop a rollout. roll_back: nodes that already have the version return to the one that they had before."""

    roll_back: bool


class VersionNodes(BaseModel):
    """On how many nodes a version of a policy is in force."""

    version: int
    nodes: int


class RolledBack(BaseModel):
    """A version that was taken out of force. why: a sentence."""

    version: int
    why: str


class Policy(BaseModel):
    """A policy with its current version. versions: their number; nodes: number of nodes that the selector matches.

    in_force: the versions that nodes have now, several during a rollout. rollout: the one in progress or stopped, None
    if there is none. rolled_back: the last version that a violation or a person's rollback took out of force. pace: of
    the latest rollout, or the one that was set since.
    """

    id: int
    name: str
    version: int
    versions: int
    body: PolicyBody
    enabled: bool
    nodes: int
    in_force: list[VersionNodes]
    created_at: datetime
    created_by: str
    rollout: Rollout | None
    rolled_back: RolledBack | None
    pace: RolloutPace


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


class SelectorMatches(BaseModel):
    """How many nodes a selector matches, of how many in the fleet.

    live: the first live ones by name, for a preview. others: of the nodes that were named, those that do not match.
    """

    nodes: int
    fleet: int
    live: list[int]
    others: list[int]


class NodeEvaluation(BaseModel):
    """Evaluation of a policy on a node. view_age_s: age of the newest sample; error: why there is no evaluation."""

    node_id: int
    node_name: str
    evaluation: Annotated[Evaluation, AsStruct()] | None
    view_age_s: float | None
    error: str | None


class PolicyResponsesRequest(RequestBody):
    """Values that a person may set on a node. rolled_back: by the rollback of a policy's unconfirmed change."""

    desired: list[DesiredValueIn] = Field(min_length=1, max_length=MAX_PLAN_ACTIONS)
    rolled_back: bool = False


class PolicyResponses(BaseModel):
    """What the enforced policies of a node do about values set there. stopped: enforcement is stopped, so nothing."""

    stopped: bool
    responses: list[Annotated[Response, AsStruct()]]


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
