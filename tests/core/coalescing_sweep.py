"""The sweep of Park, Woo, Lee and Kim (PAPERS 4), with what was assumed of their machine.

They state: frames of 9000 B at 1 Gb/s, about 20,000 interrupts/s while nothing is coalesced, about 4,000/s with
rx-usecs 90 and rx-frames 6, coalescing from 54 µs on, full past the gap, throughput that falls past 42 frames.
Back-to-back frames of that size are 13,889 a second, 72 µs apart, so that not all of the 20,000 can be theirs.

Assumed, besides the restarting timer that they describe:

- The receiver's acknowledgements. TCP sends one for every second full segment (RFC 1122, 4.2.3.2), and sending one
  ends in an interrupt of the same vector; those of one poll leave together and end in one. An interrupt that brings n
  packets so causes min(1, n/2) more. Nothing is fitted here: 13,889 × 1.5 = 20,833, and 13,889 / 6 × 2 = 4,630.
- HOST, from the interrupt until the host has taken one frame: 20 µs. It says where coalescing sets in: a frame that
  arrives while the host still polls needs no interrupt, so that 54 + 20 µs are past the gap of 72 and 36 + 20 are not.
  Every time from 18 to below 36 µs gives the same points. How it is divided between interrupt and frame decides over
  CPU time, and whether a seventh frame joins the six of rx-frames (4,630 or 3,968 interrupts/s).
- RING, the buffer: 42 frames, 378 kB. With rx-frames 42 the count is full and the host takes the first frame before
  the next one comes. With more the buffer is full before the count is, and what arrives until rx-usecs has passed is
  lost. Were the authors' steps of 6 frames, 42 to 47 would give the same points.

Not fitted, and not in the model: their CPU share of 11 %, as neither the host's cores nor its cost of copying are told
(CPU time in arbitrary units is printed for its direction only); what TCP makes of losses (the model says which share of
the packets is lost, not how throughput falls further); acknowledgements that share a poll with packets that wait.
"""

from collections.abc import Callable

from msgspec import Struct

from coresteer_core.node.nic import Timer, product_bound_us
from coresteer_core.node.nic_model import HostCosts, Prediction, QueueTraffic, TimerParams, frame_wire_time_us, predict

FRAME_BYTES, LINK_BITS_PER_S = 9000, 10**9
GAP_US = frame_wire_time_us(FRAME_BYTES, LINK_BITS_PER_S)
RING = 42
HOST = HostCosts(ring=RING, entry_us=14.0, packet_us=6.0)
TOLERANCE = 0.2
"""Of a figure that they give as “about”."""
_SAME, _LESS = 0.01, 0.05


class Figures(Struct, frozen=True):
    """What the model says of one setting. cpu_share: of one CPU, in its own units."""

    interrupts_per_s: float
    received_per_s: float
    cpu_share: float


def sweep(rx_usecs: float, rx_frames: int, host: HostCosts = HOST) -> Figures:
    """The authors' traffic with these values; interrupts of packets and of acknowledgements."""
    found = model(rx_usecs, rx_frames, host)
    interrupts_per_s = found.interrupts_per_s * (1 + min(1.0, found.packets_per_interrupt / 2))
    received_per_s = 1e6 / GAP_US * (1 - found.dropped_share)
    cpu_us = interrupts_per_s * host.entry_us + received_per_s * host.packet_us
    return Figures(interrupts_per_s, received_per_s, cpu_us * 1e-6)


def model(rx_usecs: float, rx_frames: int, host: HostCosts = HOST) -> Prediction:
    """What predict says of their queue."""
    arrivals = QueueTraffic(1e6 / GAP_US, FRAME_BYTES, LINK_BITS_PER_S)
    return predict(arrivals, TimerParams(Timer.RESTARTING, rx_usecs, rx_frames), host)


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
    Point("rx-usecs 18, rx-frames 6: interrupts", "~20,000", _rate(18, 6), _about(20_000)),
    Point("rx-usecs 18, rx-frames 12: nothing changes", "~20,000", _rate(18, 12), _same_as(18, 6)),
    Point("rx-usecs 18, rx-frames 18: nothing changes", "~20,000", _rate(18, 18), _same_as(18, 6)),
    Point("rx-usecs 18, rx-frames 42: nothing changes", "~20,000", _rate(18, 42), _same_as(18, 6)),
    Point("rx-usecs 36, rx-frames 6: not yet", "~20,000", _rate(36, 6), _same_as(18, 6)),
    Point("rx-usecs 54, rx-frames 6: coalescing sets in", "less", _rate(54, 6), _less_than(36, 6)),
    Point("rx-usecs 72, rx-frames 6: no more than at 54", "less", _rate(72, 6), _less_than(36, 6)),
    Point("rx-usecs 90, rx-frames 6: full past the gap", "~4,000", _rate(90, 6), _about(4_000)),
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
        "CPU for receiving at 90 and 42, of that at 18 and 6 (not fitted)",
        "under 50",
        lambda: 100 * sweep(90, 42).cpu_share / sweep(18, 6).cpu_share,
        lambda ours: ours < 50,
        "%",
    ),
]
"""Everything that PAPERS 4 states of the sweep."""
