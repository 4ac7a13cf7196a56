"""The sweep of Park, Woo, Lee and Kim by the model of the NIC's timer, with what was assumed of their machine. Pure.

Back-to-back frames of 9000 B at 1 Gbit/s are 13,889 a second, 72 µs apart, so that not all of the interrupts that they
count while nothing is coalesced can be of frames. Assumed, besides the restarting timer that they describe:

- The receiver's acknowledgements. TCP sends one for every second full segment (RFC 1122, 4.2.3.2), and sending one
  ends in an interrupt of the same vector; those of one poll leave together and end in one. An interrupt that brings n
  packets so causes min(1, n/2) more. Nothing is fitted here: 13,889 × 1.5 = 20,833, and 13,889 / 6 × 2 = 4,630.

Chosen so that the paper's curve results:

- HOST, from the interrupt until the host has taken one frame: 20 µs. It says where coalescing sets in: a frame that
  arrives while the host still polls needs no interrupt, so that 54 + 20 µs are past the gap of 72 and 36 + 20 are not.
  Every time from 18 to below 36 µs gives the same points. How it is divided between interrupt and frame decides
  whether a seventh frame joins the six of rx-frames (4,630 or 3,968 interrupts/s; both are about 4,000).
- RING, the buffer: 42 frames, 378 kB. With rx-frames 42 the count is full and the host takes the first frame before
  the next one comes. With more the buffer is full before the count is, and what arrives until rx-usecs has passed is
  lost. Were the authors' steps of 6 frames, 42 to 47 would give the same points.

Not chosen to fit, so that it is no confirmation of the paper: CPU time. The paper states 11 % before and less than half
of that at 90 µs and 42 frames, but neither the number of cores of which that is a share nor the costs of an interrupt
and of copying a frame. The model's CPU time is in units of its own. With the 20 µs divided into 14 for the interrupt
and 6 for the frame, it falls to 24.6 % of the time before; that figure is a ratio and is not to be compared with the
11 %. Any other division is as good: with 20 µs for the interrupt alone it falls to 1 %, and from about 12 µs for a
frame on it is no longer less than half (11 µs: 46 %, 12 µs: 51 %). So only the direction is a result.

Not in the model: what TCP makes of losses (the model says which share of the packets is lost, not how throughput falls
further); acknowledgements that share a poll with packets that wait.
"""

import re

from msgspec import Struct

from coresteer.papers import Figure
from coresteer.papers.verdicts import Estimate, Measured
from coresteer_core.node.nic import Timer, product_bound_us
from coresteer_core.node.nic_model import HostCosts, Prediction, QueueTraffic, TimerParams, frame_wire_time_us, predict

FRAME_BYTES, LINK_BITS_PER_S = 9000, 10**9
GAP_US = frame_wire_time_us(FRAME_BYTES, LINK_BITS_PER_S)
RING = 42
HOST = HostCosts(ring=RING, entry_us=14.0, packet_us=6.0)
_FRAMES_OF_USECS = 6
"""Of the sweep over rx-usecs."""
_MORE_FRAMES = (12, 18, 24, 30, 36, 42, 48)
_NOTE = (
    f"predict() with assumptions: host {HOST.entry_us:.0f} µs to enter, {HOST.packet_us:.0f} µs a frame, buffer of "
    f"{RING} frames, an acknowledgement for every second frame."
)
_CPU_NOTE = (
    "How the host's time is divided between interrupt and frame is arbitrary, so that only the direction is a result; "
    "the ratio of CPU times is not to be compared with the paper's 11 %."
)
CHOSEN = (
    f"{HOST.entry_us + HOST.packet_us:.0f} µs from the interrupt until one frame is taken: where coalescing sets in "
    "(18 to 36 µs give the same points)",
    f"a buffer of {RING} frames: where throughput begins to fall",
)
"""Parameters that were chosen so that the paper's curve results."""
NOT_CHOSEN = (
    "interrupts/s while nothing is coalesced, and with 6 frames: from the link's rate, the frame's size and an "
    "acknowledgement for every second frame",
    f"CPU time: {HOST.entry_us:.0f} µs for the interrupt and {HOST.packet_us:.0f} µs for a frame are an arbitrary "
    "division. The paper's 11 % is a share of an unstated number of cores, the model's is in units of its own: only "
    "the ratio of two settings has a meaning, and of that only the direction, as its size follows the division",
)
"""What was not chosen to fit: results of the model, and figures without a claim."""


