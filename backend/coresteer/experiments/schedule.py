"""Which run comes when, what an experiment may look like, and which runs do not count. Pure; all chance is the seed's.

Comparisons of two run in blocks of four, ABBA or BAAB by a coin for each block: a drift that is linear over a block
adds the same to both arms and cancels, and the coins are what the randomisation test rests on (statistics.py; Fisher,
The Design of Experiments, 1935). The coins are free: balancing their number would make the test inexact. A sweep runs
in randomised complete blocks: every combination once, in an order drawn anew for each block.
"""

from itertools import product
from random import Random

from coresteer.experiments.spec import Arm, PlannedRun, Spec
from coresteer_core.experiments.model import METRICS, Classes, Command, Measured

MOST_RUNS = 2_000
RUN_OVERHEAD_S = 3.0
"""Of each run, beside settling, warm-up and measuring: applying its settings, starting its load and putting back."""
STEAL_LIMIT_PERCENT = 5.0
OFF_LIMIT_S = 2.0
"""Figures are per second of the time that was really measured; a node that is later than this cannot keep up."""
SHORTEST_S = 0.5
"""The kernel counts CPU time in steps of 10 ms; in less time than this it says too little."""
_ORDERS = ((0, 1, 1, 0), (1, 0, 0, 1))


def arms(spec: Spec) -> list[Arm]:
    """Return every combination of levels, the baseline first, the last factor varying fastest."""
    return list(product(*(range(len(factor.levels)) for factor in spec.factors)))


def arm_name(spec: Spec, arm: Arm) -> str:
    """Return the names of its levels in one line."""
    names = (factor.levels[level].name for factor, level in zip(spec.factors, arm, strict=True))
    return ", ".join(names) or "as it is"


def plan_runs(spec: Spec, seed: int) -> list[PlannedRun]:
    """Return all runs in their order. Of kind aa there are only blocks of the stage aa, as many as spec.blocks.

    The same seed gives the same runs with every version of Python: only Random.random() is used, which Python's
    documentation keeps reproducible.
    """
    random = Random(seed)  # noqa: S311  the order has to be reproducible, not secret
    everything = arms(spec)
    places: list[PlannedRun] = []

    def add(stage: str, block: int, labels: tuple[int, ...] | list[int]) -> None:
        for label in labels:
            if stage == "aa":
                places.append(PlannedRun(len(places), "aa", block, label, everything[0]))
            else:
                places.append(PlannedRun(len(places), "main", block, label, everything[label]))

    for block in range(spec.blocks if spec.kind == "aa" else spec.aa_blocks):
        add("aa", block, _ORDERS[random.random() < 0.5])
    for block in range(0 if spec.kind == "aa" else spec.blocks):
        if spec.kind == "ab":
            add("main", block, _ORDERS[random.random() < 0.5])
        else:
            add("main", block, sorted(range(len(everything)), key=lambda _: random.random()))
    return places


def run_count(spec: Spec) -> int:
    """Return how many runs the whole schedule has."""
    if spec.kind == "aa":
        return 4 * spec.blocks
    return 4 * spec.aa_blocks + spec.blocks * (4 if spec.kind == "ab" else len(arms(spec)))


def check_spec(spec: Spec) -> str | None:
    """Return why this cannot be scheduled or decided, in a sentence, or None."""
    if problem := _shape_problem(spec) or _primary_problem(spec):
        return problem
    if (runs := run_count(spec)) > MOST_RUNS:
        return f"This would be {runs} runs; at most {MOST_RUNS} are allowed: take fewer blocks or levels."
    return None


def _shape_problem(spec: Spec) -> str | None:
    levels = [len(factor.levels) for factor in spec.factors]
    if spec.kind == "aa" and levels:
        return "An A/A experiment compares the node with itself and has no factor: leave factors empty."
    if spec.kind == "ab" and levels != [2]:
        return "An A/B experiment has one factor with two levels; for more, make it a sweep."
    if spec.kind == "sweep" and (not levels or levels == [2]):
        return "A sweep has a factor with at least three levels, or two factors; to compare two levels, make it A/B."
    named = [("factors", [factor.name for factor in spec.factors])]
    named += [(f"the levels of {factor.name}", [level.name for level in factor.levels]) for factor in spec.factors]
    for what, names in named:
        if len(set(names)) < len(names):
            return f"Two of {what} have the same name; give each its own."
    return None


def _primary_problem(spec: Spec) -> str | None:
    if spec.primary.startswith("command."):
        if not isinstance(spec.workload, Command):
            return f"The primary figure {spec.primary} comes from a command, but the workload is none."
    elif spec.primary not in METRICS:
        return f"There is no figure {spec.primary}; choose one of {', '.join(METRICS)}."
    return None


def run_s(spec: Spec, arm: Arm) -> float:
    """Return about how long one run takes, s."""
    levels = [factor.levels[level] for factor, level in zip(spec.factors, arm, strict=True)]
    settles = any(level.policy or level.irqbalance for level in levels)
    return RUN_OVERHEAD_S + (spec.settle_s if settles else 0) + spec.warmup_s + spec.measure_s


def duration_s(spec: Spec) -> float:
    """Return about how long the whole takes, s, when no run has to be tried again."""
    baseline, *others = arms(spec)
    if spec.kind == "aa":
        return run_count(spec) * run_s(spec, baseline)
    times = 2 if spec.kind == "ab" else 1
    main = times * spec.blocks * sum(run_s(spec, arm) for arm in [baseline, *others])
    return 4 * spec.aa_blocks * run_s(spec, baseline) + main


def discard_reason(measured: Measured, spec: Spec) -> str | None:
    """Return by which rule this run does not count, or None. It never looks at the figures, so it cannot favour any."""
    if measured.disturbed:
        return measured.disturbed[0]
    if measured.steal_percent is not None and measured.steal_percent > STEAL_LIMIT_PERCENT:
        return (
            f"The host took {measured.steal_percent:.1f} % of the CPU time away, more than {STEAL_LIMIT_PERCENT:.0f} %."
        )
    if isinstance(spec.workload, Classes | Command):
        if measured.duration_s < SHORTEST_S:
            return f"It ended after {measured.duration_s:.2f} s, less than the {SHORTEST_S} s that CPU figures need."
    elif abs(measured.duration_s - spec.measure_s) > OFF_LIMIT_S:
        return (
            f"{measured.duration_s:.2f} s were measured instead of {spec.measure_s:g} s, "
            f"more than {OFF_LIMIT_S:.0f} s off."
        )
    return None
