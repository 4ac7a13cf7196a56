"""What the model says of a netdev's traffic: now, for other values, and for what was measured. Pure but for a cache."""

import math
from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from msgspec.structs import replace

from coresteer.coalescing.schemas import MeasuredPoint, Surface, Traffic
from coresteer.telemetry.repository import at_ms
from coresteer_core.model import Inventory, Load, Netdev
from coresteer_core.nic import Point, Timer, added_bound_us, product_bound_us, sets_own_pace
from coresteer_core.simulate.nic import TYPICAL_HOST, Arrivals, Host, Predicted, Wait, packet_gap_us, predict

USECS = (0, 3, 6, 10, 18, 25, 36, 54, 72, 90, 125, 180, 250, 500, 1000)
FRAMES = (1, 2, 4, 6, 8, 12, 16, 24, 32, 42, 64, 128)
_LEAST_SHARE = 0.05
"""A queue with less than this share of the busiest one's interrupts is not in use."""
_USUAL_FRAME_BYTES = 1500.0
_LEAST_POINTS = 3
"""Two points are always in some order."""


def number(params: dict[str, str], name: str) -> int | None:
    """A parameter's value; None where the device has none."""
    value = params.get(name, "")
    return int(value) if value.isdecimal() else None


def receive_rates(inventory: Inventory, netdev: Netdev, load: Load) -> list[float] | None:
    """Interrupts per second of each interrupt of the netdev's receive queues; None where not known."""
    irqs = {queue.irq for queue in netdev.queues if queue.name.startswith("rx-") and queue.irq is not None}
    irqs |= {irq.irq for irq in inventory.irqs if irq.netdev == netdev.name and _receives(irq.queues)}
    if not irqs or not load.irqs:
        return None
    rates = dict.fromkeys(irqs, 0.0)
    for each in load.irqs:
        if each.irq in rates:
            rates[each.irq] += each.per_s
    return list(rates.values())


def _receives(queues: Sequence[str]) -> bool:
    return any(queue.startswith("rx-") for queue in queues)


def traffic_of(
    netdev: Netdev, load: Load, rates: Sequence[float] | None, *, packets_per_s: float | None, frame_bytes: float | None
) -> Traffic | None:
    """What it receives, measured or supposed; None where neither tells. rates: see receive_rates.

    Packets are divided among queues as their interrupts are; supposed ones come over one queue while none is in use.
    """
    counted = next((one for one in load.netdevs if one.name == netdev.name), None)
    measured = counted.rx_packets_per_s if counted is not None else 0.0
    packets = measured if packets_per_s is None else packets_per_s
    if packets <= 0:
        return None
    if frame_bytes is None:
        frame_bytes = counted.rx_bytes_per_s / measured if counted is not None and measured > 0 else _USUAL_FRAME_BYTES
    most = max(rates or [0.0])
    used = [rate for rate in rates or [] if most > 0 and rate >= _LEAST_SHARE * most]
    speed = netdev.speed_bits_per_s
    return Traffic(
        packets_per_s=packets,
        packets_per_s_a_queue=packets * (most / sum(used) if used else 1.0),
        queues=len(used) or 1,
        frame_bytes=frame_bytes,
        gap_us=packet_gap_us(frame_bytes, speed) if speed else None,
        measured_s=load.seconds if packets_per_s is None else None,
    )


