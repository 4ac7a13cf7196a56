"""Figures of a rollout's stage: its nodes before and after, next to the nodes that still wait. Pure.

The change of a node is log(after / before) of a metric, each a ratio of sums over a time. What moves all nodes,
such as the time of day, moves the waiting ones, too; so the effect is the difference of the mean changes, with the
interval of a pooled t-test, which also holds for a canary of one node. Of counts of events, which may be 0 on all
nodes and then do not vary at all, the variance is at least that of a Poisson process. All metrics of all stages share
one error probability of 5 %, because each of them may end the rollout. In the last stage no node waits: it is compared
with itself before, which proves nothing about a cause, and ends no rollout.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from types import MappingProxyType

import numpy as np
from scipy import special

from coresteer.policies.rollout_schemas import StageEvidence, StageFigure, StageVerdict
from coresteer.telemetry.block_figures import BlockFigures, difference
from coresteer_core.metrics import METRICS, MetricLabel

ALPHA = 0.05
MIN_COVERED = 0.4
"""Share of a window that a node's samples must cover."""
_WIDEST = 20.0
"""Most of half an interval of a logarithm: a wider one tells nothing, and its end may be too large for a float."""


@dataclass(frozen=True)
class NodeFigures:
    """The figures of one node before and after the stage began."""

    before: BlockFigures
    after: BlockFigures

    def is_usable(self, window_s: float, min_bit_per_s: float) -> bool:
        """Return whether samples cover enough of both windows, and both have the minimum traffic."""
        both = (self.before, self.after)
        return all(
            figures.duration_s >= MIN_COVERED * window_s and (figures.bit_per_s or 0.0) >= min_bit_per_s
            for figures in both
        )


@dataclass(frozen=True)
class StageOfRollout:
    """A stage that ends: its index, the number of stages, now, and the length of time before and after its begin."""

    stage: int
    stages: int
    at: datetime
    window_s: float


def stage_evidence(
    stage: StageOfRollout,
    metrics: Sequence[str],
    nodes: Sequence[NodeFigures],
    waiting: Sequence[NodeFigures],
    applications: Mapping[str, MetricLabel] = MappingProxyType({}),
) -> StageEvidence:
    """Return the figures of a stage. nodes, waiting: the usable ones; applications: labels of application metrics."""
    alpha = ALPHA / (len(metrics) * stage.stages)
    labels = {**METRICS, **applications}
    found = [_figure(metric, labels[metric], nodes, waiting, alpha) for metric in metrics if metric in labels]
    figures = [one for one in found if one is not None]
    sentence = _sentence(figures, len(nodes), stage.window_s)
    return StageEvidence(stage=stage.stage, at=stage.at, window_s=stage.window_s, figures=figures, sentence=sentence)


def worsened(evidence: StageEvidence) -> str | None:
    """Return the sentence on the first metric that the stage worsened, None if it worsened none."""
    return next((one.sentence for one in evidence.figures if one.verdict is StageVerdict.WORSENS), None)


def _figure(
    metric: str, label: MetricLabel, nodes: Sequence[NodeFigures], waiting: Sequence[NodeFigures], alpha: float
) -> StageFigure | None:
    known = [one for one in nodes if difference(one.after, one.before, metric) is not None]
    if not known:
        return None
    changes = _changes(metric, known)
    others = _changes(metric, waiting)
    effect = low = high = None
    if others.size:
        effect = float(changes.mean() - others.mean())
        counting = _counting_variance(metric, known) + _counting_variance(metric, waiting)
        if (half := _half_width(changes, others, alpha, counting)) is not None:
            low, high = effect - half, effect + half
    if others.size:
        verdict = _verdict(label, low, high)
        sentence = _figure_sentence(label.label, verdict, effect, low, high)
    else:
        verdict, change = StageVerdict.NOT_COMPARED, _percent(float(changes.mean()))
        sentence = f"{label.label}: {change} from before to after; no node waits, so this may have other causes."
    return StageFigure(
        metric=metric,
        label=label.label,
        unit=label.unit,
        nodes=len(known),
        before=_mean(metric, (one.before for one in known)),
        after=_mean(metric, (one.after for one in known)),
        change=math.expm1(changes.mean()),
        waiting_nodes=int(others.size),
        waiting_change=math.expm1(others.mean()) if others.size else None,
        effect=None if effect is None else math.expm1(effect),
        low=None if low is None else math.expm1(low),
        high=None if high is None else math.expm1(high),
        verdict=verdict,
        sentence=sentence,
    )


