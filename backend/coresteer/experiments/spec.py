"""Specification of an experiment, its schedule, runs and analysis, as requested and as stored."""

from typing import Annotated, Literal, NamedTuple, TypeAlias

from msgspec import Meta, Struct

from coresteer_core.changes.guard import MAX_PLAN_ACTIONS
from coresteer_core.changes.guardrail import VIOLATION_PERIOD, Guardrail
from coresteer_core.changes.plan import DesiredValue
from coresteer_core.experiments.model import Workload
from coresteer_core.experiments.workload_spec import CpuText
from coresteer_core.metrics import EXPERIMENT_METRICS
from coresteer_core.policies.base import MODE_FIELD, Mode
from coresteer_core.schema import labelled

Name: TypeAlias = Annotated[str, Meta(min_length=1, max_length=80)]
Kind: TypeAlias = Literal["aa", "ab", "sweep", "tune"]


_KINDS = {"aa": "A/A", "ab": "A/B", "sweep": "Sweep", "tune": "Tune"}
_KIND_HELP = {
    "aa": "Compares the node with itself: shows how large differences are without any change.",
    "ab": "Compares two levels of one factor, in blocks of four runs: ABBA or BAAB.",
    "sweep": "Compares each level of one factor, or each combination of two factors, with the first.",
    "tune": "Searches for the best combination of levels; poor ones are eliminated early, most without a run.",
}
_METRIC_LABELS = {
    name: ", ".join(filter(None, (metric.label, metric.unit))) for name, metric in EXPERIMENT_METRICS.items()
}


class PolicyLevel(Struct, frozen=True):
    """A stored version of a policy, in force on the node for the time of a run, in any mode."""

    policy_id: Annotated[int, Meta(ge=1, le=2**31 - 1), labelled("Policy")]
    version: Annotated[int, Meta(ge=1, le=2**31 - 1), labelled("Version")]
    mode: Annotated[Mode, MODE_FIELD] = Mode.ENFORCE


class Level(Struct, frozen=True):
    """One of the compared conditions. All fields empty: the node as it is, without any enforced policy.

    settings: applied for the duration of a run. irqbalance_cpus: to which alone irqbalance may move interrupts.
    workload: fields of the workload that differ, such as server_cpus. value: position of the level on a numeric axis,
    None if it has none. role: part of the level in a template, by which published values find it; its name may change.
    """

    name: Annotated[Name, labelled("Level name")]
    settings: Annotated[list[DesiredValue], Meta(max_length=MAX_PLAN_ACTIONS), labelled("Settings")] = []
    policy: Annotated[PolicyLevel | None, labelled("Policy")] = None
    irqbalance: Annotated[bool, labelled("irqbalance runs")] = False
    irqbalance_cpus: Annotated[
        CpuText,
        labelled("CPUs of irqbalance", "To which alone it moves interrupts.", format="cpu-list", placeholder="any"),
    ] = ""
    workload: Annotated[dict[str, str | int | bool], Meta(max_length=8), labelled("Workload")] = {}
    value: Annotated[float | None, labelled("Value on the axis", placeholder="none")] = None
    role: Annotated[str, Meta(max_length=80), labelled("Role")] = ""


class Factor(Struct, frozen=True):
    """A factor that is varied; its first level is the baseline. unit: of the levels' values."""

    name: Annotated[Name, labelled("Factor name")]
    levels: Annotated[list[Level], Meta(min_length=2, max_length=16), labelled("Levels")]
    unit: Annotated[str, Meta(max_length=20), labelled("Unit of the values", placeholder="none")] = ""


class Tune(Struct, frozen=True, kw_only=True):
    """What a tune searches for besides the best primary metric, and when it ends at the latest."""

    latency: Annotated[
        str,
        Meta(min_length=1, max_length=100),
        labelled(
            "Second metric",
            "The result shows the best values of both metrics, and a limit on this one.",
            options=_METRIC_LABELS,
        ),
    ] = "rtt_p99_us"
    limit: Annotated[
        Annotated[float, Meta(ge=0, le=1e18)] | None,
        labelled(
            "Limit of the second metric",
            "In its unit; a combination that exceeds it is eliminated.",
            placeholder="no limit",
        ),
    ] = None
    max_runs: Annotated[
        int, Meta(ge=12, le=240), labelled("Maximum runs", "The search ends earlier when nothing better is expected.")
    ] = 60
    max_minutes: Annotated[float, Meta(ge=1, le=1440), labelled("Maximum duration", unit="min")] = 60.0


