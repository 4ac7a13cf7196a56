"""Experiments as they are requested and stored."""

from typing import Annotated, Literal, TypeAlias

from msgspec import Meta, Struct

from coresteer_core.changes.guardrail import Guardrail
from coresteer_core.changes.plan import DesiredValue
from coresteer_core.experiments.model import Workload
from coresteer_core.policies.base import Mode

Name: TypeAlias = Annotated[str, Meta(min_length=1, max_length=80)]
Kind: TypeAlias = Literal["aa", "ab", "sweep"]


class PolicyLevel(Struct, frozen=True):
    """A kept version of a policy, in force on the node for the time of a run, in any mode."""

    policy_id: Annotated[int, Meta(ge=1, le=2**31 - 1)]
    version: Annotated[int, Meta(ge=1, le=2**31 - 1)]
    mode: Mode = Mode.ENFORCE


class Level(Struct, frozen=True):
    """One of the things compared. All empty: the node as it is, without any enforced policy.

    settings: applied for the time of a run. workload: fields of the workload that differ, such as server_cpus.
    value: what the level stands for on a numeric axis, None where it is none.
    """

    name: Name
    settings: Annotated[list[DesiredValue], Meta(max_length=64)] = []
    policy: PolicyLevel | None = None
    irqbalance: bool = False
    workload: Annotated[dict[str, str | int | bool], Meta(max_length=8)] = {}
    value: float | None = None


class Factor(Struct, frozen=True):
    """What is varied. The first level is the baseline. unit: of the levels' values."""

    name: Name
    levels: Annotated[list[Level], Meta(min_length=2, max_length=16)]
    unit: Annotated[str, Meta(max_length=20)] = ""


class Spec(Struct, frozen=True, kw_only=True):
    """An experiment on one node.

    aa: no factor; the node is compared with itself. ab: one factor with two levels. sweep: one or two factors, every
    combination of their levels. primary: the figure that decides, named before anything is measured. blocks: of the
    comparison; aa_blocks: of the node with itself before it. A block of aa and ab is four runs (ABBA or BAAB), one of a
    sweep is every combination once. seed: of all that is left to chance; None draws one. settle_s: after a level with
    a policy or irqbalance was put in force, before its run. template: from which it was made, empty for none.
    """

    name: Name
    kind: Kind
    node_id: Annotated[int, Meta(ge=1, le=2**31 - 1)]
    workload: Workload
    primary: Annotated[str, Meta(min_length=1, max_length=100)]
    peer_node_id: Annotated[int, Meta(ge=1, le=2**31 - 1)] | None = None
    factors: Annotated[list[Factor], Meta(max_length=2)] = []
    warmup_s: Annotated[float, Meta(ge=0.5, le=60)] = 2.0
    measure_s: Annotated[float, Meta(ge=1, le=300)] = 10.0
    settle_s: Annotated[float, Meta(ge=0, le=120)] = 20.0
    blocks: Annotated[int, Meta(ge=3, le=50)] = 6
    aa_blocks: Annotated[int, Meta(ge=3, le=50)] = 6
    seed: Annotated[int, Meta(ge=0, le=2**31 - 1)] | None = None
    guardrails: Annotated[list[Guardrail], Meta(max_length=3)] = []
    template: Annotated[str, Meta(max_length=40)] = ""


Arm: TypeAlias = tuple[int, ...]
"""The number of a level of each factor; () is the node as it is. The baseline arm is all zeros."""


class PlannedRun(Struct, frozen=True):
    """One run of the schedule. number: from 0 in the order of running. stage aa: both labels are the baseline arm.

    label: 0 or 1 in blocks of four; in a sweep the arm's place in the list of combinations.
    """

    number: int
    stage: Literal["aa", "main"]
    block: int
    label: int
    arm: Arm


class RecordedRun(Struct, frozen=True, kw_only=True):
    """A run that counts, or one that was discarded by rule with the reason, as statistics and reports take it.

    attempt: 0 for the first try at its place of the schedule. load_before: None where the run got lost on its way.
    """

    planned: PlannedRun
    attempt: int
    started_ms: int
    duration_s: float
    figures: dict[str, float]
    cpus: dict[str, list[float | None]]
    load_before: float | None
    steal_percent: float | None
    discarded: str | None = None


class Interval(Struct, frozen=True):
    """An estimate with its 95 % confidence interval."""

    value: float
    low: float
    high: float


Verdict: TypeAlias = Literal["higher", "lower", "no-difference", "unsteady", "too-few"]
"""no-difference: the interval holds 0. unsteady: the node differs from itself as much. too-few: runs are lacking, of
blocks of four the sixth complete one."""


class Comparison(Struct, frozen=True, kw_only=True):
    """A level against the baseline in one figure, with blocks as the unit.

    effect: relative, 0.10 is 10 % more than the baseline; None where it cannot be said (the baseline is 0).
    baseline, level: means over runs. p: of the randomisation test, adjusted for the number of levels of a sweep, whose
    intervals are simultaneous: 0 is outside exactly when p is at most 0.05 (statistics.py).
    smallest_visible: the relative difference that this experiment would have found with 80 % probability.
    """

    metric: str
    arm: Arm
    baseline: Interval | None
    level: Interval | None
    effect: Interval | None
    p: float | None
    minimum_detectable: float | None
    blocks: int
    verdict: Verdict


class Trend(Struct, frozen=True):
    """How a figure goes with a numeric factor. rho: Spearman's, the mean over blocks, None where it is not defined."""

    metric: str
    factor: int
    rho: float | None
    p: float | None


class Analysis(Struct, frozen=True, kw_only=True):
    """All that is concluded from the runs. Pure: the same runs and seed give the same.

    noise: the node against itself, by metric. arms: mean and interval of every arm, by metric, in order of arms.
    """

    metrics: list[str]
    noise: dict[str, Comparison]
    arms: list[Arm]
    means: dict[str, list[Interval | None]]
    comparisons: list[Comparison]
    trends: list[Trend]
    counted: int
    discarded: int
