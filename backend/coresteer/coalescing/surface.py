"""Predicted effect of interrupt coalescing on a device's traffic, for other values and for measured ones. Pure."""

import math
from collections.abc import Sequence

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from coresteer.coalescing.schemas import MeasuredPoint, Surface
from coresteer.telemetry.repository import from_unix_ms
from coresteer_core.metrics import packets_per_interrupt
from coresteer_core.node.inventory import Netdev
from coresteer_core.node.nic import CoalescingPoint, Timer, max_added_wait_us, product_bound_us, selects_adaptive_mode
from coresteer_core.node.nic_model import Prediction, TimerParams
from coresteer_core.node.receive import ReceivedTraffic, predict_received

_USECS = (0, 3, 6, 10, 18, 25, 36, 54, 72, 90, 125, 180, 250, 500, 1000)
_FRAMES = (1, 2, 4, 6, 8, 12, 16, 24, 32, 42, 64, 128)
_PACKETS = 600
"""Simulated per pair of values: 200 pairs take some tens of milliseconds."""
_MIN_POINTS = 3
"""Two points are always in some order."""


def predict(
    netdev: Netdev, timer: Timer | None, traffic: ReceivedTraffic, rx_usecs: int, rx_frames: int | None
) -> Prediction | None:
    """Return the prediction for a pair of coalescing values, None where rx_usecs selects a mode of the driver.

    For an unknown timer the one that waits longest is assumed, as in receive.timer_params.
    """
    if selects_adaptive_mode(netdev.driver, rx_usecs):
        return None
    return predict_received(
        netdev, traffic, TimerParams(timer or Timer.RESTARTING, rx_usecs, rx_frames), packets=_PACKETS
    )


def predict_surface(
    netdev: Netdev, timer: Timer | None, traffic: ReceivedTraffic, usecs: Sequence[int], frames: Sequence[int]
) -> Surface:
    """Return predictions for the usual pairs of coalescing values and the given ones (usecs, frames)."""
    columns = sorted({*(value for value in _USECS if not selects_adaptive_mode(netdev.driver, value)), *usecs})
    rows = sorted({*_FRAMES, *frames}) if "coalesce/rx-frames" in netdev.params else []
    lines: Sequence[int | None] = rows or [None]
    return Surface(
        rx_usecs=columns,
        rx_frames=rows,
        predicted=[[predict(netdev, timer, traffic, column, row) for column in columns] for row in lines],
        bound_us=[[_finite(max_added_wait_us(timer, column, row)) for column in columns] for row in lines],
        product_us=[[product_bound_us(column, row) for column in columns] for row in lines],
    )


def _finite(bound_us: float) -> float | None:
    return bound_us if math.isfinite(bound_us) else None


def compare_with_prediction(netdev: Netdev, timer: Timer | None, point: CoalescingPoint, share: float) -> MeasuredPoint:
    """Return a measured point with the prediction for its traffic. share: of the packets, on the busiest queue now."""
    seen = ReceivedTraffic(
        packets_per_s=point.rx_packets / point.seconds,
        frame_bytes=point.rx_bytes / point.rx_packets if point.rx_packets else 0.0,
        share=share,
        interrupts_per_s=point.interrupts / point.seconds,
    )
    prediction = None
    if point.rx_usecs is not None and not point.adaptive and point.rx_packets:
        prediction = predict(netdev, timer, seen, point.rx_usecs, point.rx_frames)
    return MeasuredPoint(
        rx_usecs=point.rx_usecs,
        rx_frames=point.rx_frames,
        adaptive=point.adaptive,
        seconds=point.seconds,
        packets_per_s=seen.packets_per_s,
        frame_bytes=seen.frame_bytes,
        interrupts_per_s=point.interrupts / point.seconds,
        packets_per_interrupt=packets_per_interrupt(point.rx_packets, point.interrupts),
        dropped_per_s=point.dropped / point.seconds,
        rtt_p50_us=point.rtt_us_s / point.rtt_s if point.rtt_s > 0 else None,
        last_at=from_unix_ms(point.last_ms),
        predicted_interrupts_per_s=None if prediction is None else prediction.interrupts_per_s,
    )


def what_if_traffic(
    traffic: ReceivedTraffic | None, *, packets_per_s: float | None, frame_bytes: float | None, usual_frame_bytes: float
) -> ReceivedTraffic | None:
    """Return the measured traffic with the given values replaced, None if nothing is measured or given.

    Unmeasured traffic is all on one queue.
    """
    if packets_per_s is None and traffic is None:
        return None
    base = traffic or ReceivedTraffic(packets_per_s or 0.0, usual_frame_bytes, 1.0, None)
    return replace(
        base,
        packets_per_s=base.packets_per_s if packets_per_s is None else packets_per_s,
        frame_bytes=base.frame_bytes if frame_bytes is None else frame_bytes,
    )


def rank_correlation(points: Sequence[MeasuredPoint]) -> float | None:
    """Return Spearman's correlation of measured and predicted interrupts, None with under 3 points or equal ranks."""
    pairs = [
        (point.interrupts_per_s, point.predicted_interrupts_per_s)
        for point in points
        if point.predicted_interrupts_per_s is not None
    ]
    if len(pairs) < _MIN_POINTS:
        return None
    measurements, predictions = _ranks([pair[0] for pair in pairs]), _ranks([pair[1] for pair in pairs])
    if np.ptp(measurements) == 0 or np.ptp(predictions) == 0:
        return None
    return float(np.corrcoef(measurements, predictions)[0, 1])


def _ranks(values: Sequence[float]) -> NDArray[np.float64]:
    """Return the rank of each value; equal values share their mean rank."""
    _, place, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    return np.asarray((last - (counts - 1) / 2)[place], np.float64)
