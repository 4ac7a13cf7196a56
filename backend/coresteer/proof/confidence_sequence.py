"""Confidence sequence of the mean difference between enforced and holdout blocks, valid at any time. Pure.

An episode is two adjacent blocks of one node; a fair coin decides which of them is the holdout. Its difference is
D = log(enforced / holdout) of a metric. If the policy changes the metric by a constant δ, then D − δ is the difference
of what the two blocks would have been without the policy, with the sign of the coin: symmetric about 0 given its size
and the past, whatever drift, daily cycle, autocorrelation or heavy tail the metric has. So for every λ

    exp(λ S − λ² V / 2)  with  S = Σ (D − δ)  and  V = Σ (D − δ)²

is a supermartingale (de la Peña, A general class of exponential inequalities for martingales and ratios, 1999), and so
is its mean over λ ~ N(0, 1/ρ). By Ville's inequality the δ with

    |S| ≤ sqrt((V + ρ) ln((V + ρ) / (ρ α²)))

contain the true one at all times at once with probability 1 − α, for any number of episodes: nothing is asymptotic.
Compare Howard, Ramdas, McAuliffe and Sekhon, Time-uniform, nonparametric, nonasymptotic confidence sequences (2021),
and Ham, Bojinov, Lindon and Tingley, Design-based confidence sequences (2022).

Assumptions: the effect is constant while a version is in force (otherwise the interval covers the mean effect of the
episodes approximately, as that of Ham et al. does), and a block does not change the next one, which washout.py takes
care of; effects that come later than a block are not seen (Lindon and Kallus, 2026).
"""

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

F64 = npt.NDArray[np.float64]

ALPHA = 0.05
"""Probability that a sequence ever excludes the true effect."""
MAX_EFFECT = math.log(10)
"""Effects are assumed to lie between a tenth and ten times; so with few episodes there is no interval."""
TYPICAL_DIFFERENCE = 0.05
"""Standard deviation of the differences for which ρ is best; the width depends on it only by a logarithm."""
PLANNED_S = 7 * 86_400.0
"""Time for whose number of episodes ρ is best, unless those are more than MAX_PLANNED."""
MAX_PLANNED = 300.0
"""Planning for too many episodes hides large effects at first; for too few, it makes intervals little wider: by 26 %
at 200,000 episodes."""
_NEWTON_STEPS = 8


@dataclass(frozen=True)
class Evidence:
    """Number, sum and sum of squares of the differences of episodes; arrays of the same shape, or numbers."""

    episodes: F64
    total: F64
    squares: F64

    @classmethod
    def of(cls, episodes: float, total: float, squares: float) -> "Evidence":
        """Return the evidence of one sequence at one time."""
        return cls(np.float64(episodes), np.float64(total), np.float64(squares))  # type: ignore[arg-type]  # a float64 is used as an array of shape ()

    @classmethod
    def running(cls, differences: F64) -> "Evidence":
        """Return the evidence after each episode, along the last axis; NaN: no episode there."""
        known = np.isfinite(differences)
        values = np.where(known, differences, 0.0)
        return cls(known.cumsum(axis=-1).astype(np.float64), values.cumsum(axis=-1), (values**2).cumsum(axis=-1))


def rho_for(planned_episodes: float, alpha: float = ALPHA) -> float:
    """Return the ρ with which the sequence is nearly the narrowest at this number of episodes.

    It must be fixed before the first episode. The width at V is the smallest for ρ = V / (2 ln 1/α + ln(1 + 2 ln 1/α)),
    nearly (Howard et al., 2021, section 3.5).
    """
    log = -2 * math.log(alpha)
    return min(max(1.0, planned_episodes), MAX_PLANNED) * TYPICAL_DIFFERENCE**2 / (log + math.log1p(log))


