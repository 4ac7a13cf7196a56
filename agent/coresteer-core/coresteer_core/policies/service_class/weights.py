"""One weight for nice values and cgroup weights alike, as the scheduler counts it: 1024 for a task of nice 0."""

from math import log

from coresteer_core.settings import CgroupWeight, TaskNice
from coresteer_core.settings.cgroup import WEIGHTS
from coresteer_core.settings.task import LEAST_NICE, MOST_NICE

USUAL = 1024.0
"""What work has that nobody has weighed."""
STEP = 1.25
"""The scheduler's weights of neighbouring nice values (kernel: kernel/sched/core.c, sched_prio_to_weight)."""
_DEADBAND = 0.1
"""A weight that is to change by less stays; of a nice value, one that is to change by less than _LEVEL of a step."""
_LEVEL = 0.75


def value_of(setting: TaskNice | CgroupWeight, weight: float) -> str:
    """The setting's value that is nearest to a weight."""
    if isinstance(setting, TaskNice):
        return str(min(MOST_NICE, max(LEAST_NICE, round(-log(weight / USUAL, STEP)))))
    least, most = WEIGHTS[setting.name]
    return str(min(most, max(least, round(weight * _scale(setting)))))


def weight_of(setting: TaskNice | CgroupWeight, value: str) -> float:
    """The weight that a setting's value gives."""
    if isinstance(setting, TaskNice):
        return USUAL * STEP ** -int(setting.shown(value))
    return max(int(value), 1) / _scale(setting)


def toward(setting: TaskNice | CgroupWeight, stands: str, weight: float) -> str | None:
    """The value one bounded step from the one that stands towards a weight; None where it is near enough."""
    now = weight_of(setting, stands)
    least = _LEVEL * log(STEP) if isinstance(setting, TaskNice) else _DEADBAND
    if abs(log(weight / now)) < least:
        return None
    value = value_of(setting, min(now * STEP, max(now / STEP, weight)))
    return None if setting.equal(value, stands) else value


def _scale(setting: CgroupWeight) -> float:
    return 1.0 if setting.name == "cpu.shares" else 100 / USUAL
