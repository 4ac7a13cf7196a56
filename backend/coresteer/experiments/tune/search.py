"""The search of a tune: which candidates the next block measures, and when no further block is worth its time. Pure.

A block is a run of the baseline and of up to five candidates, in random order. The first blocks are spread over all
candidates (Latin hypercube). Then a Gaussian process (surrogate.py) estimates both metrics of every candidate:

- A candidate is eliminated when the estimate leaves it less than 2.5 % chance to keep the limit, or to be better than
  the best one by 1 %; most are eliminated without a single run.
- Of the others, the next block takes those of the largest expected improvement times the probability that they keep
  the limit (Schonlau, Welch and Jones, Global versus local search in constrained optimization, 1998), one at a time as
  if the previous ones had been measured; in every second block one on the front between both metrics (ParEGO: Knowles,
  2006); and again the best one, until it has been measured four times: one that was only lucky loses its place.
- The search ends when no expected improvement is left, or with its limit of runs or time.

Compared with others in tests/bench/bench_tune.py.
"""

from collections.abc import Collection, Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy import stats

from coresteer.experiments.spec import Arm
from coresteer.experiments.tune.space import Numbers, Space
from coresteer.experiments.tune.surrogate import Estimate, Surrogate

BLOCK_RUNS = 6
_CHANCE = 0.025
_BETTER = 0.01
_SURE = 0.9
_REPEATS = 4
_WORTH = 0.002
"""Expected improvement of the primary metric, relative, below which no candidate is worth a run."""
_MOST_DESIGNED = 20


class Goal(NamedTuple):
    """What is searched for. sign: 1 to minimize the primary metric, -1 to maximize; limit: of the other metric."""

    sign: int
    limit: float | None
    limit_sign: int = 1


class Measured(NamedTuple):
    """A counted run: its block, candidate, primary metric and the other one (None where it was not measured)."""

    block: int
    arm: Arm
    cost: float
    latency: float | None


class Scale(NamedTuple):
    """Scale on which a metric is modelled: logarithms, or fractions of its largest value where some are not above 0."""

    logarithmic: bool
    largest: float

    @classmethod
    def of(cls, values: Sequence[float]) -> "Scale":
        """Return the scale for these values."""
        return cls(min(values) > 0, max(abs(value) for value in values) or 1.0)

    def to(self, value: float) -> float:
        """Return a value on the scale; where it has no logarithm, one far below all others."""
        if not self.logarithmic:
            return value / self.largest
        return float(np.log(value)) if value > 0 else -np.inf

    def back(self, value: float) -> float:
        """Return the metric's value at a point of the scale."""
        return float(np.exp(value)) if self.logarithmic else value * self.largest


