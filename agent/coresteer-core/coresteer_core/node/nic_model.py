"""A NIC's receive queue with its interrupt timer, packet by packet: how often it interrupts and how long packets wait.

The model of Park, Woo, Lee and Kim (interrupt coalescing), with the timers that other NICs have beside theirs. Same
arguments, same answer: arrivals that are random come from a seed.

What arrives at less than the link's rate comes at random, as from many independent senders; at the link's rate it comes
back to back. A queue that one sender fills in trains has fewer interrupts than this says.
"""

import math
from functools import lru_cache
from itertools import accumulate

from msgspec import Struct

from coresteer_core.node.nic import Timer


class Arrivals(Struct, frozen=True):
    """The packets of one queue. link_bits_per_s: no two come closer than a frame takes on the wire; None: no bound."""

    packets_per_s: float
    frame_bytes: float
    link_bits_per_s: int | None


class Wait(Struct, frozen=True):
    """How long the NIC waits before it interrupts. rx_frames: None or 0 where it does not count packets.

    Whichever comes first. With rx_usecs 0 only the count decides, and without a count nothing waits (kernel:
    include/uapi/linux/ethtool.h).
    """

    timer: Timer
    rx_usecs: float
    rx_frames: int | None = None


class Host(Struct, frozen=True):
    """What takes the packets. ring: how many wait in the NIC at most; entry_us: from the interrupt to the first packet;
    packet_us: for each of them, above 0. While it polls, the NIC does not interrupt (NAPI)."""

    ring: int = 256
    entry_us: float = 5.0
    packet_us: float = 1.0


TYPICAL_HOST = Host()


class Predicted(Struct, frozen=True):
    """Added latency: from a packet's arrival to the interrupt that tells of it, less what it is without waiting."""

    interrupts_per_s: float
    packets_per_interrupt: float
    added_mean_us: float
    added_p99_us: float
    added_worst_us: float
    dropped_share: float


_SEED = 4
_INTERRUPTS = 4
"""So many at least, where a queue waits for more packets than are asked for."""
_MOST_PACKETS = 16_384
_LEAST_PER_S = 1e-3
"""Traffic of less: each packet is alone."""
_END_US = 1e300
"""After everything."""


def packet_gap_us(frame_bytes: float, link_bits_per_s: int) -> float:
    """How long a frame takes on the wire: 9000 B at 1 Gb/s is 72 µs (PAPERS 4)."""
    return frame_bytes * 8e6 / link_bits_per_s


def predict(arrivals: Arrivals, wait: Wait, host: Host = TYPICAL_HOST, *, packets: int = 1000) -> Predicted:
    """What happens to the first packets of a queue that works like this.

    Rates are those from the first interrupt to the last. Where a queue waits for many packets, more than asked for are
    looked at. dropped_share: of those that arrived; a packet is dropped when the ring is full, and then neither
    restarts the timer nor counts. Packets that come while the host polls have no added latency.
    """
    gap_us, least_us = _gaps(arrivals)
    between = wait.rx_usecs / gap_us
    if wait.timer is Timer.RESTARTING and between >= 1:
        between += host.ring
    count = min(_MOST_PACKETS, max(packets, math.ceil(_INTERRUPTS * min(wait.rx_frames or math.inf, between))))
    seen = _run(_arrival_times(gap_us, least_us, count), wait, host)
    added = sorted(seen.added)
    if seen.interrupts > 1:
        interrupts_per_s = (seen.interrupts - 1) * 1e6 / (seen.last_us - seen.first_us)
        packets_per_interrupt = seen.before_last / (seen.interrupts - 1)
    else:
        interrupts_per_s = seen.interrupts * 1e6 / max(gap_us * count, seen.last_us)
        packets_per_interrupt = float(len(added))
    return Predicted(
        interrupts_per_s=interrupts_per_s,
        packets_per_interrupt=packets_per_interrupt,
        added_mean_us=sum(added) / len(added),
        added_p99_us=added[len(added) * 99 // 100],
        added_worst_us=added[-1],
        dropped_share=seen.dropped / count,
    )


def _gaps(arrivals: Arrivals) -> tuple[float, float]:
    """Mean and smallest time between two packets; the same where they fill the link."""
    mean_us = 1e6 / max(arrivals.packets_per_s, _LEAST_PER_S)
    if arrivals.link_bits_per_s is None:
        return mean_us, 0.0
    least_us = packet_gap_us(arrivals.frame_bytes, arrivals.link_bits_per_s)
    return max(mean_us, least_us), least_us


@lru_cache(maxsize=8)
def _arrival_times(mean_us: float, least_us: float, count: int) -> list[float]:
    """When packets come, then _END_US: what is over the smallest gap is exponential."""
    over_us = mean_us - least_us
    return [*accumulate(least_us + over_us * each for each in _exponential(count)), _END_US]


@lru_cache(maxsize=16)
def _exponential(count: int) -> list[float]:
    """Numbers of mean 1: the quantiles of the distribution in an order as if drawn, so that few are as good as many.

    The order is that of a linear congruential generator's numbers (Knuth's for MMIX).
    """
    drawn = accumulate(
        range(count), lambda x, _: (x * 6364136223846793005 + 1442695040888963407) % 2**64, initial=_SEED
    )
    spread = [-math.log1p(-(i + 0.5) / count) for i in range(count)]
    scale = count / sum(spread)
    return [each * scale for _, each in sorted(zip(drawn, spread, strict=False))]


class _Seen(Struct):
    """added: for each packet that was told of, in order. before_last: how many of them before the last interrupt."""

    added: list[float]
    interrupts: int
    first_us: float
    last_us: float
    before_last: int
    dropped: int


def _run(times_us: list[float], wait: Wait, host: Host) -> _Seen:
    """The queue until all that arrived was told of; what waits for ever has waited until the last arrival."""
    frames = wait.rx_frames or 0
    usecs = math.inf if frames > 1 and not wait.rx_usecs else wait.rx_usecs
    restarts, throttles = wait.timer is Timer.RESTARTING, wait.timer is Timer.THROTTLE and usecs < math.inf
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
    return _Seen(added, interrupts, first_us, last_us, before_last, dropped)
