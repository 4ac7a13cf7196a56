"""Rate of false positives of an experiment, and its power to detect a difference of 10 %.

Complete simulated experiments: the schedule's order, runs whose logarithms have noise in chronological order, and the
analysis of the product. A run deviates by 5 % (standard deviation), a drift moves the node by 50 % over the experiment.
"""

import math
import sys
import time
from collections.abc import Callable

import numpy as np

from coresteer.experiments.analysis import analyse
from coresteer.experiments.schedule import plan_runs
from coresteer.experiments.spec import Analysis, Factor, Kind, Level, RecordedRun, Spec
from coresteer.experiments.statistics import Numbers
from coresteer_core.experiments.model import Observe

FIGURE = "throughput_bit_per_s"
DEVIATION, DRIFT, PLANTED = 0.05, 10.0, 0.10


def autocorrelated(noise: Numbers) -> Numbers:
    """Return AR(1) noise with 0.8, of the same variance."""
    noise = noise.copy()
    for run in range(1, len(noise)):
        noise[run] = 0.8 * noise[run - 1] + 0.6 * noise[run]
    return noise


NOISES: dict[str, Callable[[np.random.Generator, int], Numbers]] = {
    "normal": lambda random, runs: random.standard_normal(runs),
    "Student t, 3": lambda random, runs: random.standard_t(3, runs) / math.sqrt(3),
    "log-normal": lambda random, runs: (random.lognormal(0, 1, runs) - math.exp(0.5)) / 2.16,
    "drift": lambda random, runs: random.standard_normal(runs) + np.linspace(0, DRIFT, runs),
    "AR(1)": lambda random, runs: autocorrelated(random.standard_normal(runs)),
    "t, drift, AR(1)": lambda random, runs: (
        autocorrelated(random.standard_t(3, runs) / math.sqrt(3)) + np.linspace(0, DRIFT, runs)
    ),
}


def spec_of(kind: Kind, levels: int, blocks: int) -> Spec:
    factors = [Factor("f", [Level(str(level), value=float(level)) for level in range(levels)])] if levels else []
    return Spec(
        name="simulated",
        kind=kind,
        node_id=1,
        workload=Observe(),
        primary=FIGURE,
        factors=factors,
        blocks=blocks,
        aa_blocks=6,
    )


def simulate(spec: Spec, seed: int, noise: str, effects: dict[int, float], noisy: dict[int, float]) -> Analysis:
    """Simulate one experiment. effects: relative, by label of the main stage. noisy: factors of the deviation."""
    places = plan_runs(spec, seed)
    deviations = NOISES[noise](np.random.default_rng([seed, 1]), len(places))
    runs = []
    for place, deviation in zip(places, deviations, strict=True):
        label = place.label if place.stage == "main" else 0
        figure = 1e9 * (1 + effects.get(label, 0.0)) * math.exp(DEVIATION * noisy.get(label, 1.0) * deviation)
        runs.append(
            RecordedRun(
                planned=place,
                attempt=0,
                started_ms=0,
                duration_s=10.0,
                figures={FIGURE: figure},
                cpus={},
                load_before=0.0,
                steal_percent=None,
            )
        )
    return analyse(spec, seed, runs)


def is_detected(analysis: Analysis, labels: list[int]) -> bool:
    """Return whether one of these labels was found to differ from the baseline."""
    return any(analysis.comparisons[label - 1].verdict in {"higher", "lower"} for label in labels)


def differs_from_itself(analysis: Analysis) -> bool:
    return analysis.noise[FIGURE].verdict in {"higher", "lower"}


def includes_effects(analysis: Analysis, effects: dict[int, float]) -> bool:
    """Return whether all intervals include the true effects."""
    intervals = [comparison.effect for comparison in analysis.comparisons]
    truths = [effects.get(label, 0.0) for label in range(1, len(intervals) + 1)]
    return all(
        interval is not None and interval.low <= truth <= interval.high
        for interval, truth in zip(intervals, truths, strict=True)
    )


def row(kind: Kind, levels: int, blocks: int, noise: str, *, count: int, noisy: dict[int, float] | None = None) -> None:
    """Print one row: without an effect, then with 10 % more at the second label."""
    spec, noisy = spec_of(kind, levels, blocks), noisy or {}
    nothing = [simulate(spec, seed, noise, {}, noisy) for seed in range(count)]
    planted = [simulate(spec, seed, noise, {1: PLANTED}, noisy) for seed in range(count)]
    others = list(range(2, levels))
    alarms = sum(is_detected(each, [1, *others]) for each in nothing) / count
    beside = f"{sum(is_detected(each, others) for each in planted) / count:8.1%}" if others else " " * 8
    held = sum(includes_effects(each, {1: PLANTED}) for each in planted) / count
    power = sum(is_detected(each, [1]) for each in planted) / count
    visible = np.median([each.comparisons[0].minimum_detectable or math.nan for each in planted])
    name = f"{kind} {levels} × {blocks}" + (" noisy arm" if noisy else "")
    print(f"{name:24}{noise:18}{alarms:8.1%}{beside}{held:8.1%}{power:8.1%}{visible:10.1%}", flush=True)


def main() -> None:
    """Print the 30 A/A experiments, then rates; the argument is the number of experiments per row."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 2_000
    began = time.perf_counter()
    aa = spec_of("aa", 0, 6)
    for many in (30, count):
        for noise in NOISES:
            alarms = sum(differs_from_itself(simulate(aa, seed, noise, {}, {})) for seed in range(many))
            print(f"A/A, 6 blocks, {noise:18}{alarms:5} of {many} seeds found a difference ({alarms / many:.1%})")
    print("\nlevels × blocks         noise              false  beside   holds   finds  smallest")
    print("                                          alarms  a true   truth    10 %   visible")
    for blocks in (6, 8, 12):
        for noise in NOISES:
            row("ab", 2, blocks, noise, count=count)
    for levels, blocks in ((3, 5), (5, 3), (10, 3), (3, 6), (10, 6), (10, 12)):
        for noise in NOISES:
            row("sweep", levels, blocks, noise, count=max(count // 4, 30))
    for levels, blocks in ((3, 6), (10, 6)):
        row("sweep", levels, blocks, "normal", count=max(count // 4, 30), noisy={levels - 1: 3.0})
    print(f"\n{time.perf_counter() - began:.0f} s")


if __name__ == "__main__":
    main()
