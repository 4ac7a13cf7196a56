"""What is known of a NIC beyond its values: how its interrupt timer counts, and what its driver made of what was asked.

Nothing of a driver is assumed that can be learned by reading it or by what a write returned.
"""

import math
from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, TypeAlias

from msgspec import Meta, Struct

from coresteer_core.bounds import Count, Name, Quantity, UnixMs

MAX_DRIVERS = 16
"""Drivers of which an agent keeps a record."""
MAX_TRIED = 64
"""Values that are kept of one driver."""
MAX_NETDEVS = 16
"""Netdevs of which an agent keeps points."""
MAX_POINTS = 32
"""Points that are kept of one netdev."""
MAX_WORDS = 500
"""Characters of what a driver said."""
ASKED_AGAIN_S = 24 * 3600
"""A driver that did not take a value may take it later: when it is another version, or when other values stand."""


class Timer(StrEnum):
    """From when a NIC counts rx-usecs.

    restarting: from the last packet (shared paper 4's model, and a completion queue in CQE mode); absolute: from the
    first packet that waits; throttle: from the last interrupt, so that a packet after a pause does not wait at all.
    """

    RESTARTING = "restarting"
    ABSOLUTE = "absolute"
    THROTTLE = "throttle"


class Verdict(StrEnum):
    """What became of a value that was asked of a driver.

    taken: it read back as asked. refused: the kernel or the driver said no. rounded: it read back as another value
    than before and than asked. ignored: the write was acknowledged and the value read back as before. no_effect: it
    read back as asked, but the interrupts that were measured do not agree with it.
    """

    TAKEN = "taken"
    REFUSED = "refused"
    ROUNDED = "rounded"
    IGNORED = "ignored"
    NO_EFFECT = "no_effect"


class Tried(Struct, frozen=True):
    """A value that a driver was asked for. name: the end of the setting's key, ``coalesce/rx-usecs``.

    stood: as it read back; None where it was refused. words: the kernel's own, or the figures of a verdict no_effect.
    unsupported: the refusal was of any value, not of this one (EOPNOTSUPP).
    """

    name: Name
    asked: Name
    verdict: Verdict
    stood: Name | None
    words: Annotated[str, Meta(max_length=MAX_WORDS)]
    time_ms: UnixMs
    unsupported: bool = False


class DriverRecord(Struct, frozen=True):
    """What a driver of one kernel made of what it was asked: the last time for each name and value."""

    driver: Name
    kernel: Name
    tried: Annotated[list[Tried], Meta(max_length=MAX_TRIED)] = []


_U32: TypeAlias = Annotated[int, Meta(ge=0, lt=2**32)]


class Point(Struct, frozen=True):
    """What a netdev did while its coalescing stood at these values, added up over the intervals in which it worked.

    rx_usecs, rx_frames: None where the driver has none. adaptive: adaptive-rx was on. interrupts: of its receiving
    queues. rtt_us_s: TCP round-trip time p50 in µs times the seconds for which it is known; rtt_s: those seconds.
    """

    netdev: Name
    rx_usecs: _U32 | None
    rx_frames: _U32 | None
    adaptive: bool
    seconds: Annotated[float, Meta(ge=1e-3, lt=2**53)]
    rx_packets: Count
    rx_bytes: Count
    interrupts: Count
    dropped: Count
    rtt_us_s: Quantity = 0.0
    rtt_s: Quantity = 0.0
    last_ms: UnixMs = 0


class Learned(Struct, frozen=True):
    """All that an agent has learned of its node's NICs; bounded, kept over restarts."""

    drivers: Annotated[list[DriverRecord], Meta(max_length=MAX_DRIVERS)] = []
    points: Annotated[list[Point], Meta(max_length=MAX_NETDEVS * MAX_POINTS)] = []

    def tried(self, driver: str | None, name: str) -> list[Tried]:
        """What became of values of one name that the driver was asked for."""
        return [t for record in self.drivers if record.driver == driver for t in record.tried if t.name == name]


_OWN_PACE = {
    "e1000": frozenset({1, 3, 4}),
    "e1000e": frozenset({1, 3, 4}),
    "igb": frozenset({1, 3}),
    "igc": frozenset({1, 3}),
    "ixgbe": frozenset({1}),
    "ixgbevf": frozenset({1}),
}


