"""Simulate a NIC's receive queue and interrupt timer packet by packet, for interrupt rate and added latency.

The model of Park, Woo, Lee and Kim (interrupt coalescing), extended by the timers of other NICs. Deterministic: random
arrivals come from a fixed seed.

Traffic below the link's rate arrives at random, as from many independent senders; at the link's rate it arrives back to
back. A queue that one sender fills in bursts has fewer interrupts than predicted.
"""

import math
from functools import lru_cache
from itertools import accumulate

from msgspec import Struct

from coresteer_core.node.nic import Timer


class QueueTraffic(Struct, frozen=True):
    """Packets that arrive in one receive queue of a NIC. link_bits_per_s bounds their rate; None: no bound."""

    packets_per_s: float
    frame_bytes: float
    link_bits_per_s: int | None


class TimerParams(Struct, frozen=True):
    """Interrupt coalescing of a NIC: kind of timer, rx-usecs and rx-frames (None or 0 where packets are not counted).

    The interrupt is raised at rx_usecs or rx_frames, whichever is first. With rx_usecs 0 only the count decides, and
    without a count there is no delay (kernel: include/uapi/linux/ethtool.h).
    """

    timer: Timer
    rx_usecs: float
    rx_frames: int | None = None


class HostCosts(Struct, frozen=True):
    """Receive costs of the host in µs, and the ring size. While the host polls, the NIC does not interrupt (NAPI).

    ring: packets that the NIC can hold. entry_us: from the interrupt to the first packet. packet_us: per packet, > 0.
    """

    ring: int = 256
    entry_us: float = 5.0
    packet_us: float = 1.0


TYPICAL_HOST_COSTS = HostCosts()


class Prediction(Struct, frozen=True):
    """Predicted interrupt rate, latency in µs that coalescing adds to a packet, and share of dropped packets."""

    interrupts_per_s: float
    packets_per_interrupt: float
    added_mean_us: float
    added_p99_us: float
    added_worst_us: float
    dropped_share: float


_SEED = 4
_INTERRUPTS = 4
"""Minimum number of interrupts to simulate, even if that takes more packets than requested."""
_MOST_PACKETS = 16_384
_LEAST_PER_S = 1e-3
"""Lower bound of packets_per_s in the model."""
_END_US = 1e300
"""A time after all packets."""


def frame_wire_time_us(frame_bytes: float, link_bits_per_s: int) -> float:
    """Return the time in µs that a frame takes on the wire: 9000 B at 1 Gbit/s is 72 µs."""
    return frame_bytes * 8e6 / link_bits_per_s


def predict(
    traffic: QueueTraffic, params: TimerParams, host: HostCosts = TYPICAL_HOST_COSTS, *, packets: int = 1000
) -> Prediction:
    """Return the interrupt rate and added latency that the model predicts for a receive queue.

    Rates are those from the first interrupt to the last. Where a delay collects many packets, more than requested are
    simulated. dropped_share: of arrived packets; a packet is dropped when the ring is full, and then neither restarts
    the timer nor counts. Packets that arrive while the host polls have no added latency.
    """
    gap_us, least_us = _gaps(traffic)
    between = params.rx_usecs / gap_us
    if params.timer is Timer.RESTARTING and between >= 1:
        between += host.ring
    count = min(_MOST_PACKETS, max(packets, math.ceil(_INTERRUPTS * min(params.rx_frames or math.inf, between))))
    found = _run(_arrival_times(gap_us, least_us, count), params, host)
    added = sorted(found.added)
    if found.interrupts > 1:
        interrupts_per_s = (found.interrupts - 1) * 1e6 / (found.last_us - found.first_us)
        packets_per_interrupt = found.before_last / (found.interrupts - 1)
    else:
        interrupts_per_s = found.interrupts * 1e6 / max(gap_us * count, found.last_us)
        packets_per_interrupt = float(len(added))
    return Prediction(
        interrupts_per_s=interrupts_per_s,
        packets_per_interrupt=packets_per_interrupt,
        added_mean_us=sum(added) / len(added),
        added_p99_us=added[len(added) * 99 // 100],
        added_worst_us=added[-1],
        dropped_share=found.dropped / count,
    )


def _gaps(traffic: QueueTraffic) -> tuple[float, float]:
    """Return the mean and the smallest time in µs between two packets; equal where they fill the link."""
    mean_us = 1e6 / max(traffic.packets_per_s, _LEAST_PER_S)
    if traffic.link_bits_per_s is None:
        return mean_us, 0.0
    least_us = frame_wire_time_us(traffic.frame_bytes, traffic.link_bits_per_s)
    return max(mean_us, least_us), least_us


@lru_cache(maxsize=8)
def _arrival_times(mean_us: float, least_us: float, count: int) -> list[float]:
    """Return random packet arrival times in µs, then _END_US; the part of a gap above the smallest is exponential."""
    over_us = mean_us - least_us
    return [*accumulate(least_us + over_us * each for each in _exponential(count)), _END_US]


@lru_cache(maxsize=16)
def _exponential(count: int) -> list[float]:
    """Return numbers of mean 1: the quantiles of the distribution in pseudo-random order, so that few suffice.

    The order is that of a linear congruential generator's numbers (Knuth's for MMIX).
    """
    order = accumulate(
        range(count), lambda x, _: (x * 6364136223846793005 + 1442695040888963407) % 2**64, initial=_SEED
    )
    spread = [-math.log1p(-(i + 0.5) / count) for i in range(count)]
    scale = count / sum(spread)
    return [each * scale for _, each in sorted(zip(order, spread, strict=False))]


class _Simulated(Struct):
    """added: latency of each delivered packet, in order. before_last: packets delivered before the last interrupt."""

    added: list[float]
    interrupts: int
    first_us: float
    last_us: float
    before_last: int
    dropped: int


def _run(times_us: list[float], params: TimerParams, host: HostCosts) -> _Simulated:
    """Simulate until all packets are delivered; one whose delay never ends has waited until the last arrival."""
    frames = params.rx_frames or 0
    usecs = math.inf if frames > 1 and not params.rx_usecs else params.rx_usecs
    restarts, throttles = params.timer is Timer.RESTARTING, params.timer is Timer.THROTTLE and usecs < math.inf
    ring, entry_us, packet_us = host.ring, host.entry_us, host.packet_us
    full_us = (ring - 0.5) * packet_us
    added: list[float] = []
    waiting: list[float] = []
    due = math.inf
    first_us = last_us = polls_from = polls_until = -math.inf
    interrupts = before_last = dropped = 0
    for now in times_us:
        if due <= now:
            before_last = len(added)
            added += [due - since for since in waiting]
            first_us = due if not interrupts else first_us
            last_us = due
            interrupts += 1
            polls_from = due + entry_us
            polls_until = polls_from + len(waiting) * packet_us
            waiting = []
            due = math.inf
        if now <= polls_until:
            if polls_until - (now if now > polls_from else polls_from) > full_us:
                dropped += 1
            else:
                polls_until += packet_us
                added.append(0.0)
        elif len(waiting) < ring:
            waiting.append(now)
            if len(waiting) == frames:
                due = now
            elif throttles:
                due = max(waiting[0], last_us + usecs)
            elif restarts or len(waiting) == 1:
                due = now + usecs
        elif now < _END_US:
            dropped += 1
    if not interrupts:
        added = [times_us[-2] - since for since in waiting if since < _END_US]
    return _Simulated(added, interrupts, first_us, last_us, before_last, dropped)
