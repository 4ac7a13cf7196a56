"""Response bodies of a policy's overview."""

from datetime import datetime

from pydantic import BaseModel

from coresteer.policies.schemas import VersionNodes


class PolicyOnNode(BaseModel):
    """A policy on one node. version: None where it is not in force. enforced: it may write there.

    settings: that it has set and that its end would restore. foreign: that it had set and another program has changed
    since; its end does not restore them. held_out: now, to measure its effect. deferred: moves of its latest decision
    that wait. recommended: changes that it proposes there now, in mode recommend. at: of its latest
    decision, None without one. moves, drifts: in the last 24 hours.
    """

    node_id: int
    node_name: str
    connected: bool
    version: int | None
    enforced: bool
    held_out: bool
    settings: int
    foreign: int
    deferred: int
    recommended: int
    moves: int
    drifts: int
    at: datetime | None


class DeferredCount(BaseModel):
    """Number of moves that wait for one reason, over all nodes. code: as in the decisions."""

    code: str
    moves: int
    nodes: int


class DriftCount(BaseModel):
    """Drifts by one cause in the last 24 hours. cause: None where it is unknown. restored: the policy wrote again."""

    cause: str | None
    drifts: int
    restored: int


class GuardrailUndo(BaseModel):
    """A change of the policy that a guardrail rolled back."""

    node_id: int
    node_name: str
    at: datetime
    sentence: str


class Recommended(BaseModel):
    """A change that the policy proposes on a node now, in mode recommend."""

    node_id: int
    node_name: str
    key: str
    was: str
    becomes: str
    reason: str


class NothingRecommended(BaseModel):
    """A node on which the policy is in mode recommend and proposes nothing now. sentence: its latest decision's."""

    node_id: int
    node_name: str
    sentence: str


class ClosedNodes(BaseModel):
    """Nodes that enforce a policy and are outside their change windows now: it writes nothing there.

    opens_at: when the first of them may be written on; None if not within 8 days.
    """

    nodes: int
    opens_at: datetime | None


class PolicyOverview(BaseModel):
    """What a policy does now and did in the last 24 hours.

    fleet: number of all nodes. versions: on how many nodes each version is in force. closed: None without such a node.
    nodes: those on which it is in force or still has settings, by name. recommendations: the first 50 present ones;
    recommended: their number. nothing_recommended: the first 50 nodes without one. guardrails: the newest 20;
    guardrail_undos: their number.
    """

    fleet: int
    versions: list[VersionNodes]
    closed: ClosedNodes | None
    nodes: list[PolicyOnNode]
    moves: int
    recommended: int
    recommendations: list[Recommended]
    nothing_recommended: list[NothingRecommended]
    deferred: list[DeferredCount]
    drifts: list[DriftCount]
    guardrail_undos: int
    guardrails: list[GuardrailUndo]
