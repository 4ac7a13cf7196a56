"""Findings of an experiment as sentences that follow from its confidence intervals. Pure."""

from collections import Counter
from collections.abc import Sequence
from typing import Literal, TypeAlias

from coresteer.experiments.arm_config import levels_of
from coresteer.experiments.predictor import GOAL, prediction_of
from coresteer.experiments.schedule import MAX_ATTEMPTS
from coresteer.experiments.schemas import Experiment
from coresteer.experiments.spec import Arm, Comparison, Interval, Trend, Verdict
from coresteer.experiments.templates import find_template
from coresteer.experiments.tune.result import TuneResult
from coresteer.localization.language import Language
from coresteer.localization.numbers import format_amount, format_correlation, format_p_value, format_percent
from coresteer.localization.text import metric_label, text, translate, translate_name
from coresteer_core.metrics import MetricLabel

Tone: TypeAlias = Literal["better", "worse", "neutral", "unsure"]
"""Colour of an estimate; unsure: its interval includes 0, or there is no result."""

WIDE = 0.1
"""A bound over this much is worth a warning: 'no difference larger than 30 %' is not 'no difference'."""
_LISTED = 4
_RISES = 0.05
"""A trend with a larger p is not reported as a finding."""


class Phrases:
    """Names, labels and sentences of one experiment in one language."""

    def __init__(self, experiment: Experiment, language: Language) -> None:
        self.experiment = experiment
        self.language: Language = language
        self.primary = experiment.primary
        template = find_template(experiment.spec.template)
        self._names_ko = {} if template is None else template.names_ko

    def text(self, key: str, **values: object) -> str:
        """Return the sentence of this key in the language, with its placeholders filled."""
        return text(self.language, key, **values)

    def name(self, arm: Arm) -> str:
        """Return the name of an arm in the language, or "current settings"."""
        names = [self.translated(level.name) for level in levels_of(self.experiment.spec, arm)] if arm else []
        return ", ".join(names) or self.text("arm.unchanged")

    def translated(self, name: str) -> str:
        """Return a name that a template or workload gives, such as of a factor, in the language."""
        return translate_name(self.language, name, self._names_ko)

    @property
    def baseline(self) -> str:
        """Return the name of the baseline arm."""
        arms = self.experiment.analysis.arms
        return self.name(arms[0] if arms else ())

    def label(self, metric: str) -> str:
        """Return the label of a metric in the language."""
        known = self.experiment.metrics.get(metric)
        return metric_label(self.language, metric, known.label if known else None)

    def label_in_sentence(self, metric: str) -> str:
        """Return the label of a metric for use inside a sentence, with a lower-case initial."""
        return label_in_sentence(self.label(metric))

    def unit(self, metric: str) -> str:
        """Return the unit of a metric, empty where it is unknown."""
        known = self.experiment.metrics.get(metric)
        return known.unit if known else ""

    def tone(self, comparison: Comparison) -> Tone:
        """Return whether the verdict of a comparison is better, worse, neutral or unsure."""
        return tone(self.experiment.metrics.get(comparison.metric), comparison.verdict)

    def verdict(self, comparison: Comparison) -> str:
        """Return the verdict of a comparison in a word or two."""
        return verdict(self.language, self.tone(comparison), comparison.verdict)

    def largest_difference(self, interval: Interval) -> str:
        """Return the largest relative difference that a confidence interval includes, as percent."""
        return largest_difference(self.language, interval)

    def interval_ends(self, interval: Interval) -> dict[str, str]:
        """Return the ends of a confidence interval as percent, by the placeholders low and high."""
        return interval_ends(self.language, interval)


def tone(metric: MetricLabel | None, found: Verdict) -> Tone:
    """Return whether a verdict about a metric is better, worse, neutral or unsure."""
    if found not in ("higher", "lower"):
        return "unsure"
    if metric is None or not metric.better:
        return "neutral"
    return "better" if (metric.better == "more") == (found == "higher") else "worse"


