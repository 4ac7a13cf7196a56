"""Schedule of an experiment's runs, validation of its shape, and rules that discard runs. Pure; randomized by the seed.

Comparisons of two run in blocks of four, ABBA or BAAB by a coin for each block: a drift that is linear over a block
adds the same to both arms and cancels, and the coins are what the randomisation test rests on (statistics.py; Fisher,
The Design of Experiments, 1935). The coins are free: balancing their number would make the test inexact. A sweep runs
in randomised complete blocks: every combination once, in a new random order for each block.
"""

from collections import Counter
from collections.abc import Sequence
from itertools import product
from math import prod
from random import Random

from coresteer.application_metrics.reading import PREFIX
from coresteer.experiments.spec import Arm, Attempt, PlannedRun, Spec
from coresteer_core.experiments.model import Classes, Command, Finite, Memory, RunResult
from coresteer_core.experiments.parallel_jobs import Bsp
from coresteer_core.metrics import EXPERIMENT_METRICS

MAX_RUNS = 2_000
MAX_COMBINATIONS = 4_096
"""Of a tune, which estimates every one after each block."""
RUN_OVERHEAD_S = 3.0
"""Duration of each run besides settling, warm-up and measuring: apply settings, start the load, restore."""
STEAL_LIMIT_PERCENT = 5.0
DURATION_TOLERANCE_S = 2.0
"""Metrics are per second of the actual measuring time; a node that deviates by more is overloaded."""
MIN_DURATION_S = 0.5
"""The kernel counts CPU time in steps of 10 ms, which is too coarse for shorter runs."""
MAX_ATTEMPTS = 3
"""A run that was discarded as often is left out."""
_MAX_SWEPT = 2
_FEWEST_COMBINATIONS = 4
_ORDERS = ((0, 1, 1, 0), (1, 0, 0, 1))


def all_arms(spec: Spec) -> list[Arm]:
    """Return every combination of levels of the spec's factors, the baseline first, the last factor varying fastest."""
    return list(product(*(range(len(factor.levels)) for factor in spec.factors)))


def single_changes(spec: Spec) -> list[Arm]:
    """Return the baseline and every arm that differs from it in one level."""
    baseline = (0,) * len(spec.factors)
    return [baseline] + [
        (*baseline[:place], level, *baseline[place + 1 :])
        for place, factor in enumerate(spec.factors)
        for level in range(1, len(factor.levels))
    ]


def arms_in_order(spec: Spec, runs: Sequence[PlannedRun]) -> list[Arm]:
    """Return the arms of an experiment in the order of their labels: those of a tune by their first run."""
    if spec.kind != "tune":
        return all_arms(spec)
    baseline = (0,) * len(spec.factors)
    return list(dict.fromkeys([baseline, *(run.arm for run in sorted(runs, key=lambda run: run.number))]))


def arm_name(spec: Spec, arm: Arm) -> str:
    """Return the names of the arm's levels, separated by commas."""
    names = (factor.levels[level].name for factor, level in zip(spec.factors, arm, strict=True))
    return ", ".join(names) or "current settings"


def plan_runs(spec: Spec, seed: int) -> list[PlannedRun]:
    """Return all runs of an experiment in order; an A/A experiment has spec.blocks blocks of stage aa and no others.

    Those of a tune follow from its results (tune/plan.py).
    The same seed gives the same runs with every version of Python: only Random.random() is used, which Python's
    documentation guarantees to be reproducible.
    """
    random = Random(seed)  # noqa: S311  the order has to be reproducible, not secret
    combinations = all_arms(spec)
    runs: list[PlannedRun] = []

    def add(stage: str, block: int, labels: tuple[int, ...] | list[int]) -> None:
        for label in labels:
            if stage == "aa":
                runs.append(PlannedRun(len(runs), "aa", block, label, combinations[0]))
            else:
                runs.append(PlannedRun(len(runs), "main", block, label, combinations[label]))

    for block in range(spec.blocks if spec.kind == "aa" else spec.aa_blocks):
        add("aa", block, _ORDERS[random.random() < 0.5])
    for block in range(0 if spec.kind == "aa" else spec.blocks):
        if spec.kind == "ab":
            add("main", block, _ORDERS[random.random() < 0.5])
        else:
            add("main", block, sorted(range(len(combinations)), key=lambda _: random.random()))
    return runs


def left_out(attempts: Sequence[Attempt]) -> set[int]:
    """Return the numbers of the runs that are not attempted again although none of their attempts counts."""
    discarded = Counter(attempt.number for attempt in attempts if attempt.discarded is not None)
    hopeless = {number for number, times in discarded.items() if times >= MAX_ATTEMPTS}
    hopeless |= {attempt.number for attempt in attempts if attempt.violated}
    return hopeless - {attempt.number for attempt in attempts if attempt.discarded is None}


def run_count(spec: Spec) -> int:
    """Return the number of runs in the experiment's schedule; of a tune, the most that it may take."""
    if spec.kind == "tune":
        return spec.tune.max_runs
    if spec.kind == "aa":
        return 4 * spec.blocks
    return 4 * spec.aa_blocks + spec.blocks * (4 if spec.kind == "ab" else len(all_arms(spec)))