def half_width(evidence: Evidence, rho: float, alpha: float = ALPHA) -> F64:
    """Return by how much the effect may differ from the mean difference; infinite with too few episodes.

    With d = δ − mean, the inequality of the sequence holds exactly for |d| ≤ r or |d| ≥ R. Both are roots of
    n d² n = u ln(u / c), where u = A + n d², A = Σ (D − mean)² + ρ and c = ρ α². With y = n A / u they solve
    y − ln y = n − ln(n A / c): the larger y gives r, the smaller one R. There is an interval once R is so large that
    only r matters for effects up to MAX_EFFECT, and once it excludes 0 or lies within MAX_EFFECT: one that is wider
    says less than what is assumed anyway.
    """
    n = np.maximum(evidence.episodes, 1.0)
    mean = evidence.total / n
    a = np.maximum(evidence.squares - evidence.total * mean, 0.0) + rho
    h = n - np.log(n * a / (rho * alpha**2))
    possible = (h > 1.0 + 1e-9) & (evidence.episodes > 0)
    h = np.where(possible, h, 2.0)
    y = h + np.log(h) + 0.4 / h  # close to the root, and above it or near
    for _ in range(_NEWTON_STEPS):
        y = np.maximum(y - (y - np.log(y) - h) / (1 - 1 / np.maximum(y, 1 + 1e-12)), 1 + 1e-12)
    near = np.sqrt(np.maximum(a * (n / y - 1) / n, 0.0))
    large = np.minimum(h, 300.0)  # beyond that, R is astronomic anyway
    small = np.exp(-large)
    for _ in range(_NEWTON_STEPS):
        small = np.exp(small - large)
    far = np.sqrt(np.maximum(a * (n / small - 1) / n, 0.0))
    says_something = (near < np.abs(mean)) | (near + np.abs(mean) <= MAX_EFFECT)
    result: F64 = np.where(possible & (far - np.abs(mean) > MAX_EFFECT) & says_something, near, np.inf)
    return result


@dataclass(frozen=True)
class Effect:
    """Estimate and interval of a relative effect: 0.05 is 5 % more when enforced. low, high: None: no bound yet."""

    estimate: float
    low: float | None
    high: float | None
    episodes: int

    @property
    def direction(self) -> int:
        """Return 1 if the interval lies above 0, −1 if below, 0 if it includes 0 or is not bounded yet."""
        if self.low is None or self.high is None:
            return 0
        return (self.low > 0) - (self.high < 0)


def effect(evidence: Evidence, rho: float, alpha: float = ALPHA) -> Effect | None:
    """Return the relative effect that the evidence of one sequence shows at this moment; None without an episode."""
    n = float(evidence.episodes)
    if n == 0:
        return None
    mean, half = float(evidence.total) / n, float(half_width(evidence, rho, alpha))
    if not math.isfinite(half):
        return Effect(math.expm1(mean), None, None, int(n))
    return Effect(math.expm1(mean), math.expm1(mean - half), math.expm1(mean + half), int(n))


def detectable(evidence: Evidence, rho: float, alpha: float = ALPHA) -> float | None:
    """Return the relative effect that this many episodes with the same spread show if it is there; None: none yet."""
    half = float(half_width(evidence, rho, alpha))
    return math.expm1(half) if half <= MAX_EFFECT else None


def episodes_to_detect(evidence: Evidence, size: float, rho: float, alpha: float = ALPHA) -> int | None:
    """Return after how many episodes with the spread of these the interval excludes 0 for a relative effect of size.

    None without an episode, or where it would need more than 10 million.
    """
    n = float(evidence.episodes)
    if n < 2:
        return None
    mean = float(evidence.total) / n
    variance = max(float(evidence.squares) / n - mean**2, 0.0)
    aim = math.log1p(size)

    def shows(count: float) -> bool:
        return float(half_width(Evidence.of(count, 0.0, count * variance), rho, alpha)) < aim

    high = 1.0
    while not shows(high):
        high *= 2
        if high > 1e7:
            return None
    low = high / 2
    while high - low > 0.5:
        middle = (low + high) / 2
        low, high = (low, middle) if shows(middle) else (middle, high)
    return math.ceil(high)
