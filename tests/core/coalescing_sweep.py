"""What Park, Woo, Lee and Kim state of their sweep, as predicates over the NIC model's figures.

coresteer/papers/nic_model.py states which parameters were chosen so that their curve results, and which were not.
"""

from collections.abc import Callable

from msgspec import Struct

from coresteer.papers import figure
from coresteer.papers.nic_model import GAP_US, model, sweep
from coresteer.papers.verdicts import TOLERANCE
from coresteer_core.node.nic import product_bound_us

_SAME, _LESS = 0.01, 0.05
_SPARSE, _DENSE = (figure(each).value or 0.0 for each in ("usecs-90", "usecs-18"))
"""Published interrupts per second while packets are coalesced, and while they are not."""


class Point(Struct, frozen=True):
    """A statement of theirs. holds: whether the model's figure bears it out; figure: the model's."""

    stated: str
    theirs: str
    figure: Callable[[], float]
    holds: Callable[[float], bool]
    unit: str = "/s"


def _rate(rx_usecs: int, rx_frames: int) -> Callable[[], float]:
    return lambda: sweep(rx_usecs, rx_frames).interrupts_per_s


def _about(theirs: float) -> Callable[[float], bool]:
    return lambda ours: abs(ours / theirs - 1) <= TOLERANCE


def _same_as(rx_usecs: int, rx_frames: int) -> Callable[[float], bool]:
    return lambda ours: abs(ours / sweep(rx_usecs, rx_frames).interrupts_per_s - 1) <= _SAME


def _less_than(rx_usecs: int, rx_frames: int) -> Callable[[float], bool]:
    return lambda ours: ours <= (1 - _LESS) * sweep(rx_usecs, rx_frames).interrupts_per_s


def _received(rx_usecs: int, rx_frames: int) -> Callable[[], float]:
    return lambda: sweep(rx_usecs, rx_frames).received_per_s * GAP_US * 1e-4


POINTS = [
    Point("rx-usecs 18, rx-frames 6: interrupts", "~20,000", _rate(18, 6), _about(_DENSE)),
    Point("rx-usecs 18, rx-frames 12: nothing changes", "~20,000", _rate(18, 12), _same_as(18, 6)),
    Point("rx-usecs 18, rx-frames 18: nothing changes", "~20,000", _rate(18, 18), _same_as(18, 6)),
    Point("rx-usecs 18, rx-frames 42: nothing changes", "~20,000", _rate(18, 42), _same_as(18, 6)),
    Point("rx-usecs 36, rx-frames 6: not yet", "~20,000", _rate(36, 6), _same_as(18, 6)),
    Point("rx-usecs 54, rx-frames 6: coalescing sets in", "less", _rate(54, 6), _less_than(36, 6)),
    Point("rx-usecs 72, rx-frames 6: no more than at 54", "less", _rate(72, 6), _less_than(36, 6)),
    Point("rx-usecs 90, rx-frames 6: full past the gap", "~4,000", _rate(90, 6), _about(_SPARSE)),
    Point("rx-usecs 90, rx-frames 6: throughput unaffected", "100", _received(90, 6), lambda ours: ours == 100, "%"),
    Point("rx-usecs 90, rx-frames 12: cut further", "less", _rate(90, 12), _less_than(90, 6)),
    Point("rx-usecs 90, rx-frames 18: cut further", "less", _rate(90, 18), _less_than(90, 12)),
    Point("rx-usecs 90, rx-frames 24: cut further", "less", _rate(90, 24), _less_than(90, 18)),
    Point("rx-usecs 90, rx-frames 30: cut further", "less", _rate(90, 30), _less_than(90, 24)),
    Point("rx-usecs 90, rx-frames 36: cut further", "less", _rate(90, 36), _less_than(90, 30)),
    Point("rx-usecs 90, rx-frames 42: cut further", "less", _rate(90, 42), _less_than(90, 36)),
    Point("rx-usecs 90, rx-frames 42: throughput not yet", "100", _received(90, 42), lambda ours: ours == 100, "%"),
    Point("rx-usecs 90, rx-frames 48: throughput falls", "under 100", _received(90, 48), lambda ours: ours < 99, "%"),
    Point(
        "their bound of 42 × 90 µs",
        "3.8 ms",
        lambda: (product_bound_us(90, 42) or 0) / 1000,
        lambda b: round(b, 1) == 3.8,
        " ms",
    ),
    Point(
        "no packet waits longer than their bound",
        "≤ 3.8 ms",
        lambda: model(90, 42).added_worst_us / 1000,
        lambda w: w <= 3.78,
        " ms",
    ),
    Point(
        "CPU time at 90 and 42, as a ratio to that at 18 and 6 (not their 11 %; not chosen to fit)",
        "under 50",
        lambda: 100 * sweep(90, 42).cpu_share / sweep(18, 6).cpu_share,
        lambda ours: ours < 50,
        "%",
    ),
]
"""Everything that they state of the sweep."""
