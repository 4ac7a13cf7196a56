"""Gaussian process over the candidates of a tune: from a few noisy runs to an estimate of every candidate. Pure.

log(metric) of a run = mean + f(candidate) + effect of its block + noise. f has a Matérn 5/2 covariance with a length
scale for each factor (Rasmussen and Williams, Gaussian Processes for Machine Learning, 2006). The effect of a block
holds the drift: a candidate measured in a slow quarter of an hour is not taken for a slow candidate, because the
baseline and others were measured beside it. Length scales and variances are those of the highest posterior density.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy import linalg, optimize

from coresteer.experiments.tune.space import Numbers, Space

_ROOT5 = np.sqrt(5.0)
_MEAN_VARIANCE = 1.0
_JITTER = 1e-8
_LENGTH, _LENGTH_SPREAD = np.log(0.6), 0.8
_AMPLITUDE, _BLOCK, _NOISE, _SPREAD = 0.0, np.log(0.1), np.log(0.15), 1.0
"""Means and standard deviations of the priors' logarithms; the data are standardized."""
_STARTS = (0.25, 1.0)
_BOUND = 4.0
"""In standard deviations of the priors: keeps the search for the highest density away from where it is flat."""


class Estimate(NamedTuple):
    """Estimate of every candidate: mean, variance, and covariance with the baseline, of the metric's logarithm."""

    mean: Numbers
    variance: Numbers
    with_baseline: Numbers


class Surrogate:
    """A fitted process. points: the candidate of each run by index; blocks: the block of each run."""

    def __init__(self, space: Space, points: Sequence[int], blocks: Sequence[int], values: Sequence[float]) -> None:
        self._space = space
        self._points, self._blocks = list(points), np.array(blocks)
        found = np.array(values, dtype=float)
        self._center, self._scale = float(found.mean()), float(found.std()) or 1.0
        self._values = (found - self._center) / self._scale
        self._parameters = _fit(space.squared_distances(points, points), self._same_block(), self._values)

    def _same_block(self) -> Numbers:
        return np.asarray(self._blocks[:, None] == self._blocks[None, :], dtype=float)

    @property
    def noise(self) -> float:
        """Return the standard deviation of a run, apart from the drift between blocks."""
        return float(np.exp(self._parameters[-1])) * self._scale

    def estimate(self, planned: Sequence[int] = ()) -> Estimate:
        """Return the estimate of every candidate. planned: runs yet to come, which shrink variances only."""
        points = [*self._points, *planned]
        lengths, amplitude, block, noise = _split(self._parameters)
        among = _matern(_scaled(self._space.squared_distances(points, points), lengths))
        covariance = amplitude**2 * among + _MEAN_VARIANCE
        measured = len(self._points)
        covariance[:measured, :measured] += block**2 * self._same_block()
        covariance[np.diag_indices_from(covariance)] += noise**2 + _JITTER
        covariance[range(measured, len(points)), range(measured, len(points))] += block**2
        across = amplitude**2 * _matern(_scaled(self._space.squared_distances(points), lengths)) + _MEAN_VARIANCE
        factor = linalg.cholesky(covariance, lower=True)
        whitened = linalg.solve_triangular(factor, across, lower=True)
        values = linalg.solve_triangular(factor[:measured, :measured], self._values, lower=True)
        mean = values @ whitened[:measured]
        variance = amplitude**2 + _MEAN_VARIANCE - (whitened**2).sum(axis=0)
        with_baseline = (
            amplitude**2 * _matern(_scaled(self._space.squared_distances([0]), lengths))[0]
            + _MEAN_VARIANCE
            - whitened[:, 0] @ whitened
        )
        return Estimate(
            self._center + self._scale * mean,
            self._scale**2 * np.maximum(variance, _JITTER),
            self._scale**2 * with_baseline,
        )


def _split(parameters: Numbers) -> tuple[Numbers, float, float, float]:
    lengths = np.exp(parameters[:-3])
    amplitude, block, noise = (float(each) for each in np.exp(parameters[-3:]))
    return lengths, amplitude, block, noise


def _scaled(squared: Numbers, lengths: Numbers) -> Numbers:
    return np.asarray(np.tensordot(lengths**-2.0, squared, axes=1))


def _matern(squared: Numbers) -> Numbers:
    root = _ROOT5 * np.sqrt(squared)
    return np.asarray((1 + root + root**2 / 3) * np.exp(-root))


def _fit(squared: Numbers, same_block: Numbers, values: Numbers) -> Numbers:
    """Return the logarithms of length scales, amplitude, and deviations of blocks and noise, of highest density."""
    groups = len(squared)
    center = np.array([_LENGTH] * groups + [_AMPLITUDE, _BLOCK, _NOISE])
    spread = np.array([_LENGTH_SPREAD] * groups + [_SPREAD] * 3)
    identity = np.eye(len(values))

    def loss(parameters: Numbers) -> tuple[float, Numbers]:
        lengths, amplitude, block, noise = _split(parameters)
        distance = _scaled(squared, lengths)
        root = _ROOT5 * np.sqrt(distance)
        smooth = amplitude**2 * (1 + root + root**2 / 3) * np.exp(-root)
        covariance = smooth + _MEAN_VARIANCE + block**2 * same_block + (noise**2 + _JITTER) * identity
        factor = linalg.cho_factor(covariance, lower=True)
        weights = linalg.cho_solve(factor, values)
        inner = linalg.cho_solve(factor, identity) - np.outer(weights, weights)
        slope = amplitude**2 * 5 / 3 * (1 + root) * np.exp(-root)
        gradient = [
            0.5 * float((inner * slope * part).sum()) / length**2 for part, length in zip(squared, lengths, strict=True)
        ]
        gradient.append(float((inner * smooth).sum()))
        gradient.append(block**2 * float((inner * same_block).sum()))
        gradient.append(noise**2 * float(np.trace(inner)))
        prior = (parameters - center) / spread
        density = 0.5 * values @ weights + np.log(np.diag(factor[0])).sum() + 0.5 * prior @ prior
        return float(density), np.array(gradient) + prior / spread

    bounds = optimize.Bounds(center - _BOUND * spread, center + _BOUND * spread)
    found = []
    for length in _STARTS:
        start = center.copy()
        start[:groups] = np.log(length)
        found.append(optimize.minimize(loss, start, jac=True, method="L-BFGS-B", bounds=bounds))
    return np.asarray(min(found, key=lambda each: float(each.fun)).x)
