"""When an alert fires and when it is resolved: two thresholds and two durations, so that it does not flap. Pure."""

from msgspec import Struct


class Limits(Struct, frozen=True):
    """Limits of a rule. An alert fires when the value has been ≥ threshold for for_s seconds without a break.

    It is resolved when the value has been < clear for keep_s seconds without a break; clear ≤ threshold. Between both
    nothing changes.
    """

    threshold: float
    clear: float
    for_s: float
    keep_s: float


class Watch(Struct, frozen=True):
    """State of one subject of a rule. since_s: since when its value demands the other state, None while it does not."""

    firing: bool = False
    since_s: float | None = None


IDLE = Watch()
"""The state of a subject that needs no memory: it does not fire, and its value does not demand it."""


def step(limits: Limits, watch: Watch, value: float | None, now_s: float) -> Watch:
    """Return the state after a value at a time in seconds. None: the value is unknown, so neither period goes on.

    An unknown value does not resolve an alert: it is no evidence that the cause has gone.
    """
    if value is None:
        return Watch(watch.firing)
    demands_other = value < limits.clear if watch.firing else value >= limits.threshold
    if not demands_other:
        return Watch(watch.firing)
    since_s = now_s if watch.since_s is None else watch.since_s
    needed_s = limits.keep_s if watch.firing else limits.for_s
    return Watch(not watch.firing) if now_s - since_s >= needed_s else Watch(watch.firing, since_s)