def sets_own_pace(driver: str | None, rx_usecs: int) -> bool:
    """Whether a value of rx-usecs is no time, but tells a driver to change its timer by itself as the load goes.

    Kernel: drivers/net/ethernet/intel, each driver's set_coalesce.
    """
    return rx_usecs in _OWN_PACE.get(driver or "", frozenset())


_THROTTLES = {
    "igb": "igb writes rx-usecs into EITR, the least time between two interrupts of a vector",
    "igbvf": "igbvf writes rx-usecs into EITR, the least time between two interrupts of a vector",
    "igc": "igc writes rx-usecs into EITR, the least time between two interrupts of a vector",
    "e1000": "e1000 writes rx-usecs into ITR, the least time between two interrupts",
    "e1000e": "e1000e writes rx-usecs into ITR, the least time between two interrupts",
    "ixgbe": "ixgbe writes rx-usecs into EITR, the least time between two interrupts of a vector",
    "ixgbevf": "ixgbevf writes rx-usecs into VTEITR, the least time between two interrupts of a vector",
    "i40e": "i40e writes rx-usecs into PFINT_ITRN, the least time between two interrupts of a vector",
    "iavf": "iavf writes rx-usecs into VFINT_ITRN1, the least time between two interrupts of a vector",
    "ice": "ice writes rx-usecs into GLINT_ITR, the least time between two interrupts of a vector",
    "ena": "ena gives rx-usecs as the delay with which an interrupt is unmasked again after it was served",
    "tg3": "tg3 writes rx-usecs into the receive coalescing ticks, which count from the last status block update",
}
"""Why rx-usecs of these counts from the last interrupt: by their sources, of tg3 by Broadcom's programmer's guide."""

_CQE_MODES = {
    "mlx5_core": (Timer.RESTARTING, "completion", Timer.THROTTLE, "interrupt"),
    "bnxt_en": (Timer.RESTARTING, "completion", Timer.ABSOLUTE, "first completion that waits"),
    "hns3": (Timer.ABSOLUTE, "first new completion", Timer.THROTTLE, "interrupt"),
}
"""From when these drivers count with cqe-mode-rx on, and off."""


def timer_of(driver: str | None, params: Mapping[str, str]) -> tuple[Timer | None, str]:
    """How a netdev counts rx-usecs and the sentence why; None where nobody knows.

    params: of the netdev or of the queue. Sources: the drivers in the kernel's drivers/net, the virtio specification
    (notifications coalescing).
    """
    if driver in _THROTTLES:
        return Timer.THROTTLE, f"{_THROTTLES[driver]}."
    if driver == "virtio_net":
        return Timer.ABSOLUTE, "A virtio device counts rx-usecs from the first packet that waits (its specification)."
    cqe = params.get("coalesce/cqe-mode-rx")
    if driver in _CQE_MODES and cqe is not None:
        on, from_on, off, from_off = _CQE_MODES[driver]
        timer, since = (on, from_on) if cqe == "on" else (off, from_off)
        return timer, f"With cqe-mode-rx {cqe}, {driver} counts rx-usecs from the {since}."
    if cqe == "on":
        return Timer.RESTARTING, "With cqe-mode-rx on, rx-usecs counts from the last packet's completion."
    return None, (
        f"It is not known from when {driver or 'this driver'} counts rx-usecs; the longest wait of all timers is taken."
    )


def added_bound_us(timer: Timer | None, rx_usecs: float, rx_frames: int | None) -> float:
    """How long a packet waits for its interrupt at most, in µs; None as a timer: the most of all.

    A timer that restarts may be put off by every packet but the one that makes rx_frames full. Infinite where nothing
    ends it: such a timer without rx_frames (0 or None), or rx_usecs 0 with rx_frames above 1, where only the count
    decides (kernel: include/uapi/linux/ethtool.h).
    """
    if rx_frames == 1:
        return 0.0
    if not rx_usecs:
        return math.inf if rx_frames else 0.0
    if timer in (Timer.ABSOLUTE, Timer.THROTTLE):
        return rx_usecs
    return rx_usecs * (rx_frames - 1) if rx_frames else math.inf


def product_bound_us(rx_usecs: float, rx_frames: int | None) -> float | None:
    """The authors' bound, rx-usecs × rx-frames (PAPERS 4: 90 µs × 42 is 3.8 ms); None without rx_frames."""
    return rx_usecs * rx_frames if rx_frames else None
