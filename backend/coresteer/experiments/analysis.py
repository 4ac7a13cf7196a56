"""Statistical analysis of the runs of an experiment. Pure: the same spec, seed and runs give the same analysis.

One rule for every verdict: higher or lower when the 95 % interval of the effect lies above or below 0, which is when p
is at most 0.05 (statistics.py). The primary metric is chosen before the first run; each of the others is tested at 5 %
by itself, so among 27 of them one or two differ by chance.

Metrics are compared as logarithms, so that effects are ratios and do not depend on the unit; a metric that is 0 or
negative in some run is compared by differences relative to the baseline's mean. A block counts for a metric when all
its runs have it.
"""

from collections import defaultdict
from collections.abc import Sequence, Set

import numpy as np

from coresteer.experiments.schedule import arms_in_order
from coresteer.experiments.spec import (
    Analysis,
    Arm,
    Comparison,
    Interval,
    RecordedRun,
    Spec,
    Trend,
    Verdict,
)
from coresteer.experiments.statistics import (
    Estimates,
    Numbers,
    compare_many_arms,
    compare_two_arms,
    mean_interval,
    trend,
)
from coresteer_core.metrics import EXPERIMENT_METRICS

_NOTHING = 1e-12
_IMPLAUSIBLE = 1e30


def analyse(spec: Spec, seed: int, runs: Sequence[RecordedRun], *, unmeasured: Set[str] = frozenset()) -> Analysis:
    """Return the analysis of an experiment's runs so far, in any order; discarded ones are only counted.

    unmeasured: metrics to omit, because they say nothing about the experiment's load.
    The error rates hold for the analysis after the last run: stopping at the first significant difference increases
    the rate of false positives.
    """
    by_number = {run.planned.number: run for run in runs if run.discarded is None}
    counted = [run for _, run in sorted(by_number.items())]
    found = {metric for run in counted for metric in run.figures} - unmeasured
    metrics = [metric for metric in EXPERIMENT_METRICS if metric in found] + sorted(found - set(EXPERIMENT_METRICS))
    arms = arms_in_order(spec, [run.planned for run in runs])
    noise_runs = _cube(counted, "aa", 2, 2, metrics)
    if spec.kind == "aa":
        main = noise_runs.reshape(*noise_runs.shape[:2], 1, 4)
    elif spec.kind == "ab":
        main = _cube(counted, "main", 2, 2, metrics)
    else:
        main = _cube(counted, "main", len(arms), 1, metrics)

    noise: dict[str, Comparison] = {}
    means: dict[str, list[Interval | None]] = {}
    comparisons: list[Comparison] = []
    trends: list[Trend] = []
    for metric, itself, values in zip(metrics, noise_runs, main, strict=True):
        means[metric] = _kept_means(values)
        if spec.kind == "tune":  # its estimates are those of tune/plan.py, and its verdict is a new experiment's
            continue
        (noise[metric],) = _compare(metric, [arms[0]], itself, seed, None, kept=_kept_means(itself))
        means[metric][0] = means[metric][0] or _mean(itself.reshape(len(itself), 4))
        if spec.kind != "aa":
            comparisons += _compare(metric, arms[1:], values, seed, noise[metric].effect, kept=means[metric])
        if spec.kind == "sweep":
            trends += _trends(metric, spec, values[:, :, 0], seed)
    return Analysis(
        metrics=metrics,
        noise=noise,
        arms=arms,
        means=means,
        comparisons=comparisons,
        trends=trends,
        counted=len(counted),
        discarded=len(runs) - len(counted),
    )


def _cube(runs: Sequence[RecordedRun], stage: str, labels: int, times: int, metrics: list[str]) -> Numbers:
    """Return metrics × blocks × labels × times of a label in a block, NaN where a value is missing or implausible."""
    blocks = 1 + max((run.planned.block for run in runs if run.planned.stage == stage), default=-1)
    cube = np.full((len(metrics), blocks, labels, times), np.nan)
    times_seen: dict[tuple[int, int], int] = defaultdict(int)
    for run in runs:
        if run.planned.stage == stage:
            cell = run.planned.block, run.planned.label
            cube[:, *cell, times_seen[cell]] = [run.figures.get(metric, np.nan) for metric in metrics]
            times_seen[cell] += 1
    cube[~(np.abs(cube) < _IMPLAUSIBLE)] = np.nan
    return cube


def _kept_means(values: Numbers) -> list[Interval | None]:
    """Return the mean of each label over all kept runs, also those of incomplete blocks."""
    return [_mean(values[:, label]) for label in range(values.shape[1])]


