"""Search the knee of interrupt coalescing with the NIC model: the effect of a long delay for a short one.

The rule of Park, Woo, Lee and Kim: the shortest rx-usecs at which coalescing takes effect, then the lowest rx-frames
with few interrupts, before throughput falls.
"""

from collections.abc import Sequence
from math import inf

from msgspec import Struct

from coresteer_core.node.nic import Timer, max_wait_us
from coresteer_core.node.nic_model import TYPICAL_HOST_COSTS, HostCosts, Prediction, QueueTraffic, TimerParams, predict

KNEE_USECS = (3, 6, 10, 15, 20, 25, 30, 40, 50, 60, 80, 100, 120, 150, 200, 250, 300, 400, 500, 600, 800, 1000)
KNEE_FRAMES = (4, 6, 8, 12, 16, 24, 32, 42, 48, 64, 96, 128)
"""Values of rx-usecs and rx-frames to choose from, ascending."""

_NEAR = 1.05
"""Factor up to which two interrupt rates count as equal."""
_FEW = 4
"""Packets per interrupt at which coalescing has taken effect, where the NIC does not count packets."""
_LOST = 0.001
"""Share of dropped packets, above that without a delay, from which throughput counts as fallen."""
_PACKETS = 600
"""Packets to simulate for each pair of values."""


class Knee(Struct, frozen=True):
    """The knee: rx-usecs, rx-frames (None where packets are not counted), and the prediction for them.

    max_wait_us: the longest time that a packet waits.
    """

    rx_usecs: int
    rx_frames: int | None
    max_wait_us: float
    predicted: Prediction


def find_knee(
    traffic: QueueTraffic,
    timer: Timer,
    host: HostCosts = TYPICAL_HOST_COSTS,
    *,
    usecs: Sequence[int] = KNEE_USECS,
    frames: Sequence[int] = KNEE_FRAMES,
    max_added_us: float = inf,
) -> Knee | None:
    """Return the shortest rx-usecs at which coalescing takes effect, and the rx-frames with fewest interrupts.

    The effect is full when the lowest of frames ends the delays. Only delays within max_added_us that drop no
    packets are chosen, and of about equal interrupt rates the lower count. usecs, frames: values to choose from,
    ascending; frames is empty where the NIC does not count packets. None where no delay takes effect, because all are
    shorter than the time between two packets.
    """

    def choose(pairs: list[tuple[int, int | None]]) -> list[Knee]:
        found = [
            Knee(time, count, wait_us, predict(traffic, TimerParams(timer, time, count), host, packets=_PACKETS))
            for time, count in pairs
            if (wait_us := max_wait_us(timer, time, count)) <= max_added_us
        ]
        return [one for one in found if one.predicted.dropped_share <= least_dropped + _LOST]

    least_dropped = predict(traffic, TimerParams(timer, 0), host, packets=_PACKETS).dropped_share
    first = frames[0] if frames else None
    effective = (
        one
        for one in choose([(time, first) for time in usecs])
        if one.predicted.packets_per_interrupt * _NEAR >= (first or _FEW)
    )
    found = next(effective, None)
    if found is None or not frames:
        return found
    counted = choose([(found.rx_usecs, count) for count in frames])
    least = min(one.predicted.interrupts_per_s for one in counted)
    return next(one for one in counted if one.predicted.interrupts_per_s <= _NEAR * least)