def verdict(language: Language, worth: Tone, found: Verdict) -> str:
    """Return a verdict in a word or two, with better or worse where that is known."""
    word = text(language, f"verdict.{found}")
    return text(language, f"verdict.{worth}", verdict=word) if worth in ("better", "worse") else word


def label_in_sentence(name: str) -> str:
    """Return a label for use inside a sentence: with a lower-case initial, unless it is an abbreviation."""
    return name[:1].lower() + name[1:] if name[1:2].islower() else name


def largest_difference(language: Language, interval: Interval) -> str:
    """Return the largest relative difference that an interval includes, as percent rounded up to remain a bound."""
    return format_percent(max(abs(interval.low), abs(interval.high)), language, signed=False, up=True)


def interval_ends(language: Language, interval: Interval) -> dict[str, str]:
    """Return the ends of a confidence interval as percent, by the placeholders low and high."""
    return {"low": format_percent(interval.low, language), "high": format_percent(interval.high, language)}


def primary_comparisons(experiment: Experiment) -> list[Comparison]:
    """Return the comparisons of the experiment's primary metric in the order of arms."""
    return [found for found in experiment.analysis.comparisons if found.metric == experiment.primary]


def findings(experiment: Experiment, language: Language) -> list[str]:
    """Return the findings of an experiment as sentences, the most important first."""
    phrases = Phrases(experiment, language)
    found = primary_comparisons(experiment)
    sentences: list[str] = []
    if experiment.kind == "aa":
        sentences = [_of_itself(phrases)]
    elif experiment.tune is not None:
        sentences = _of_tune(phrases, experiment.tune)
    elif not found:
        sentences = [phrases.text("nothing")]
    elif experiment.kind == "ab":
        sentences = [*_of_one(phrases, found[0]), _of_itself(phrases)]
    else:
        sentences = [
            *_of_many(phrases, found),
            *_of_trends(phrases),
            *prediction_sentences(phrases),
            _of_itself(phrases),
        ]
    if experiment.state != "done":
        kept, sentence = experiment.analysis.counted, translate(language, experiment.sentence)
        is_open = all(one.verdict == "too-few" for one in found)
        ended = phrases.text(f"ended.{experiment.state}", kept=kept, sentence=sentence)
        if is_preliminary(experiment):
            ended += " " + phrases.text("ended.preliminary")
        sentences.insert(0 if is_open else 1, ended)
    if count := len(left_out_runs(experiment)):
        sentences.append(phrases.text("found.left_out", count=count, planned=experiment.runs_planned))
    sentences += _unrestored(phrases)
    return sentences


def is_preliminary(experiment: Experiment) -> bool:
    """Return whether the primary metric has a result of fewer blocks than planned, whose error rates do not hold."""
    found = [*primary_comparisons(experiment)]
    if experiment.kind == "aa" and experiment.primary in experiment.analysis.noise:
        found = [experiment.analysis.noise[experiment.primary]]
    return experiment.state != "done" and any(one.verdict != "too-few" for one in found)


def left_out_runs(experiment: Experiment) -> list[int]:
    """Return the numbers of the runs that were left out: discarded in as many attempts as a run has."""
    counted = {run.planned.number for run in experiment.runs if run.discarded is None}
    tried = Counter(run.planned.number for run in experiment.runs if run.planned.number not in counted)
    return sorted(number for number, times in tried.items() if times >= MAX_ATTEMPTS)


def _of_one(phrases: Phrases, found: Comparison) -> list[str]:
    sentences = [comparison_sentence(phrases, found)]
    if found.minimum_detectable is not None and found.verdict != "too-few":
        visible = format_percent(found.minimum_detectable, phrases.language, signed=False, up=True)
        sentences.append(phrases.text("found.visible", visible=visible))
    return sentences