def _mean(values: Numbers) -> Interval | None:
    """Return the mean over blocks of runs, an interval of no width with a single block; None without a run."""
    blocks = np.array([block[known].mean() for block in values if (known := np.isfinite(block)).any()])
    if not len(blocks):
        return None
    return Interval(*(mean_interval(blocks) or [float(blocks[0])] * 3))


def _compare(
    metric: str,
    arms: list[Arm],
    values: Numbers,
    seed: int,
    noise: Interval | None,
    *,
    kept: list[Interval | None],
) -> list[Comparison]:
    """Compare all labels with label 0 in one metric. values: blocks × labels × times; arms: of the labels from 1 on.

    kept: means of the labels without complete blocks.
    """
    has = np.asarray(np.isfinite(values).all(axis=2))
    usable = has.sum(axis=0) * 2 >= max(has[:, 0].sum(), 1)
    usable[0] = True
    values = values[has[:, usable].all(axis=1)]
    estimates, logarithms = _estimate(values[:, usable], seed)
    means = [own or other for own, other in zip(_kept_means(values), kept, strict=True)]
    base = abs(float(values[:, 0].mean())) if len(values) else 0.0
    columns = np.cumsum(usable) - 2
    comparisons = []
    for label, arm in enumerate(arms, 1):
        interval = effect = p = visible = None
        if estimates is not None and usable[label]:
            value, low, high, p, visible = (float(column[columns[label]]) for column in estimates)
            interval = Interval(value, low, high)
            if logarithms:
                effect = Interval(*(float(np.expm1(each)) for each in (value, low, high)))
                visible = float(np.expm1(visible))
            elif base:
                effect = Interval(value / base, low / base, high / base)
                visible /= base
            else:
                visible = None
        comparisons.append(
            Comparison(
                metric=metric,
                arm=arm,
                baseline=means[0],
                level=means[label],
                effect=effect,
                p=p,
                minimum_detectable=visible,
                blocks=len(values),
                verdict=_verdict(interval, effect, noise),
            )
        )
    return comparisons


def _estimate(values: Numbers, seed: int) -> tuple[Estimates | None, bool]:
    """Return estimated differences from label 0, and whether they are of logarithms instead of the metric."""
    logarithms = bool((values > 0).all())
    scale = 1.0 if logarithms else float(np.abs(values).max())
    each = (np.log(values) if logarithms else values / (scale or 1.0)).mean(axis=2)
    each -= each[:, :1]
    each[np.abs(each) < _NOTHING] = 0
    blocks, labels, times = values.shape
    if not blocks or labels < 2:
        return None, logarithms
    estimates = compare_two_arms(each[:, 1], seed) if times == 2 else compare_many_arms(each, seed)
    if estimates is None or logarithms:
        return estimates, logarithms
    return estimates._replace(
        value=estimates.value * scale,
        low=estimates.low * scale,
        high=estimates.high * scale,
        minimum_detectable=estimates.minimum_detectable * scale,
    ), False


def _verdict(interval: Interval | None, effect: Interval | None, noise: Interval | None) -> Verdict:
    """Return the verdict that follows from an interval; unsteady if the A/A difference (noise) is as large.

    The test is exact under every drift, so a difference of the node with itself is chance (in 3-5 % of experiments) or
    something periodic in step with the runs; an effect that is no larger cannot be distinguished from it.
    """
    if interval is None:
        return "too-few"
    differs_from_itself = noise is not None and (noise.low > 0 or noise.high < 0)
    if noise and effect and differs_from_itself and abs(effect.value) <= max(abs(noise.low), abs(noise.high)):
        return "unsteady"
    if interval.low > 0:
        return "higher"
    return "lower" if interval.high < 0 else "no-difference"


def _trends(metric: str, spec: Spec, values: Numbers, seed: int) -> list[Trend]:
    """Return the trend over each factor that has three numeric levels, the other factor averaged out."""
    trends = []
    shape = [len(factor.levels) for factor in spec.factors]
    complete = values[np.isfinite(values).all(axis=1)].reshape(-1, *shape)
    for index, factor in enumerate(spec.factors):
        numeric = [number for number, level in enumerate(factor.levels) if level.value is not None]
        levels = np.array([level.value for level in factor.levels if level.value is not None])
        if len(set(levels)) < 3:
            continue
        means = complete if len(shape) == 1 else complete.mean(axis=2 - index)
        found = trend(levels, means[:, numeric], seed)
        trends.append(Trend(metric, index, *(found or (None, None))))
    return trends
