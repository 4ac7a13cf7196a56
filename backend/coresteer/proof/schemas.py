"""Response bodies of the proof of policies."""

from datetime import datetime

from pydantic import BaseModel

from coresteer.proof.exclusion import Exclusion
from coresteer.proof.verdict import Finding


class ProvenEffect(BaseModel):
    """A relative effect with its interval, which is valid at any time: −0.031 is 3.1 % less than without the policy.

    low, high: None while there are too few blocks for an interval.
    """

    estimate: float
    low: float | None
    high: float | None
    episodes: int


class EffectAt(ProvenEffect):
    """The effect as it was known at a time."""

    at: datetime


class ExpectedDetection(BaseModel):
    """A relative effect that will have been detected by a time, if it is there."""

    effect: float
    at: datetime


class MetricProof(BaseModel):
    """What the evidence says about one metric of a version.

    primary: otherwise a guardrail. alpha: probability that the interval ever excludes the true effect. finding_since:
    when the finding became what it is. detectable: the effect that would have been detected by now. course: the effect
    over time, at most 200 points.
    """

    metric: str
    label: str
    primary: bool
    alpha: float
    finding: Finding
    finding_since: datetime | None
    effect: ProvenEffect | None
    detectable: float | None
    expected: ExpectedDetection | None
    sentence: str
    course: list[EffectAt]


class GroupProof(BaseModel):
    """The effect on the primary metric on the nodes with one value of a label. It has an interval of its own."""

    value: str
    finding: Finding
    effect: ProvenEffect | None
    sentence: str


class ExcludedCount(BaseModel):
    """Number of episodes that do not count for a reason. enforced, holdout: for what happened in that block."""

    reason: Exclusion
    sentence: str
    episodes: int
    enforced: int
    holdout: int


class ExclusionBalance(BaseModel):
    """For which of their blocks episodes were excluded, of all that have ended; biased: more than chance explains."""

    ended: int
    enforced: int
    holdout: int
    biased: bool
    sentence: str


class SavedCores(BaseModel):
    """CPUs that a policy saves, with their interval; negative where it costs CPU."""

    estimate: float
    low: float
    high: float


class VersionProof(BaseModel):
    """The proof of one version of a policy.

    nodes: with episodes that count. running, waiting: episodes in progress, and those whose samples are not complete
    yet. washout_s: what is left out at the beginning of each block. cores: None unless the primary metric is about CPU
    time and its interval is known. factors: what else was recorded with the blocks, each value with its number of
    episodes.
    """

    version: int
    started_at: datetime
    nodes: int
    episodes: int
    running: int
    waiting: int
    excluded: list[ExcludedCount]
    balance: ExclusionBalance
    block_s: float
    washout_s: float
    metrics: list[MetricProof]
    groups: list[GroupProof]
    cores: SavedCores | None
    factors: dict[str, dict[str, int]]
    rolled_back_at: datetime | None
    sentence: str


class PolicyProof(BaseModel):
    """The proof of a policy, newest version first. label: by whose values the groups are; labels: the others.

    versions: the latest 20, and the one in force.
    """

    policy_id: int
    paused_at: datetime | None
    paused_by: str | None
    sentence: str
    label: str | None
    labels: list[str]
    versions: list[VersionProof]


class PolicyProofLine(BaseModel):
    """One line about an enabled policy in mode enforce. since: beginning of the proof of its version."""

    policy_id: int
    name: str
    version: int
    nodes: int
    since: datetime | None
    metric: str
    finding: Finding
    effect: ProvenEffect | None
    cores: SavedCores | None
    sentence: str


class FleetProof(BaseModel):
    """The proofs of all policies in force. cores: saved by all together; None where no policy has an interval."""

    paused_at: datetime | None
    paused_by: str | None
    sentence: str
    cores: SavedCores | None
    policies: list[PolicyProofLine]