class Spec(Struct, frozen=True, kw_only=True):
    """Specification of an experiment on one node.

    aa: no factor; the node is compared with itself. ab: one factor with two levels. sweep: one or two factors, every
    combination of their levels. tune: any number of factors, some combinations of their levels. A block of aa and ab is
    four runs (ABBA or BAAB), one of a sweep is every combination once, one of a tune is the baseline and what the
    search chose (tune/search.py). settle_s: after a level with a policy or irqbalance was put in force, before its run.
    template: from which it was made, empty for none. application_metrics: by name; the primary metric and guardrails
    name one as ``app.NAME``.
    """

    name: Annotated[Name, labelled("Name", "Shown in lists and in reports.")]
    kind: Annotated[Kind, labelled("Kind", options=_KINDS, option_help=_KIND_HELP)]
    node_id: Annotated[int, Meta(ge=1, le=2**31 - 1), labelled("Node")]
    workload: Annotated[Workload, labelled("Workload")]
    primary: Annotated[
        str,
        Meta(min_length=1, max_length=100),
        labelled(
            "Primary metric",
            "The result of the experiment depends on this metric alone; the others are reported too.",
            options=_METRIC_LABELS,
        ),
    ]
    peer_node_id: Annotated[
        Annotated[int, Meta(ge=1, le=2**31 - 1)] | None,
        labelled("Traffic source", placeholder="the node itself, from a network namespace"),
    ] = None
    factors: Annotated[list[Factor], Meta(max_length=6), labelled("Factors")] = []
    tune: Annotated[Tune, labelled("Search")] = Tune()
    warmup_s: Annotated[
        float, Meta(ge=0.5, le=60), labelled("Warm-up", "Time under load before each measurement.", unit="s")
    ] = 2.0
    measure_s: Annotated[
        float,
        Meta(ge=1, le=300),
        labelled(
            "Measurement",
            "Duration of the measurement of each run; at most, where the workload ends by itself (service classes may "
            "take longer, as their number of requests requires).",
            unit="s",
        ),
    ] = 10.0
    settle_s: Annotated[
        float,
        Meta(ge=0, le=120),
        labelled("Settling time", "Waiting time before a run, after a policy or irqbalance was started.", unit="s"),
    ] = 20.0
    blocks: Annotated[
        int,
        Meta(ge=3, le=50),
        labelled("Blocks", "Number of blocks of runs in the comparison; more blocks detect smaller differences."),
    ] = 6
    aa_blocks: Annotated[
        int,
        Meta(ge=3, le=50),
        labelled("A/A blocks", "Number of blocks that compare the baseline with itself, before the comparison."),
    ] = 6
    seed: Annotated[
        Annotated[int, Meta(ge=0, le=2**31 - 1)] | None,
        labelled(
            "Seed", "Number that determines the randomized order of the runs.", group="advanced", placeholder="random"
        ),
    ] = None
    guardrails: Annotated[
        list[Guardrail],
        Meta(max_length=3),
        labelled(
            "Guardrails",
            f"The experiment stops and restores all settings when a metric exceeds its bound {VIOLATION_PERIOD}.",
        ),
    ] = []
    application_metrics: Annotated[
        list[Annotated[str, Meta(min_length=1, max_length=40)]],
        Meta(max_length=8),
        labelled(
            "Application metrics", "Prometheus queries that are measured in each run, as declared in the settings."
        ),
    ] = []
    template: Annotated[str, Meta(max_length=40), labelled("Template")] = ""


Arm: TypeAlias = tuple[int, ...]
"""The index of a level of each factor; () is the node as it is. The baseline arm is all zeros."""


class PlannedRun(Struct, frozen=True):
    """One run of the schedule. number: from 0, in chronological order. stage aa: both labels are the baseline arm.

    label: 0 or 1 in blocks of four; in a sweep the arm's index in the list of combinations, in a tune in that of those
    measured, the baseline first.
    """

    number: int
    stage: Literal["aa", "main"]
    block: int
    label: int
    arm: Arm


class RecordedRun(Struct, frozen=True, kw_only=True):
    """The result of one attempt at a run. discarded: the reason by rule, None when it counts.

    attempt: from 0 for each run of the schedule. load_before: load average before the run, None if it was abandoned.
    missing: reasons why application metrics have no value, by metric.
    violated: it was abandoned because of a guardrail, so that a tune does not repeat it.
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
    missing: dict[str, str] = {}
    violated: bool = False


class Attempt(NamedTuple):
    """One attempt at a run of the schedule. discarded: the reason, None when the run counts. violated: a guardrail."""

    number: int
    attempt: int
    discarded: str | None
    violated: bool = False


class Interval(Struct, frozen=True):
    """An estimate with its 95 % confidence interval."""

    value: float
    low: float
    high: float


Verdict: TypeAlias = Literal["higher", "lower", "no-difference", "unsteady", "too-few"]
"""no-difference: the interval contains 0. unsteady: the A/A difference is as large. too-few: fewer than six complete
blocks of four."""


class Comparison(Struct, frozen=True, kw_only=True):
    """A level compared with the baseline in one metric; blocks are the unit of analysis.

    effect: relative, 0.10 is 10 % above the baseline; None if it is undefined (the baseline is 0).
    baseline, level: means over runs. p: of the randomisation test, adjusted for the number of levels of a sweep, whose
    intervals are simultaneous: 0 is outside exactly when p is at most 0.05 (statistics.py).
    minimum_detectable: the relative difference that this experiment detects with 80 % probability.
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
    """Trend of a metric over a numeric factor. rho: Spearman's, mean over blocks, None where it is undefined."""

    metric: str
    factor: int
    rho: float | None
    p: float | None


class Analysis(Struct, frozen=True, kw_only=True):
    """Statistics of an experiment's runs; the same runs and seed give the same analysis.

    noise: the A/A comparison by metric. means: mean and interval of every arm, by metric, in the order of arms.
    counted, discarded: number of runs.
    """

    metrics: list[str]
    noise: dict[str, Comparison]
    arms: list[Arm]
    means: dict[str, list[Interval | None]]
    comparisons: list[Comparison]
    trends: list[Trend]
    counted: int
    discarded: int