def comparison_sentence(phrases: Phrases, found: Comparison) -> str:
    """Return the finding about one arm in one metric as a sentence."""
    names = {"metric": phrases.label(found.metric), "arm": phrases.name(found.arm), "baseline": phrases.baseline}
    if found.verdict == "unsteady":
        return phrases.text("found.unsteady", **names | {"metric": phrases.label_in_sentence(found.metric)})
    if found.verdict == "too-few":
        names |= {"metric": phrases.label_in_sentence(found.metric)}
        key = "too_few" if found.baseline is None else "too_few_means" if found.level else "too_few_base"
        return phrases.text(f"found.{key}", **names, **_amounts(phrases, found))
    if found.effect is None:
        return _absolute(phrases, found, names)
    if found.verdict == "no-difference":
        names |= {"metric": phrases.label_in_sentence(found.metric)}
        key = "found.none_wide" if reach(found.effect) > WIDE else "found.none"
        return phrases.text(
            key, **names, bound=phrases.largest_difference(found.effect), **phrases.interval_ends(found.effect)
        )
    change = format_percent(abs(found.effect.value), phrases.language, signed=False)
    sentences = phrases.text(f"found.{found.verdict}", **names, change=change, **phrases.interval_ends(found.effect))
    return _with_worth(phrases, found, sentences)


def _absolute(phrases: Phrases, found: Comparison, names: dict[str, str]) -> str:
    """Return a finding without percentages: the baseline is 0."""
    key = "none" if found.verdict == "no-difference" else found.verdict
    return _with_worth(phrases, found, phrases.text(f"found.{key}_absolute", **names, **_amounts(phrases, found)))


def _amounts(phrases: Phrases, found: Comparison) -> dict[str, str]:
    """Return the means of an arm and of the baseline, by the placeholders value and base."""
    means = {"value": found.level, "base": found.baseline}
    unit = phrases.unit(found.metric)
    return {name: format_amount(mean.value if mean else None, unit, phrases.language) for name, mean in means.items()}


def _with_worth(phrases: Phrases, found: Comparison, sentences: str) -> str:
    worth = phrases.tone(found)
    return f"{sentences} {phrases.text(f'found.{worth}')}" if worth in ("better", "worse") else sentences


def _of_many(phrases: Phrases, found: Sequence[Comparison]) -> list[str]:
    def having(*verdicts: str) -> list[Comparison]:
        return [one for one in found if one.verdict in verdicts]

    higher, lower, none = having("higher"), having("lower"), having("no-difference")
    without_result = having("unsteady", "too-few")
    names = {"metric": phrases.label(phrases.primary), "baseline": phrases.baseline}
    effects = [one.effect for one in none if one.effect]
    if none and len(none) == len(found) and effects:
        widest = max(effects, key=reach)
        sentences = [
            phrases.text(
                "sweep.none",
                **names | {"metric": phrases.label_in_sentence(phrases.primary)},
                bound=phrases.largest_difference(widest),
            )
        ]
        return [
            *sentences,
            *([phrases.text("found.wide", bound=phrases.largest_difference(widest))] if reach(widest) > WIDE else []),
        ]
    counts = {"levels": len(found), "higher": len(higher), "lower": len(lower), "none": len(none)}
    key = {len(higher): "all_higher", len(lower): "all_lower"}.get(len(found), "counts")
    sentences = [phrases.text(f"sweep.{key}", **names, **counts)]
    if without_result:
        sentences[0] += " " + phrases.text("sweep.no_result", count=len(without_result))
    largest = sorted(higher + lower, key=lambda one: -abs(one.effect.value) if one.effect else 0.0)
    return sentences + [comparison_sentence(phrases, one) for one in largest[:_LISTED]]


def reach(effect: Interval) -> float:
    """Return the largest relative difference that a confidence interval includes."""
    return max(abs(effect.low), abs(effect.high))


def _of_trends(phrases: Phrases) -> list[str]:
    factors = phrases.experiment.spec.factors
    return [
        trend_sentence(phrases, trend, phrases.translated(factors[trend.factor].name))
        for trend in phrases.experiment.analysis.trends
        if trend.metric == phrases.primary and trend.p is not None and trend.p <= _RISES and trend.rho
    ]


def trend_sentence(phrases: Phrases, trend: Trend, factor: str) -> str:
    """Return the finding about the trend of a metric over a factor as a sentence."""
    rises = trend.rho is not None and trend.rho > 0
    rho = format_correlation(trend.rho)
    key = "sweep.trend_up" if rises else "sweep.trend_down"
    return phrases.text(key, metric=phrases.label(trend.metric), factor=factor, rho=rho, p=format_p_value(trend.p))


