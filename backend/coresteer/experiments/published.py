"""Values of a paper next to those of an experiment that repeats it, matched by the roles of arms. Pure."""

import math
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from types import MappingProxyType

from coresteer.experiments.arm_config import levels_of
from coresteer.experiments.schemas import PublishedResult, PublishedRow
from coresteer.experiments.spec import Analysis, Arm, Interval, Spec


def published_results(
    spec: Spec, analysis: Analysis, rows: Sequence[PublishedRow], unmeasured: Mapping[str, str] = MappingProxyType({})
) -> list[PublishedResult]:
    """Return each published value with the arms of the experiment that it belongs to.

    unmeasured: metrics that say nothing about the experiment's load, with the reason.
    """
    return [_result(spec, analysis, row, unmeasured.get(row.metric)) for row in rows]


def role_of(spec: Spec, arm: Arm) -> str:
    """Return the role of an arm: those of its levels, separated by commas; empty without one."""
    return ", ".join(level.role for level in levels_of(spec, arm) if level.role)


def _result(spec: Spec, analysis: Analysis, row: PublishedRow, unmeasured_because: str | None) -> PublishedResult:
    arms = [] if unmeasured_because else [at for at, arm in enumerate(analysis.arms) if _has_role(spec, arm, row.role)]
    effects = [_effect(spec, analysis, row, analysis.arms[at]) for at in arms] if row.against else []
    return PublishedResult(
        **row.model_dump(),
        arms=arms,
        effect=_largest([effect for effect in effects if effect is not None], row.direction),
        unmeasured_because=unmeasured_because,
    )


def _has_role(spec: Spec, arm: Arm, role: str) -> bool:
    return bool(role) and fnmatchcase(role_of(spec, arm), role)


def _largest(effects: list[Interval], direction: str) -> Interval | None:
    """Return the largest effect in the published direction, because papers print the largest of several cases."""
    sign = {"higher": 1, "lower": -1}.get(direction)
    return max(effects, key=lambda each: abs(each.value) if sign is None else sign * each.value, default=None)


def _effect(spec: Spec, analysis: Analysis, row: PublishedRow, arm: Arm) -> Interval | None:
    """Return the relative difference of an arm from the arm in the role `against`, in the row's metric."""
    effects = {one.arm: one.effect for one in analysis.comparisons if one.metric == row.metric}
    other = next((each for each in analysis.arms if _has_role(spec, each, row.against)), None)
    effect = Interval(0.0, 0.0, 0.0) if arm == analysis.arms[0] else effects.get(arm)
    if other is None or other == arm or effect is None:
        return None
    if other == analysis.arms[0]:
        return effect
    base = effects.get(other)
    return None if base is None else ratio_of(base, effect)


def ratio_of(a: Interval, b: Interval) -> Interval | None:
    """Return the ratio of two effects, (1 + b) / (1 + a) - 1, with its interval from theirs; None where unknown.

    MOVER on logarithms, which preserves asymmetric intervals (Zou and Donner, Statistics in Medicine 27,
    2008), for independent a and b; of two arms with one baseline, which vary together, it is wider than necessary.
    None where an effect is -100 % or less.
    """
    if min(a.low, a.value, b.low, b.value) <= -1:
        return None
    (x, x_low, x_high), (y, y_low, y_high) = (
        tuple(math.log1p(each) for each in (one.value, one.low, one.high)) for one in (a, b)
    )
    low = y - x - math.hypot(y - y_low, x_high - x)
    high = y - x + math.hypot(y_high - y, x - x_low)
    return Interval(math.expm1(y - x), math.expm1(low), math.expm1(high))