def _changes(metric: str, nodes: Iterable[NodeFigures]) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    found = (difference(one.after, one.before, metric) for one in nodes)
    return np.array([change for change in found if change is not None], dtype=np.float64)


def _counting_variance(metric: str, nodes: Iterable[NodeFigures]) -> float:
    """Return the variance that counting alone gives the mean change; 0 for metrics that count no events.

    By the delta method on log((events after + 1) / (events before + 1)).
    """
    known = [one for one in nodes if difference(one.after, one.before, metric) is not None]
    sums = [block.sums[metric] for one in known for block in (one.before, one.after)]
    return sum(1 / (one.amount + 1) for one in sums if one.event) / max(len(known), 1) ** 2


def _mean(metric: str, blocks: Iterable[BlockFigures]) -> float:
    """Return a metric over all nodes: the ratio of their sums."""
    sums = [block.sums[metric] for block in blocks]
    return sum(one.amount for one in sums) / sum(one.base for one in sums)


def _half_width(
    changes: np.ndarray[tuple[int], np.dtype[np.float64]],
    others: np.ndarray[tuple[int], np.dtype[np.float64]],
    alpha: float,
    counting: float,
) -> float | None:
    """Return half the width of the interval of a pooled t-test.

    None for fewer than three nodes in all, and for an interval too wide to tell anything. counting: the least variance
    of the difference.
    """
    freedom = changes.size + others.size - 2
    if freedom < 1:
        return None
    squares = ((changes - changes.mean()) ** 2).sum() + ((others - others.mean()) ** 2).sum()
    variance = squares / freedom * (1 / changes.size + 1 / others.size)
    width = special.stdtrit(freedom, 1 - alpha / 2) * math.sqrt(max(variance, counting))
    return float(width) if width <= _WIDEST else None


def _verdict(label: MetricLabel, low: float | None, high: float | None) -> StageVerdict:
    if low is None or high is None:
        return StageVerdict.TOO_FEW
    if low <= 0 <= high:
        return StageVerdict.NONE_FOUND
    if not label.better:
        return StageVerdict.HIGHER if low > 0 else StageVerdict.LOWER
    return StageVerdict.IMPROVES if (low > 0) == (label.better == "more") else StageVerdict.WORSENS


def _figure_sentence(
    label: str, verdict: StageVerdict, effect: float | None, low: float | None, high: float | None
) -> str:
    if effect is None or low is None or high is None:
        return f"{label}: too few nodes for an interval."
    amount = f"{_percent(effect)} [{_percent(low)}, {_percent(high)}]"
    if verdict is StageVerdict.NONE_FOUND:
        return f"{label}: no effect found, {amount} compared with the waiting nodes."
    word = {StageVerdict.IMPROVES: ", better", StageVerdict.WORSENS: ", worse"}.get(verdict, "")
    return f"{label}: {amount} compared with the waiting nodes{word}."


def _sentence(figures: Sequence[StageFigure], nodes: int, window_s: float) -> str:
    """Return the evidence of a stage in a sentence: of what is worse or better, else of the first metric."""
    if not nodes or not figures:
        return "No figures: no node of the stage has enough samples and traffic before and after its begin."
    order = (StageVerdict.WORSENS, StageVerdict.IMPROVES)
    told = next((one for verdict in order for one in figures if one.verdict is verdict), figures[0])
    return f"{told.sentence} ({window_s:.0f} s before and after)"


def _percent(logarithm: float) -> str:
    return f"{100 * math.expm1(logarithm):+.3g} %".replace("-", "−")