class Search:
    """The state of a search after some blocks. failed: candidates that cannot be measured. seed: of all its choices."""

    def __init__(
        self, space: Space, goal: Goal, runs: Sequence[Measured], failed: Collection[Arm], *, blocks: int, seed: int
    ) -> None:
        self.space, self.goal, self.runs = space, goal, runs
        self._blocks, self._seed = blocks, seed
        self.failed = np.zeros(len(space), dtype=bool)
        self.failed[[space.index[arm] for arm in failed]] = True
        self.points = [space.index[run.arm] for run in runs]
        self.counts = np.bincount(self.points, minlength=len(space))

    # -- estimates

    @cached_property
    def cost_scale(self) -> Scale:
        """Return the scale of the primary metric."""
        return Scale.of([run.cost for run in self.runs])

    @cached_property
    def latency_scale(self) -> Scale:
        """Return the scale of the other metric."""
        return Scale.of([run.latency for run in self.runs if run.latency is not None])

    @cached_property
    def cost_model(self) -> Surrogate:
        """Return the model of the primary metric."""
        values = [self.cost_scale.to(run.cost) for run in self.runs]
        return Surrogate(self.space, self.points, [run.block for run in self.runs], values)

    @cached_property
    def latency_model(self) -> Surrogate | None:
        """Return the model of the other metric, None if no run has it."""
        known = [run for run in self.runs if run.latency is not None]
        if not known:
            return None
        points, blocks = [self.space.index[run.arm] for run in known], [run.block for run in known]
        return Surrogate(self.space, points, blocks, [self.latency_scale.to(run.latency or 0.0) for run in known])

    @cached_property
    def cost(self) -> Estimate:
        """Return the estimate of the primary metric of every candidate."""
        return self.cost_model.estimate()

    @cached_property
    def latency(self) -> Estimate | None:
        """Return the estimate of the other metric of every candidate."""
        return None if self.latency_model is None else self.latency_model.estimate()

    @cached_property
    def keeps_limit(self) -> Numbers:
        """Return the probability of every candidate to keep the limit; 1 without one."""
        return self._keeps_limit(self.latency)

    def _keeps_limit(self, latency: Estimate | None) -> Numbers:
        if self.goal.limit is None:
            return np.ones(len(self.space))
        if latency is None:
            return np.zeros(len(self.space))
        room = self.goal.limit_sign * (self.latency_scale.to(self.goal.limit) - latency.mean)
        return np.asarray(stats.norm.cdf(room / np.sqrt(latency.variance)))

    @cached_property
    def best(self) -> int | None:
        """Return the index of the best measured candidate that keeps the limit, None if none does."""
        usable = np.flatnonzero((self.counts > 0) & ~self.failed & (self.keeps_limit >= _SURE))
        if not len(usable):
            return None
        return int(usable[np.argmin(self.goal.sign * self.cost.mean[usable])])

    @cached_property
    def over_limit(self) -> npt.NDArray[np.bool_]:
        """Return which candidates are eliminated because of the limit."""
        return np.asarray(self.keeps_limit < _CHANCE)

    @cached_property
    def worse(self) -> npt.NDArray[np.bool_]:
        """Return which candidates are eliminated because they cannot be better than the best one."""
        if self.best is None:
            return np.zeros(len(self.space), dtype=bool)
        lead = self.goal.sign * (self.cost.mean[self.best] - self.cost.mean) - _BETTER
        found = np.asarray(stats.norm.cdf(lead / np.sqrt(self.cost.variance)) < _CHANCE)
        found[self.best] = False
        return found

    @property
    def open(self) -> npt.NDArray[np.bool_]:
        """Return which candidates are not eliminated."""
        return np.asarray(~(self.over_limit | self.worse | self.failed))

    @property
    def front(self) -> frozenset[int]:
        """Return the measured candidates that no other measured one surpasses in both metrics."""
        measured = np.flatnonzero((self.counts > 0) & ~self.failed)
        if self.latency is None:
            return frozenset() if self.best is None else frozenset([self.best])
        cost = self.goal.sign * self.cost.mean[measured]
        latency = self.goal.limit_sign * self.latency.mean[measured]
        no_worse = (cost[None, :] <= cost[:, None]) & (latency[None, :] <= latency[:, None])
        better = (cost[None, :] < cost[:, None]) | (latency[None, :] < latency[:, None])
        return frozenset(int(at) for at in measured[~(no_worse & better).any(axis=1)])

    # -- decisions

    def next_block(self) -> list[Arm]:
        """Return the runs of the next block in order, the baseline among them; empty when the search has converged."""
        random = np.random.default_rng([self._seed, self._blocks])
        designed = self._design()
        start = self._blocks * (BLOCK_RUNS - 1)
        if start < len(designed):
            chosen = [at for at in designed[start : start + BLOCK_RUNS - 1] if not self.failed[at]]
        elif not self.runs or self.is_converged:
            return []
        else:
            chosen = self._promising(random)
        arms = [self.space.arms[at] for at in [0, *chosen]]
        return [arms[at] for at in random.permutation(len(arms))]

    def _design(self) -> list[int]:
        """Return the candidates of the first blocks: spread over all, the same for the same seed."""
        size = min(_MOST_DESIGNED, len(self.space) - 1, 4 + 3 * self.space.groups)
        size = -(-size // (BLOCK_RUNS - 1)) * (BLOCK_RUNS - 1)
        shape = self.space.shape
        sampler = stats.qmc.LatinHypercube(len(shape), rng=np.random.default_rng([self._seed]))
        spread = (sampler.random(size) * shape).astype(int)
        found = dict.fromkeys(self.space.index[tuple(int(level) for level in arm)] for arm in spread)
        others = np.random.default_rng([self._seed, len(self.space)]).permutation(len(self.space))
        found |= dict.fromkeys(int(at) for at in others)
        found.pop(0, None)
        return list(found)[:size]

    @cached_property
    def improvement(self) -> Numbers:
        """Return the expected improvement of every candidate over the best, times its probability to keep the limit."""
        return self._improvement(self.cost, self.keeps_limit)

    def _improvement(self, cost: Estimate, keeps_limit: Numbers) -> Numbers:
        if self.best is None:
            return np.where(self.failed, 0.0, keeps_limit)
        lead = self.goal.sign * (cost.mean[self.best] - cost.mean)
        deviation = np.sqrt(cost.variance)
        expected = lead * stats.norm.cdf(lead / deviation) + deviation * stats.norm.pdf(lead / deviation)
        return np.where(self.failed, 0.0, expected * keeps_limit)

    @property
    def is_converged(self) -> bool:
        """Return whether the best one is known well, and nothing better is expected."""
        if self.best is None:
            return bool(self.over_limit.all())
        others = self.open & (np.arange(len(self.space)) != self.best)
        return bool(self.counts[self.best] >= _REPEATS - 1 and self.improvement[others].max(initial=0.0) < _WORTH)

    def _promising(self, random: np.random.Generator) -> list[int]:
        chosen: list[int] = []
        if self.best is not None and self.best and self.counts[self.best] < _REPEATS:
            chosen.append(self.best)
        if self._blocks % 2 and (at := self._on_front(random)) and at not in chosen:
            chosen.append(at)
        while len(chosen) < BLOCK_RUNS - 1:
            cost = self.cost_model.estimate(chosen)._replace(mean=self.cost.mean)
            latency = None if self.latency_model is None else self.latency_model.estimate(chosen)
            worth = self._improvement(cost, self._keeps_limit(latency))
            worth[[0, *chosen]] = worth[self.failed] = -1.0
            if (at := int(np.argmax(worth))) == 0 or worth[at] < 0:
                break
            chosen.append(at)
        return chosen

    def _on_front(self, random: np.random.Generator) -> int | None:
        """Return a candidate that may lie on the front between both metrics, None where only one is known."""
        if self.latency is None:
            return None
        usable = np.flatnonzero(~(self.over_limit | self.failed))
        if not len(usable):
            return None
        weight = random.random()
        losses = []
        for sign, estimate in ((self.goal.sign, self.cost), (self.goal.limit_sign, self.latency)):
            loss = sign * estimate.mean[usable] - np.sqrt(estimate.variance[usable])
            losses.append((loss - loss.min()) / (float(np.ptp(loss)) or 1.0))
        loss = np.maximum(weight * losses[0], (1 - weight) * losses[1])
        return int(usable[np.argmin(loss)])
