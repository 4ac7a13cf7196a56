"""Convert nice values and cgroup weights to the scheduler's weights (1024 for nice 0), and back."""

from math import log

from coresteer_core.settings import CgroupWeight, TaskNice
from coresteer_core.settings.cgroup import WEIGHTS
from coresteer_core.settings.task import MAX_NICE, MIN_NICE

DEFAULT_WEIGHT = 1024.0
"""The scheduler's weight of a task with nice 0, and of a cgroup with the default weight."""
NICE_STEP_RATIO = 1.25
"""Ratio of the scheduler's weights of neighbouring nice values (kernel/sched/core.c, sched_prio_to_weight)."""
_DEADBAND = 0.1
"""Relative change of a cgroup weight below which it is not written; for nice values _LEVEL of a step."""
_LEVEL = 0.75


def nearest_value(setting: TaskNice | CgroupWeight, weight: float) -> str:
    """Return the nice value or cgroup weight, as a setting's value, nearest to a scheduler weight."""
    if isinstance(setting, TaskNice):
        return str(min(MAX_NICE, max(MIN_NICE, round(-log(weight / DEFAULT_WEIGHT, NICE_STEP_RATIO)))))
    least, most = WEIGHTS[setting.name]
    return str(min(most, max(least, round(weight * _scale(setting)))))


def scheduler_weight(setting: TaskNice | CgroupWeight, value: str) -> float:
    """Return the scheduler weight (1024 for nice 0) of a nice value or cgroup weight."""
    if isinstance(setting, TaskNice):
        return DEFAULT_WEIGHT * NICE_STEP_RATIO ** -int(setting.value_in_view(value))
    return max(int(value), 1) / _scale(setting)


def next_value(setting: TaskNice | CgroupWeight, current: str, weight: float) -> str | None:
    """Return the next nice value or cgroup weight on the way to a scheduler weight; None where it is near enough."""
    now = scheduler_weight(setting, current)
    least = _LEVEL * log(NICE_STEP_RATIO) if isinstance(setting, TaskNice) else _DEADBAND
    if abs(log(weight / now)) < least:
        return None
    value = nearest_value(setting, min(now * NICE_STEP_RATIO, max(now / NICE_STEP_RATIO, weight)))
    return None if setting.equal(value, current) else value


def _scale(setting: CgroupWeight) -> float:
    return 1.0 if setting.name == "cpu.shares" else 100 / DEFAULT_WEIGHT