class Model:
    """A netdev's receive side as the model has it. Of an unknown timer the one that waits longest is taken: restarting,
    which fires no earlier than absolute, nor that than throttle."""

    def __init__(self, netdev: Netdev, timer: Timer | None) -> None:
        self._driver = netdev.driver
        self._timer = timer
        self._speed = netdev.speed_bits_per_s
        self._host = Host(ring=number(netdev.params, "ring/rx") or TYPICAL_HOST.ring)
        self._counts_frames = "coalesce/rx-frames" in netdev.params

    def predicted(
        self, packets_per_s: float, a_queue: float, frame_bytes: float, rx_usecs: int, rx_frames: int | None
    ) -> Predicted | None:
        """Of traffic of which so much comes over the busiest queue; interrupts of all of them together.

        None where rx_usecs is no time but tells the driver to set its own pace.
        """
        if sets_own_pace(self._driver, rx_usecs):
            return None
        # steady traffic is never quite steady: figures of two digits let the picture hold still and be kept
        arrivals = Arrivals(_two_digits(a_queue), round(frame_bytes, -1), self._speed)
        found = _kept(arrivals, Wait(self._timer or Timer.RESTARTING, rx_usecs, rx_frames), self._host)
        return replace(found, interrupts_per_s=found.interrupts_per_s * packets_per_s / a_queue)

    def of_traffic(self, traffic: Traffic, rx_usecs: int, rx_frames: int | None) -> Predicted | None:
        """The same for traffic as it is told."""
        a_queue, frame_bytes = traffic.packets_per_s_a_queue, traffic.frame_bytes
        return self.predicted(traffic.packets_per_s, a_queue, frame_bytes, rx_usecs, rx_frames)

    def surface(self, traffic: Traffic, usecs: Sequence[int], frames: Sequence[int]) -> Surface:
        """Over the usual values and those that stand or stood: usecs, frames."""
        columns = sorted({*(value for value in USECS if not sets_own_pace(self._driver, value)), *usecs})
        rows = sorted({*FRAMES, *frames}) if self._counts_frames else []
        lines: Sequence[int | None] = rows or [None]
        return Surface(
            rx_usecs=columns,
            rx_frames=rows,
            predicted=[[self.of_traffic(traffic, column, row) for column in columns] for row in lines],
            bound_us=[[self._bound_us(column, row) for column in columns] for row in lines],
            product_us=[[product_bound_us(column, row) for column in columns] for row in lines],
        )

    def _bound_us(self, rx_usecs: int, rx_frames: int | None) -> float | None:
        bound = added_bound_us(self._timer, rx_usecs, rx_frames)
        return bound if math.isfinite(bound) else None

    def measured(self, point: Point, traffic: Traffic | None) -> MeasuredPoint:
        """A point with what the model says of its traffic, divided among queues as it is now."""
        packets_per_s, frame_bytes = point.rx_packets / point.seconds, 0.0
        said: float | None = None
        if point.rx_packets > 0:
            frame_bytes = point.rx_bytes / point.rx_packets
            share = 1.0 if traffic is None else traffic.packets_per_s_a_queue / traffic.packets_per_s
            if point.rx_usecs is not None and not point.adaptive:
                a_queue = packets_per_s * share
                found = self.predicted(packets_per_s, a_queue, frame_bytes, point.rx_usecs, point.rx_frames)
                said = None if found is None else found.interrupts_per_s
        return MeasuredPoint(
            rx_usecs=point.rx_usecs,
            rx_frames=point.rx_frames,
            adaptive=point.adaptive,
            seconds=point.seconds,
            packets_per_s=packets_per_s,
            frame_bytes=frame_bytes,
            interrupts_per_s=point.interrupts / point.seconds,
            packets_per_interrupt=point.rx_packets / point.interrupts if point.interrupts else None,
            dropped_per_s=point.dropped / point.seconds,
            rtt_p50_us=point.rtt_us_s / point.rtt_s if point.rtt_s > 0 else None,
            last_at=at_ms(point.last_ms),
            predicted_interrupts_per_s=said,
        )


@lru_cache(maxsize=8192)
def _kept(arrivals: Arrivals, wait: Wait, host: Host) -> Predicted:
    return predict(arrivals, wait, host, packets=600)


def _two_digits(value: float) -> float:
    return float(f"{value:.1e}")


def rank_correlation(points: Sequence[MeasuredPoint]) -> float | None:
    """Spearman's, of what was measured and what the model says; None with too few points or all of them alike."""
    pairs = [(p.interrupts_per_s, p.predicted_interrupts_per_s) for p in points if p.predicted_interrupts_per_s]
    if len(pairs) < _LEAST_POINTS:
        return None
    ranks = [_ranks([pair[side] or 0.0 for pair in pairs]) for side in (0, 1)]
    if any(np.ptp(side) == 0 for side in ranks):
        return None
    return float(np.corrcoef(ranks[0], ranks[1])[0, 1])


def _ranks(values: Sequence[float]) -> "np.typing.NDArray[np.float64]":
    """Places in order; those that are alike share the mean of theirs."""
    _, place, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    return np.asarray((last - (counts - 1) / 2)[place], np.float64)
