"""Figures of a rollout's stage: its nodes before and after, next to the nodes that still wait. Pure.

The change of a node is log(after / before) of a metric, each a ratio of sums over a time. What moves all nodes,
such as the time of day, moves the waiting ones, too; so the effect is the difference of the mean changes, with the
interval of a pooled t-test, which also holds for a canary of one node. Of counts of events, and of values below their
floor, which may be the same on all nodes and then do not vary at all, the variance is at least that of a Poisson
process. All metrics of all stages share one error probability of 5 %, because each of them may end the rollout. In the
last stage no node waits: it is compared with itself before, which proves nothing about a cause, and ends no rollout.

Traffic before the begin decides which nodes count: what the version does to traffic must not. If all nodes of a stage
lose theirs and none of at least five waiting nodes does, the stage is worse; the 5 % do not include this.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from types import MappingProxyType

import numpy as np
from scipy import special

from coresteer.localization.numbers import counted
from coresteer.policies.rollout_schemas import StageEvidence, StageFigure, StageVerdict
from coresteer.telemetry.block_figures import BlockFigures, difference
from coresteer_core.metrics import METRICS, MetricLabel

ALPHA = 0.05
MIN_COVERED = 0.4
"""Share of a window that a node's samples must cover."""
_LOST, _LOST_WHATEVER = 0.1, 0.01
"""Shares of its traffic below which a node has lost it: the first if below the minimum too, the second anyway."""
_MIN_WAITING = 5
"""Waiting nodes that must have kept their traffic before that of the stage's nodes counts: traffic pauses by itself."""
_PER_TRAFFIC = frozenset({"cpu_s_per_gbit", "packets_per_interrupt"})
"""Metrics that say nothing of a node that has lost its traffic."""
_NARROWEST = 1e-9
"""Least of half an interval: a narrower one comes from nodes whose values do not vary, and is no precision."""
_WIDEST = 20.0
"""Most of half an interval of a logarithm: a wider one tells nothing, and its end may be too large for a float."""


@dataclass(frozen=True)
class NodeFigures:
    """The figures of one node before and after the stage began."""

    before: BlockFigures
    after: BlockFigures

    def is_usable(self, window_s: float, min_bit_per_s: float) -> bool:
        """Return whether samples cover enough of both windows, and the one before has the minimum traffic."""
        is_covered = all(one.duration_s >= MIN_COVERED * window_s for one in (self.before, self.after))
        return is_covered and (self.before.bit_per_s or 0.0) >= min_bit_per_s

    def has_lost_traffic(self, min_bit_per_s: float) -> bool:
        """Return whether a usable node has nearly no traffic any more."""
        before, after = self.before.bit_per_s, self.after.bit_per_s
        if before is None or after is None:
            return False
        return after < _LOST * before and after < max(min_bit_per_s, _LOST_WHATEVER * before)


@dataclass(frozen=True)
class StageOfRollout:
    """A stage that ends: its index, the number of stages, now, and the length of time before and after its begin.

    waiting: number of all nodes that wait. min_bit_per_s: the minimum traffic.
    """

    stage: int
    stages: int
    at: datetime
    window_s: float
    waiting: int
    min_bit_per_s: float


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
    found = [
        _figure(metric, labels[metric], stage, nodes, waiting, alpha=alpha) for metric in metrics if metric in labels
    ]
    figures = [one for one in found if one is not None]
    lost, lost_waiting = [sum(one.has_lost_traffic(stage.min_bit_per_s) for one in side) for side in (nodes, waiting)]
    is_lost = 0 < lost == len(nodes) and len(waiting) >= _MIN_WAITING and lost_waiting == 0
    parts = [] if is_lost else [_sentence(figures, len(nodes))]
    if lost:
        others = f"{lost_waiting} of {counted(len(waiting), 'waiting node')} with traffic did"
        against = others if waiting else _not_compared(stage.waiting, 0)
        parts.append(f"{lost} of {counted(len(nodes), 'node')} with traffic lost nearly all of it; {against}.")
    return StageEvidence(
        stage=stage.stage,
        at=stage.at,
        window_s=stage.window_s,
        figures=figures,
        lost_traffic=is_lost,
        sentence=f"{' '.join(parts)} ({stage.window_s:.0f} s before and after)" if nodes else parts[0],
    )


def worsened(evidence: StageEvidence) -> str | None:
    """Return the sentence on the lost traffic, or on the first metric, that the stage worsened; None for neither."""
    if evidence.lost_traffic:
        return evidence.sentence
    return next((one.sentence for one in evidence.figures if one.verdict is StageVerdict.WORSENS), None)