def prediction_sentences(phrases: Phrases) -> list[str]:
    """Return a sentence on how well the predictor ranks the arms, or on why that is unknown; none without one."""
    found = prediction_of(phrases.experiment)
    if found is None:
        return []
    names = {"predictor": phrases.label(found.metric), "metric": phrases.label_in_sentence(phrases.primary)}
    if found.rho is not None:
        rho = {"rho": format_correlation(found.rho), "count": len(found.known), "goal": format_correlation(GOAL)}
        return [phrases.text("predictor.reached" if found.rho >= GOAL else "predictor.missed", **names, **rho)]
    if any(each.predicted for each in found.arms):
        return [phrases.text("predictor.too_few", **names)]
    reason = translate(phrases.language, str(phrases.experiment.machine.get("bandwidth_unknown") or ""))
    return [phrases.text("predictor.unknown", **names, reason=reason).rstrip()]


def _of_tune(phrases: Phrases, tune: TuneResult) -> list[str]:
    by_arm = {each.arm: each for each in tune.candidates}
    latency = phrases.experiment.spec.tune.latency
    names = {
        "metric": phrases.label(phrases.primary),
        "latency": phrases.label_in_sentence(latency),
        "baseline": phrases.baseline,
    }
    best = None if tune.best is None else by_arm.get(tune.best)
    limit = phrases.experiment.spec.tune.limit
    if best is None or best.cost is None:
        if limit is None or not tune.candidates:
            return [phrases.text("nothing")]
        found = format_amount(limit, phrases.unit(latency), phrases.language)
        sentences = [phrases.text("tune.none", **names, limit=found)]
    else:
        value = format_amount(best.cost.value, phrases.unit(phrases.primary), phrases.language)
        other = format_amount(best.latency.value if best.latency else None, phrases.unit(latency), phrases.language)
        names |= {"value": value, "other": other, "arm": phrases.name(best.arm)}
        if best.effect is None:
            sentences = [phrases.text("tune.best_is_baseline", **names)]
        else:
            change = format_percent(best.effect.value, phrases.language)
            ends = phrases.interval_ends(best.effect)
            sentences = [phrases.text("tune.best", **names, change=change, **ends), phrases.text("tune.confirm")]
    runs = sum(each.runs for each in tune.candidates)
    measured = sum(each.runs > 0 for each in tune.candidates)
    counts = {"measured": measured, "combinations": f"{tune.combinations:,}", "eliminated": f"{tune.eliminated:,}"}
    sentences.append(phrases.text("tune.counts", **counts, runs=runs))
    if tune.stopped is not None:
        sentences.append(phrases.text(f"tune.stopped.{tune.stopped}", runs=phrases.experiment.spec.tune.max_runs))
    return sentences


def _of_itself(phrases: Phrases) -> str:
    found = phrases.experiment.analysis.noise.get(phrases.primary)
    metric = phrases.label_in_sentence(phrases.primary)
    if found is None or found.effect is None or found.verdict == "too-few":
        return phrases.text("aa.unknown", metric=metric)
    ends = phrases.interval_ends(found.effect)
    if found.effect.low > 0 or found.effect.high < 0:
        change = format_percent(found.effect.value, phrases.language)
        return phrases.text("aa.unsteady", metric=metric, change=change, **ends)
    return phrases.text("aa.steady", metric=metric, bound=phrases.largest_difference(found.effect), **ends)


def _unrestored(phrases: Phrases) -> list[str]:
    differing = unrestored_settings(phrases.experiment)
    return [phrases.text("settings.differ", keys=", ".join(differing))] if differing else []


def unrestored_settings(experiment: Experiment) -> list[str]:
    """Return the keys of settings whose values after the experiment differ from those before it."""
    before, after = experiment.settings.before, experiment.settings.after
    if after is None:
        return []
    return sorted(key for key in before.keys() | after.keys() if before.get(key) != after.get(key))
