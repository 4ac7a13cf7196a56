"""Metrics of a node's real traffic by minute, from stored roll-ups, compared before and after a change. Pure."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
from msgspec.structs import replace
from scipy import stats

from coresteer.experiments.spec import Comparison, Interval, Verdict
from coresteer.telemetry.block_figures import block_figures
from coresteer.telemetry.byte_columns import F64
from coresteer.telemetry.rollup import Rollup
from coresteer_core.metrics import REPORT_METRICS, Metric
from coresteer_core.node.metric_values import Counted, netdevs_counted
from coresteer_core.node.rates import ABSENT_SHARE, CPU_SHARES, SHARES_PER_UNIT

MIN_MINUTES = 10
"""Minimum on each side; with fewer there is no result."""
_MIN_DURATION_S = 20.0
_MAX_CORRELATION = 0.95


def _observed(metric: Metric) -> Metric:
    is_traffic = metric.source is not None and metric.source.kind == "netdev"
    return replace(metric, better="") if is_traffic else metric


OBSERVED_METRICS: Mapping[str, Metric] = MappingProxyType(
    {name: _observed(metric) for name, metric in REPORT_METRICS.items()}
)
"""Metrics of stored minutes. On real traffic more or fewer packets are neither better nor worse."""


class Minute(NamedTuple):
    """Metrics of a node in one minute: OBSERVED_METRICS by name, and each CPU's time by kind, %."""

    start_ms: int
    figures: dict[str, float]
    cpus: dict[str, list[float | None]]


def observed_minutes(rollups: Sequence[Rollup], physical: frozenset[str] | None) -> list[Minute]:
    """Return a node's metrics by minute from roll-ups, in order.

    Traffic is that of the physical netdevs, of all but lo where those are unknown.
    """
    counted = netdevs_counted(physical)
    whole = [rollup for rollup in rollups if rollup.duration_s >= _MIN_DURATION_S]
    return [_minute(rollup, counted) for rollup in sorted(whole, key=lambda rollup: rollup.start_ms)]


def _minute(rollup: Rollup, counted: Counted) -> Minute:
    sums = block_figures([rollup], OBSERVED_METRICS, counted).sums
    cpus = {kind: _percents(rollup, kind) for kind in ("busy", "softirq", "irq", "user", "system")}
    return Minute(rollup.start_ms, {name: one.value for name, one in sums.items()}, cpus)


def _percents(rollup: Rollup, kind: str) -> list[float | None]:
    row = rollup.means[CPU_SHARES.index(kind)].tolist()
    return [None if share == ABSENT_SHARE else share * 100 / SHARES_PER_UNIT for share in row]


def compare(metric: str, before: Sequence[Minute], after: Sequence[Minute]) -> Comparison:
    """Compare the means of a metric after and before a change as a ratio, with its interval.

    Where a mean is 0 and so has no ratio, the verdict and p are of the difference, without an effect.

    Minutes are autocorrelated, so the effective number of n minutes is n (1 - r) / (1 + r), with r the autocorrelation
    corrected for bias (Kendall, Note on bias in the estimation of autocorrelation, 1954); intervals are
    Student's with Welch's degrees of freedom. Measured on 3,000 pairs of made-up series without a difference, with
    60 and with 20 minutes on each side: the 95 % interval included 0 in 96-98 % at an autocorrelation of 0, in 95-96 %
    at 0.5 and in 96 % at 0.8. (Newey and West's errors: 93 %, 87-91 % and 73-85 %.)
    """
    sides = [np.array([m.figures[metric] for m in side if metric in m.figures]) for side in (before, after)]
    few = min(map(len, sides)) < MIN_MINUTES
    means = [_mean(side) for side in sides]
    effect = p = None
    verdict: Verdict = "too-few" if few else "no-difference"
    if not few:
        (b, b_error, b_freedom), (a, a_error, a_freedom) = (mean for mean in means if mean is not None)
        is_ratio = min(a, b) > 0
        difference = float(np.log(a / b)) if is_ratio else a - b
        parts = ((b_error / b) ** 2, (a_error / a) ** 2) if is_ratio else (b_error**2, a_error**2)
        error = sum(parts) ** 0.5
        freedom = sum(parts) ** 2 / (parts[0] ** 2 / b_freedom + parts[1] ** 2 / a_freedom) if error else 1.0
        half = float(stats.t.ppf(0.975, freedom)) * error
        if is_ratio:
            ends = (difference, difference - half, difference + half)
            effect = Interval(*(float(np.expm1(each)) for each in ends))
        p = float(2 * stats.t.sf(abs(difference) / error, freedom)) if error else float(difference == 0)
        if abs(difference) > half:
            verdict = "higher" if difference > 0 else "lower"
    return Comparison(
        metric=metric,
        arm=(1,),
        baseline=_level(means[0]),
        level=_level(means[1]),
        effect=effect,
        p=p,
        minimum_detectable=None,
        blocks=min(map(len, sides)),
        verdict=verdict,
    )


def _mean(values: F64) -> tuple[float, float, float] | None:
    """Return the mean, its standard error and the degrees of freedom; None with too few minutes."""
    count = len(values)
    if count == 0:
        return None
    mean = float(values.mean())
    centred = values - mean
    squares = float(centred @ centred)
    if count == 1 or squares <= (1e-12 * mean) ** 2:
        return mean, 0.0, 1.0
    raw = float(centred[1:] @ centred[:-1]) / squares
    correlation = min(max(raw + (1 + 3 * raw) / count, 0.0), _MAX_CORRELATION)
    counting = count * (1 - correlation) / (1 + correlation)
    # the variance of correlated values about their own mean is too small
    shrunk = max(1 - (count / counting - 1) / (count - 1), 0.3)
    variance = squares / (count - 1) / shrunk / max(counting, 1.2)
    return mean, variance**0.5, max(counting - 1, 1.0)


def _level(mean: tuple[float, float, float] | None) -> Interval | None:
    return None if mean is None else Interval(mean[0], mean[0], mean[0])
