"""How well a template's predictor ranks the arms of an experiment, compared with its primary metric. Pure."""

from typing import NamedTuple

from scipy import stats

from coresteer.experiments.schemas import Experiment
from coresteer.experiments.spec import Arm, Interval
from coresteer.experiments.templates import find_template

GOAL = 0.7
"""Ours; the paper shows the contention factor next to the measured slow-down without figures."""
_FEWEST = 3


class ArmPrediction(NamedTuple):
    """An arm with its measured effect on the primary metric and the mean of the predictor; None where unknown."""

    arm: Arm
    effect: Interval | None
    predicted: Interval | None


class Prediction(NamedTuple):
    """Measured effects next to a predictor. rho: Spearman's over all arms of which both are known, None under three."""

    metric: str
    arms: list[ArmPrediction]
    rho: float | None

    @property
    def known(self) -> list[ArmPrediction]:
        """Return the arms of which effect and predictor are known."""
        return [each for each in self.arms if each.effect is not None and each.predicted is not None]


def prediction_of(experiment: Experiment) -> Prediction | None:
    """Return the effects of an experiment next to its template's predictor; None for a template without one."""
    template, analysis = find_template(experiment.spec.template), experiment.analysis
    if template is None or not template.predictor or experiment.kind == "aa":
        return None
    effects = {one.arm: one.effect for one in analysis.comparisons if one.metric == experiment.primary}
    if any(effects.values()):
        effects[analysis.arms[0]] = Interval(0.0, 0.0, 0.0)
    predicted = analysis.means.get(template.predictor, [None] * len(analysis.arms))
    arms = [ArmPrediction(arm, effects.get(arm), mean) for arm, mean in zip(analysis.arms, predicted, strict=True)]
    found = Prediction(template.predictor, arms, None)
    pairs = [(each.effect.value, each.predicted.value) for each in arms if each.effect and each.predicted]
    if len(pairs) < _FEWEST or any(len(set(column)) < 2 for column in zip(*pairs, strict=True)):
        return found
    return found._replace(rho=float(stats.spearmanr(*zip(*pairs, strict=True)).statistic))