class ModelFigures(Struct, frozen=True):
    """What the model says of one setting. cpu_share: of one CPU, in its own units."""

    interrupts_per_s: float
    received_per_s: float
    cpu_share: float


def sweep(rx_usecs: float, rx_frames: int, host: HostCosts = HOST) -> ModelFigures:
    """Return interrupts of packets and of acknowledgements, and packets received, of the authors' traffic."""
    found = model(rx_usecs, rx_frames, host)
    interrupts_per_s = found.interrupts_per_s * (1 + min(1.0, found.packets_per_interrupt / 2))
    received_per_s = 1e6 / GAP_US * (1 - found.dropped_share)
    cpu_us = interrupts_per_s * host.entry_us + received_per_s * host.packet_us
    return ModelFigures(interrupts_per_s, received_per_s, cpu_us * 1e-6)


def model(rx_usecs: float, rx_frames: int, host: HostCosts = HOST) -> Prediction:
    """Return what predict() says of the authors' queue."""
    arrivals = QueueTraffic(1e6 / GAP_US, FRAME_BYTES, LINK_BITS_PER_S)
    return predict(arrivals, TimerParams(Timer.RESTARTING, rx_usecs, rx_frames), host)


def measure(figure: Figure) -> Measured:
    """Return the model's figure for a published one of interrupt coalescing."""
    if figure.metric == "added_worst_us":
        usecs, frames = _settings(figure.role)[0]
        worst, bound = model(usecs, frames).added_worst_us, product_bound_us(usecs, frames)
        note = f"{_NOTE} The authors' product is {bound:,.0f} µs."
        return Measured(source="NIC model", simulated=True, value=_exact(worst), note=note)
    values = [_amount(figure.metric, *each) for each in _settings(figure.role)]
    value = values[0] if len(values) == 1 and figure.metric != "cpu_busy_percent" else None  # in units of its own
    change = None
    if figure.against:
        base = _amount(figure.metric, *_settings(figure.against)[0])
        change = max((each / base - 1 for each in values), key=abs)
    return Measured(
        source="NIC model",
        simulated=True,
        value=None if value is None else _exact(value),
        change=None if change is None else _exact(change),
        size_assumed=figure.metric == "cpu_busy_percent",
        note=f"{_NOTE} {_CPU_NOTE}" if figure.metric == "cpu_busy_percent" else _NOTE,
    )


def _settings(role: str) -> list[tuple[int, int]]:
    """Return the values of rx-usecs and rx-frames of a role: `usecs/90, frames/6`; `frames/*` has several."""
    found = re.fullmatch(r"usecs/(\d+)(?:, frames/(\d+|\*))?", role)
    if found is None:
        raise ValueError(f"“{role}” is not a role of the coalescing sweep.")
    frames = found[2] or str(_FRAMES_OF_USECS)
    return [(int(found[1]), count) for count in (_MORE_FRAMES if frames == "*" else (int(frames),))]


def _amount(metric: str, rx_usecs: int, rx_frames: int) -> float:
    found = sweep(rx_usecs, rx_frames)
    return {
        "interrupts_per_s": found.interrupts_per_s,
        "throughput_bit_per_s": found.received_per_s * FRAME_BYTES * 8,
        "cpu_busy_percent": 100 * found.cpu_share,
    }[metric]


def _exact(value: float) -> Estimate:
    return Estimate(value, value, value)
