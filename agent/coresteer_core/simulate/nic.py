"""A NIC's receive queue with its interrupt timer, packet by packet: how often it interrupts and how long packets wait.

The model of Park, Woo, Lee and Kim (interrupt coalescing), with the timers that other NICs have beside theirs. Same
arguments, same answer: arrivals that are random come from a seed.
"""

from msgspec import Struct

from coresteer_core.nic import Timer


class Arrivals(Struct, frozen=True):
    """The packets of one queue. link_bits_per_s: no two come closer than a frame takes on the wire; None: no bound."""

    packets_per_s: float
    frame_bytes: float
    link_bits_per_s: int | None


class Wait(Struct, frozen=True):
    """How long the NIC waits before it interrupts. rx_frames: None or 0 where it does not count packets."""

    timer: Timer
    rx_usecs: float
    rx_frames: int | None = None


class Host(Struct, frozen=True):
    """What takes the packets. ring: how many wait in the NIC at most; entry_us: from the interrupt to the first packet;
    packet_us: for each of them. While it polls, the NIC does not interrupt (NAPI)."""

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


def packet_gap_us(frame_bytes: float, link_bits_per_s: int) -> float:
    """How long a frame takes on the wire: 9000 B at 1 Gb/s is 72 µs (PAPERS 4)."""
    return frame_bytes * 8e6 / link_bits_per_s


def predict(arrivals: Arrivals, wait: Wait, host: Host = TYPICAL_HOST, *, packets: int = 2000) -> Predicted:
    """What happens to the first packets of a queue that works like this."""
    raise NotImplementedError