def check_spec(spec: Spec) -> str | None:
    """Return in a sentence why this spec cannot be scheduled or decided, None if it can."""
    if problem := _shape_problem(spec) or _primary_problem(spec):
        return problem
    if (runs := run_count(spec)) > MAX_RUNS:
        return f"This spec has {runs} runs; the maximum is {MAX_RUNS}. Use fewer blocks or levels."
    return None


def _shape_problem(spec: Spec) -> str | None:
    levels = [len(factor.levels) for factor in spec.factors]
    if spec.kind == "tune":
        return _tune_problem(spec, prod(levels)) or _name_problem(spec)
    if spec.kind == "aa" and levels:
        return "An A/A experiment compares the node with itself; it must not have factors."
    if spec.kind == "ab" and levels != [2]:
        return "An A/B experiment has one factor with two levels; for more levels use a sweep."
    if spec.kind == "sweep" and (levels in ([], [2]) or len(levels) > _MAX_SWEPT):
        return (
            "A sweep has a factor with at least three levels, or two factors; for two levels use A/B, for more factors "
            "use a tune."
        )
    return _name_problem(spec)


def _name_problem(spec: Spec) -> str | None:
    named = [("factors", [factor.name for factor in spec.factors])]
    named += [(f"the levels of {factor.name}", [level.name for level in factor.levels]) for factor in spec.factors]
    for what, names in named:
        if len(set(names)) < len(names):
            return f"Two of {what} have the same name; names must be unique."
    return None


def _tune_problem(spec: Spec, combinations: int) -> str | None:
    if not _FEWEST_COMBINATIONS <= combinations <= MAX_COMBINATIONS:
        return (
            f"A tune searches {_FEWEST_COMBINATIONS} to {MAX_COMBINATIONS:,} combinations of levels; "
            f"this spec has {combinations:,}."
        )
    for name, metric in (("primary", spec.primary), ("second", spec.tune.latency)):
        known = EXPERIMENT_METRICS.get(metric)
        if known is None or not known.better:
            better = ", ".join(each for each, one in EXPERIMENT_METRICS.items() if one.better)
            return f"The {name} metric of a tune is one that is better when it is lower, or higher: {better}."
    if spec.primary == spec.tune.latency:
        return "The second metric of a tune must differ from the primary one."
    return None


def _primary_problem(spec: Spec) -> str | None:
    if spec.primary.startswith("command."):
        if not isinstance(spec.workload, Command):
            return f"The primary metric {spec.primary} is measured by a command, but the workload is not a command."
    elif spec.primary.startswith(PREFIX):
        if spec.primary.removeprefix(PREFIX) not in spec.application_metrics:
            return f"The primary metric {spec.primary} is not among the experiment's application metrics."
    elif spec.primary not in EXPERIMENT_METRICS:
        return f"There is no metric {spec.primary}; choose one of {', '.join(EXPERIMENT_METRICS)}."
    return None


def estimate_run_s(spec: Spec, arm: Arm) -> float:
    """Return the estimated duration of one run in the arm, s."""
    if isinstance(spec.workload, Memory | Bsp):
        return RUN_OVERHEAD_S + min(spec.measure_s, spec.workload.work_s)
    if isinstance(spec.workload, Classes):
        return RUN_OVERHEAD_S + min(spec.workload.limit_s, spec.workload.work_s)
    levels = [factor.levels[level] for factor, level in zip(spec.factors, arm, strict=True)]
    settles = any(level.policy or level.irqbalance for level in levels)
    return RUN_OVERHEAD_S + (spec.settle_s if settles else 0) + spec.warmup_s + spec.measure_s


def estimate_duration_s(spec: Spec) -> float:
    """Return the estimated duration of the experiment, s, without repetitions of discarded runs."""
    if spec.kind == "tune":
        slowest = max(estimate_run_s(spec, arm) for arm in single_changes(spec))
        return min(60 * spec.tune.max_minutes, run_count(spec) * slowest)
    baseline, *others = all_arms(spec)
    if spec.kind == "aa":
        return run_count(spec) * estimate_run_s(spec, baseline)
    times = 2 if spec.kind == "ab" else 1
    main = times * spec.blocks * sum(estimate_run_s(spec, arm) for arm in [baseline, *others])
    return 4 * spec.aa_blocks * estimate_run_s(spec, baseline) + main


def discard_reason(measured: RunResult, spec: Spec) -> str | None:
    """Return why a run is discarded by rule, None when it counts.

    The rules do not use the metrics, so they cannot favour a result.
    """
    if measured.disturbed:
        return measured.disturbed[0]
    if measured.steal_percent is not None and measured.steal_percent > STEAL_LIMIT_PERCENT:
        percent = f"{measured.steal_percent:.1f} %"
        return f"The hypervisor stole {percent} of the CPU time, more than {STEAL_LIMIT_PERCENT:.0f} %."
    if isinstance(spec.workload, Finite):
        if measured.duration_s < MIN_DURATION_S:
            return f"The run ended after {measured.duration_s:.2f} s; CPU metrics require at least {MIN_DURATION_S} s."
    elif abs(measured.duration_s - spec.measure_s) > DURATION_TOLERANCE_S:
        return (
            f"{measured.duration_s:.2f} s were measured instead of {spec.measure_s:g} s; "
            f"the tolerance is {DURATION_TOLERANCE_S:.0f} s."
        )
    return None