def _figure(
    metric: str,
    label: MetricLabel,
    stage: StageOfRollout,
    nodes: Sequence[NodeFigures],
    waiting: Sequence[NodeFigures],
    *,
    alpha: float,
) -> StageFigure | None:
    known, known_waiting = [_known(metric, side, stage.min_bit_per_s) for side in (nodes, waiting)]
    if not known:
        return None
    changes, others = _changes(metric, known), _changes(metric, known_waiting)
    effect = low = high = None
    if others.size:
        effect = float(changes.mean() - others.mean())
        counting = _counting_variance(metric, known) + _counting_variance(metric, known_waiting)
        if (half := _half_width(changes, others, alpha, counting)) is not None:
            low, high = effect - half, effect + half
        verdict = _verdict(label, low, high)
        sentence = _figure_sentence(label.label, verdict, effect, low, high)
    else:
        verdict, change = StageVerdict.NOT_COMPARED, _percent(float(changes.mean()))
        why = _not_compared(stage.waiting, len(waiting))
        sentence = f"{label.label}: {change} from before to after; {why}, so this may have other causes."
    if without := len(nodes) - len(known):
        sentence += f" Left out: {counted(without, 'node')} of the stage without a value."
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


def _known(metric: str, nodes: Iterable[NodeFigures], min_bit_per_s: float) -> list[NodeFigures]:
    """Return the nodes with a change of a metric that says something."""
    return [
        one
        for one in nodes
        if difference(one.after, one.before, metric) is not None
        and not (metric in _PER_TRAFFIC and one.has_lost_traffic(min_bit_per_s))
    ]


def _changes(metric: str, nodes: Iterable[NodeFigures]) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    found = (difference(one.after, one.before, metric) for one in nodes)
    return np.array([change for change in found if change is not None], dtype=np.float64)


def _counting_variance(metric: str, nodes: Sequence[NodeFigures]) -> float:
    """Return the variance that counting alone gives the mean change; 0 for metrics without events and floor.

    By the delta method on log((events after + 1) / (events before + 1)). A value up to its floor is as if no event had
    happened: one more may have been the first.
    """
    sums = [block.sums[metric] for one in nodes for block in (one.before, one.after)]
    variances = (1 / (one.amount + 1) if one.event else float(one.value <= one.floor and one.floor > 0) for one in sums)
    return sum(variances) / len(nodes) ** 2


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

    None for fewer than three nodes in all, for values that do not vary, and for an interval too wide to tell anything.
    counting: the least variance of the difference.
    """
    freedom = changes.size + others.size - 2
    if freedom < 1:
        return None
    squares = ((changes - changes.mean()) ** 2).sum() + ((others - others.mean()) ** 2).sum()
    variance = squares / freedom * (1 / changes.size + 1 / others.size)
    width = special.stdtrit(freedom, 1 - alpha / 2) * math.sqrt(max(variance, counting))
    return float(width) if _NARROWEST <= width <= _WIDEST else None


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
        return f"{label}: too few nodes, or too little variation between them, for an interval."
    amount = f"{_percent(effect)} [{_percent(low)}, {_percent(high)}]"
    if verdict is StageVerdict.NONE_FOUND:
        return f"{label}: no effect found, {amount} compared with the waiting nodes."
    word = {StageVerdict.IMPROVES: ", better", StageVerdict.WORSENS: ", worse"}.get(verdict, "")
    return f"{label}: {amount} compared with the waiting nodes{word}."


def _not_compared(all_waiting: int, usable: int) -> str:
    """Return why a metric is not compared. all_waiting: also nodes that were not read."""
    if not all_waiting:
        return "no node waits"
    what = "a value of it" if usable else "enough samples and traffic"
    return f"of {counted(all_waiting, 'waiting node')}, none that was read has {what}"


def _sentence(figures: Sequence[StageFigure], nodes: int) -> str:
    """Return the evidence of a stage in a sentence: of what is worse or better, else of the first metric."""
    if not nodes:
        return "No figures: no node of the stage has enough samples and, before its begin, enough traffic."
    if not figures:
        return "No figures: no node of the stage has a value before and after its begin."
    order = (StageVerdict.WORSENS, StageVerdict.IMPROVES)
    return next((one for verdict in order for one in figures if one.verdict is verdict), figures[0]).sentence


def _percent(logarithm: float) -> str:
    return f"{100 * math.expm1(logarithm):+.3g} %".replace("-", "−")
