"""What the API says about policies, their rollouts, and what nodes evaluate from them."""

from datetime import datetime
from enum import StrEnum
from typing import Annotated
from uuid import UUID

from pydantic import AwareDatetime, BaseModel, Field

from coresteer.changes.schemas import GuardrailIn, Reason
from coresteer.inputs import KEPT, Body, RowId, Spelt
from coresteer.structs import AsStruct, FromStruct
from coresteer_core.node.tasks import NetTask
from coresteer_core.policies import Spec
from coresteer_core.policies.base import Damping, Evaluation, Mode, Ownership, Scope
from coresteer_core.protocol import ChangeState

Glob = Annotated[str, Field(min_length=1, max_length=256), KEPT]
Globs = Annotated[list[Glob], Field(max_length=64)]
Guardrails = Annotated[list[GuardrailIn], Field(max_length=3)]


class Selector(Body):
    """The nodes a policy is for, by shell patterns. Of what is given all must fit; a list fits by any of its patterns.

    labels: patterns by a label's name. hostnames: of the node's name or its hostname. netdevs, drivers: of one of its
    netdevs. Nothing given is every node.
    """

    labels: dict[Annotated[str, Field(min_length=1, max_length=63), KEPT], Glob] = Field(default={}, max_length=32)
    hostnames: Globs = Field(default=[])
    netdevs: Globs = Field(default=[])
    drivers: Globs = Field(default=[])


class PolicyBody(Body):
    """All that a version of a policy holds. rank: of two that want the same setting the lower one has it."""

    name: Annotated[
        str,
        Field(min_length=1, max_length=80),
        Spelt(r"[^\x00-\x1f\x7f\ud800-\udfff]*[^\x00-\x20\x7f\ud800-\udfff]", "A name has no control characters."),
    ]
    rank: int = Field(default=100, ge=0, le=999)
    mode: Mode = Mode.OBSERVE
    spec: Annotated[Spec, FromStruct()]
    selector: Selector = Selector()
    scope: Annotated[Scope, FromStruct()] = Field(default={}, validate_default=True)
    damping: Annotated[Damping, FromStruct()] = Field(default={}, validate_default=True)
    on_controller: Ownership = Ownership.WARN
    on_drift: Ownership = Ownership.WARN
    guardrails: Guardrails = Field(default=[])


class PolicyVersionCreate(Body):
    """The next version of a policy. note: what it is for."""

    body: PolicyBody
    note: Reason = ""


class RolloutState(StrEnum):
    """canary: on its first nodes; batches: on the others in turn; stopped: stays where it is; undone: taken back."""

    CANARY = "canary"
    BATCHES = "batches"
    DONE = "done"
    STOPPED = "stopped"
    UNDONE = "undone"


class Rollout(BaseModel):
    """A version on its way to the nodes. from_version: what they had before, None for nothing.

    stages: node ids, the canary first; stage: the one that has the version last. done_nodes: whose wait is over.
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


class RolloutCreate(Body):
    """canary: nodes that get the version first; batch: how many get it at a time afterwards; wait_s: between these.

    guardrails: when one trips on a node of the rollout it is undone; the version's own ones if none are given.
    """

    version: RowId
    canary: int = Field(default=1, ge=1, le=1000)
    batch: int = Field(default=10, ge=1, le=1000)
    wait_s: float = Field(default=60, ge=0, le=86_400)
    guardrails: Guardrails | None = None


class RolloutStop(Body):
    """undo: the nodes that have the version already get back what they had."""

    undo: bool


class Policy(BaseModel):
    """A policy as it is in force. versions: how many there are; nodes: how many its selector fits.

    rollout: the one under way or stopped, None without.
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
    """One version; it never changes."""

    version: int
    body: PolicyBody
    created_at: datetime
    created_by: str
    note: str


class Difference(BaseModel):
    """One field that two versions differ in, as JSON text unless it is text; None where a version lacks it."""

    path: str
    was: str | None
    becomes: str | None


class PolicyPreviewRequest(Body):
    """A policy, kept or not, and the nodes to try it on. In the place of one of the same name, if there is one."""

    body: PolicyBody
    node_ids: list[RowId] = Field(min_length=1, max_length=50)


class NodeEvaluation(BaseModel):
    """What the policy would evaluate on a node now. view_age_s: of the load it looked at; error: why it cannot."""

    node_id: int
    node_name: str
    evaluation: Annotated[Evaluation, AsStruct()] | None
    view_age_s: float | None
    error: str | None


class BacktestRequest(Body):
    """A kept version, or a body in its place; the version in force if neither is given. At most an hour."""

    version: RowId | None = None
    body: PolicyBody | None = None
    node_id: RowId
    from_time: AwareDatetime
    to_time: AwareDatetime


class BacktestStep(BaseModel):
    """A round that came to something else than the one before it."""

    at: datetime
    evaluation: Annotated[Evaluation, AsStruct()]


class BacktestResult(BaseModel):
    """What the policy would have done. moves: settings it would have written; the range is what there is data for."""

    steps: list[BacktestStep]
    moves: int
    sentence: str
    from_time: datetime
    to_time: datetime


class Decision(BaseModel):
    """What a policy's round came to on a node. outcome: the state of the change that carries it out."""

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


class DriftEntry(BaseModel):
    """Somebody else changed a setting that a policy had set. cause: who, if known; response: what the policy did."""

    at: datetime
    node_id: int
    key: str
    expected: str
    found: str
    cause: str | None
    response: Ownership
    policy_id: int


class NodeFlows(BaseModel):
    """The processes that talk over the network now. at: None while the agent has not told any.

    exact: bytes come from eBPF and include UDP; otherwise from TCP sockets only, and UDP is not known.
    """

    at: datetime | None
    exact: bool
    tasks: list[Annotated[NetTask, AsStruct()]]
