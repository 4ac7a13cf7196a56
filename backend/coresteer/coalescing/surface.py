"""What the model says of a netdev's traffic: for other values, and for what was measured. Pure."""

import math
from collections.abc import Sequence

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from coresteer.coalescing.schemas import MeasuredPoint, Surface
from coresteer.telemetry.repository import at_ms
from coresteer_core.node.inventory import Netdev
from coresteer_core.node.nic import Point, Timer, added_bound_us, product_bound_us, sets_own_pace
from coresteer_core.node.nic_model import Prediction, TimerParams
from coresteer_core.node.receive import Received, predict_received

_USECS = (0, 3, 6, 10, 18, 25, 36, 54, 72, 90, 125, 180, 250, 500, 1000)
_FRAMES = (1, 2, 4, 6, 8, 12, 16, 24, 32, 42, 64, 128)
_PACKETS = 600
"""Looked at for each pair of values: 200 pairs take some tens of milliseconds."""
_LEAST_POINTS = 3
"""Two points are always in some order."""


def predicted(
    netdev: Netdev, timer: Timer | None, traffic: Received, rx_usecs: int, rx_frames: int | None
) -> Prediction | None:
    """What the model says of a pair of values; None where rx_usecs is no time but a mode of the driver.

    Of an unknown timer the one that waits longest is taken, as in receive.wait_of.
    """
    if sets_own_pace(netdev.driver, rx_usecs):
        return None
    return predict_received(
        netdev, traffic, TimerParams(timer or Timer.RESTARTING, rx_usecs, rx_frames), packets=_PACKETS
    )


def surface(
    netdev: Netdev, timer: Timer | None, traffic: Received, usecs: Sequence[int], frames: Sequence[int]
) -> Surface:
    """Over the usual values and those that stand or stood: usecs, frames."""
    columns = sorted({*(value for value in _USECS if not sets_own_pace(netdev.driver, value)), *usecs})
    rows = sorted({*_FRAMES, *frames}) if "coalesce/rx-frames" in netdev.params else []
    lines: Sequence[int | None] = rows or [None]
    return Surface(
        rx_usecs=columns,
        rx_frames=rows,
        predicted=[[predicted(netdev, timer, traffic, column, row) for column in columns] for row in lines],
        bound_us=[[_finite(added_bound_us(timer, column, row)) for column in columns] for row in lines],
        product_us=[[product_bound_us(column, row) for column in columns] for row in lines],
    )


def _finite(bound_us: float) -> float | None:
    return bound_us if math.isfinite(bound_us) else None


def measured(netdev: Netdev, timer: Timer | None, point: Point, share: float) -> MeasuredPoint:
    """A point with what the model says of its traffic. share: of the packets, on the busiest queue now."""
    seen = Received(
        packets_per_s=point.rx_packets / point.seconds,
        frame_bytes=point.rx_bytes / point.rx_packets if point.rx_packets else 0.0,
        share=share,
        interrupts_per_s=point.interrupts / point.seconds,
    )
    said = None
    if point.rx_usecs is not None and not point.adaptive and point.rx_packets:
        said = predicted(netdev, timer, seen, point.rx_usecs, point.rx_frames)
    return MeasuredPoint(
        rx_usecs=point.rx_usecs,
        rx_frames=point.rx_frames,
        adaptive=point.adaptive,
        seconds=point.seconds,
        packets_per_s=seen.packets_per_s,
        frame_bytes=seen.frame_bytes,
        interrupts_per_s=point.interrupts / point.seconds,
        packets_per_interrupt=point.rx_packets / point.interrupts if point.interrupts else None,
        dropped_per_s=point.dropped / point.seconds,
        rtt_p50_us=point.rtt_us_s / point.rtt_s if point.rtt_s > 0 else None,
        last_at=at_ms(point.last_ms),
        predicted_interrupts_per_s=None if said is None else said.interrupts_per_s,
    )


def supposed(
    traffic: Received | None, *, packets_per_s: float | None, frame_bytes: float | None, usual_frame_bytes: float
) -> Received | None:
    """What is measured with what somebody supposes in its place; all over one queue where none is measured."""
    if packets_per_s is None and traffic is None:
        return None
    base = traffic or Received(packets_per_s or 0.0, usual_frame_bytes, 1.0, None)
    return replace(
        base,
        packets_per_s=base.packets_per_s if packets_per_s is None else packets_per_s,
        frame_bytes=base.frame_bytes if frame_bytes is None else frame_bytes,
    )


def rank_correlation(points: Sequence[MeasuredPoint]) -> float | None:
    """Spearman's, of what was measured and what the model says; None with too few points or all of them alike."""
    pairs = [
        (point.interrupts_per_s, point.predicted_interrupts_per_s)
        for point in points
        if point.predicted_interrupts_per_s is not None
    ]
    if len(pairs) < _LEAST_POINTS:
        return None
    seen, said = _ranks([pair[0] for pair in pairs]), _ranks([pair[1] for pair in pairs])
    if np.ptp(seen) == 0 or np.ptp(said) == 0:
        return None
    return float(np.corrcoef(seen, said)[0, 1])


def _ranks(values: Sequence[float]) -> NDArray[np.float64]:
    """Places in order; those that are alike share the mean of theirs."""
    _, place, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    return np.asarray((last - (counts - 1) / 2)[place], np.float64)
