"""Verdict on a policy's version from the confidence sequences of its metrics, as a value and as a sentence. Pure."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from coresteer.proof.confidence_sequence import ALPHA, Effect, Evidence, detectable, effect, episodes_to_detect
from coresteer_core.metrics import METRICS, MetricLabel

_SIZES = (0.005, 0.01, 0.015, 0.02, 0.03, 0.05, 0.1, 0.2, 0.5)
_HORIZON = timedelta(days=90)


class Finding(StrEnum):
    """What the evidence says about one metric.

    higher and lower: than without the policy, for metrics of which neither is better.
    """

    NO_EVIDENCE = "no_evidence"
    NONE_YET = "none_yet"
    IMPROVES = "improves"
    WORSENS = "worsens"
    HIGHER = "higher"
    LOWER = "lower"


@dataclass(frozen=True)
class Expected:
    """A relative effect that will have been detected by a time, if it is there and episodes go on as before."""

    effect: float
    at: datetime


@dataclass(frozen=True)
class Verdict:
    """The verdict on one metric. detectable: the relative effect that would have been detected by now; None: none."""

    metric: str
    label: str
    finding: Finding
    effect: Effect | None
    detectable: float | None
    expected: Expected | None
    sentence: str


def alphas(primary: str, guardrails: Sequence[str]) -> dict[str, float]:
    """Return the error probability of each metric: ALPHA for the primary one; the guardrails share another ALPHA."""
    others = [metric for metric in guardrails if metric != primary]
    return {primary: ALPHA} | {metric: ALPHA / len(others) for metric in others}


def judge(
    metric: str,
    evidence: Evidence,
    rho: float,
    *,
    alpha: float,
    per_s: float,
    now: datetime,
    label: MetricLabel | None = None,
) -> Verdict:
    """Return the verdict on one metric. per_s: episodes per second at present, 0 when there are none.

    label: of an application metric; None for one of Coresteer's own.
    """
    shown = label or METRICS[metric]
    found = effect(evidence, rho, alpha)
    if found is None:
        return Verdict(metric, shown.label, Finding.NO_EVIDENCE, None, None, None, "No evidence yet.")
    finding = _finding(shown, found.direction)
    shows = detectable(evidence, rho, alpha)
    expected = _expected(evidence, rho, alpha, per_s, now) if finding is Finding.NONE_YET else None
    return Verdict(
        metric, shown.label, finding, found, shows, expected, _sentence(shown, finding, found, shows, expected)
    )


def harmful(verdicts: Mapping[str, Verdict]) -> Verdict | None:
    """Return the verdict on the first metric that a version worsens, None if it worsens none."""
    return next((one for one in verdicts.values() if one.finding is Finding.WORSENS), None)


def _finding(metric: MetricLabel, direction: int) -> Finding:
    if direction == 0:
        return Finding.NONE_YET
    better = metric.better
    if not better:
        return Finding.HIGHER if direction > 0 else Finding.LOWER
    return Finding.IMPROVES if (direction > 0) == (better == "more") else Finding.WORSENS


def _expected(evidence: Evidence, rho: float, alpha: float, per_s: float, now: datetime) -> Expected | None:
    """Return the largest of some sizes of effects that is not detectable yet, and when it will be."""
    if per_s <= 0:
        return None
    for size in reversed(_SIZES):
        needed = episodes_to_detect(evidence, size, rho, alpha)
        if needed is None:
            return None
        if (left := needed - int(evidence.episodes)) > 0:
            wait = timedelta(seconds=left / per_s) if left / per_s < _HORIZON.total_seconds() else None
            return None if wait is None else Expected(size, now + wait)
    return None


def _sentence(
    metric: MetricLabel, finding: Finding, found: Effect, shows: float | None, expected: Expected | None
) -> str:
    label = metric.label
    if finding is Finding.NONE_YET:
        would = "; too few blocks for an interval"
        if shows is not None:
            would = f"; an effect of {percent(shows)} % would have been detected"
        later = "" if expected is None else _later(expected)
        return f"No effect on {_inside(label)} detected yet{would}{later}."
    if finding is Finding.IMPROVES and metric.better == "less":
        return f"Saves {percent(-found.estimate)} % [{_range(found, -1)}] of {_inside(label)}."
    verb = {Finding.IMPROVES: "Improves", Finding.WORSENS: "Worsens"}.get(finding, "Changes")
    sign = "+" if found.estimate > 0 else "−"
    return f"{verb} {_inside(label)}: {sign}{percent(abs(found.estimate))} % [{_range(found, 1)}]."


def _later(expected: Expected) -> str:
    return f"; one of {percent(expected.effect)} % will be by {expected.at:%Y-%m-%d %H:%M} UTC"


def _range(found: Effect, sign: int) -> str:
    low, high = sorted((sign * (found.low or 0.0), sign * (found.high or 0.0)))
    return f"{percent(low)}, {percent(high)}"


def percent(share: float) -> str:
    """Return a share as a percentage with at least two digits: 3.1, 0.42, 15."""
    value = share * 100
    size = abs(value)
    digits = 1 if size == 0 else min(3, max(0, 1 - math.floor(math.log10(size))))
    return f"{value:.{digits}f}".replace("-", "−")


def _inside(label: str) -> str:
    """Return a metric's label inside a sentence: CPU per gigabit, response time."""
    return label if label[:2].isupper() else label[:1].lower() + label[1:]
