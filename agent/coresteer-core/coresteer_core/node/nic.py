"""Knowledge of NICs: how their interrupt timer counts, and how their driver responded to writes.

Nothing is assumed about a driver that can be learned by reading it or from the result of a write.
"""

import math
from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, TypeAlias

from msgspec import Meta, Struct

from coresteer_core.bounds import Count, Name, Quantity, UnixMs

MAX_DRIVERS = 16
"""Maximum number of drivers of which an agent stores responses."""
MAX_RESPONSES = 64
"""Maximum number of stored responses of one driver."""
MAX_NETDEVS = 16
"""Maximum number of netdevs of which an agent stores measured points."""
MAX_POINTS = 32
"""Maximum number of stored points of one netdev."""
MAX_MESSAGE = 500
"""Maximum length of a stored error message of a driver, in characters."""
RETRY_AFTER_S = 24 * 3600
"""Seconds until a rejected value is tried again: another driver version or other parameters may accept it."""


class Timer(StrEnum):
    """Kind of a NIC's interrupt timer: the event from which it counts rx-usecs.

    restarting: from the last packet (the model of Park, Woo, Lee and Kim, and a completion queue in CQE mode).
    absolute: from the first waiting packet. throttle: from the last interrupt, so that a packet after a pause does not
    wait at all.
    """

    RESTARTING = "restarting"
    ABSOLUTE = "absolute"
    THROTTLE = "throttle"


class Verdict(StrEnum):
    """How a driver treated a value that was written: accepted, refused, rounded, ignored or without effect.

    accepted: it reads back as requested. refused: the kernel or the driver returned an error. rounded: it reads back as
    a value other than before and other than requested. ignored: the write succeeded and the value reads back as before.
    no_effect: it reads back as requested, but the measured interrupts contradict it.
    """

    ACCEPTED = "accepted"
    REFUSED = "refused"
    ROUNDED = "rounded"
    IGNORED = "ignored"
    NO_EFFECT = "no_effect"


class DriverResponse(Struct, frozen=True):
    """How a driver responded when one value was written. name: last part of the key, ``coalesce/rx-usecs``.

    read_back: None where it was refused. message: the kernel's error, or the figures of the verdict no_effect.
    unsupported: every value is refused, not only this one (EOPNOTSUPP).
    """

    name: Name
    requested: Name
    verdict: Verdict
    read_back: Name | None
    message: Annotated[str, Meta(max_length=MAX_MESSAGE)]
    time_ms: UnixMs
    unsupported: bool = False


class DriverRecord(Struct, frozen=True):
    """A driver's latest response to each parameter value that was written, under one kernel version."""

    driver: Name
    kernel: Name
    responses: Annotated[list[DriverResponse], Meta(max_length=MAX_RESPONSES)] = []


_U32: TypeAlias = Annotated[int, Meta(ge=0, lt=2**32)]


class CoalescingPoint(Struct, frozen=True):
    """Measured traffic and interrupts of a netdev at one combination of coalescing values, over intervals with traffic.

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


class NicKnowledge(Struct, frozen=True):
    """Measurements and responses of a node's NICs and drivers, as its agent learned them; stored across restarts."""

    drivers: Annotated[list[DriverRecord], Meta(max_length=MAX_DRIVERS)] = []
    points: Annotated[list[CoalescingPoint], Meta(max_length=MAX_NETDEVS * MAX_POINTS)] = []

    def responses(self, driver: str | None, name: str) -> list[DriverResponse]:
        """Return a driver's recorded responses to writes of one parameter, ``coalesce/rx-usecs``."""
        return [t for record in self.drivers if record.driver == driver for t in record.responses if t.name == name]


_ADAPTIVE_VALUES = {
    "e1000": frozenset({1, 3, 4}),
    "e1000e": frozenset({1, 3, 4}),
    "igb": frozenset({1, 3}),
    "igc": frozenset({1, 3}),
    "ixgbe": frozenset({1}),
    "ixgbevf": frozenset({1}),
}


def selects_adaptive_mode(driver: str | None, rx_usecs: int) -> bool:
    """Return whether a value of rx-usecs is not a time but makes the driver adapt its timer to the load.

    Source: drivers/net/ethernet/intel in the kernel, set_coalesce of each driver.
    """
    return rx_usecs in _ADAPTIVE_VALUES.get(driver or "", frozenset())


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
"""Drivers whose rx-usecs counts from the last interrupt, with the reason from the driver's source or manual."""

_CQE_MODES = {
    "mlx5_core": (Timer.RESTARTING, "completion", Timer.THROTTLE, "interrupt"),
    "bnxt_en": (Timer.RESTARTING, "completion", Timer.ABSOLUTE, "first completion that waits"),
    "hns3": (Timer.ABSOLUTE, "first new completion", Timer.THROTTLE, "interrupt"),
}
"""By driver: timer and the event it counts from with cqe-mode-rx on, then with it off."""


def interrupt_timer(driver: str | None, params: Mapping[str, str]) -> tuple[Timer | None, str]:
    """Return the kind of interrupt timer of a NIC (None where unknown), and a sentence that says why.

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
        f"The event from which {driver or 'this driver'} counts rx-usecs is unknown; the longest wait of all timers is "
        "assumed."
    )


def max_added_wait_us(timer: Timer | None, rx_usecs: float, rx_frames: int | None) -> float:
    """Return the longest time in µs that a packet waits for its interrupt. timer None: the maximum of all timers.

    A restarting timer may be restarted by every packet except the one that reaches rx_frames. Infinite where nothing
    bounds the wait: a restarting timer without rx_frames (0 or None), or rx_usecs 0 with rx_frames above 1, where only
    the count decides (kernel: include/uapi/linux/ethtool.h).
    """
    if rx_frames == 1:
        return 0.0
    if not rx_usecs:
        return math.inf if rx_frames else 0.0
    if timer in (Timer.ABSOLUTE, Timer.THROTTLE):
        return rx_usecs
    return rx_usecs * (rx_frames - 1) if rx_frames else math.inf


def product_bound_us(rx_usecs: float, rx_frames: int | None) -> float | None:
    """Return rx-usecs × rx-frames in µs, the latency bound of Park, Woo, Lee and Kim; None without rx_frames."""
    return rx_usecs * rx_frames if rx_frames else None


def max_wait_us(timer: Timer | None, rx_usecs: float, rx_frames: int | None) -> float:
    """Return the longest time in µs that a packet waits; rx-usecs × rx-frames for a timer that restarts."""
    bound_us = max_added_wait_us(timer, rx_usecs, rx_frames)
    restarts = timer in (None, Timer.RESTARTING) and rx_frames != 1
    return max(bound_us, product_bound_us(rx_usecs, rx_frames) or 0.0) if restarts else bound_us
