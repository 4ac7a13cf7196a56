"""Check whether measured interrupts agree with the coalescing values that are set.

A write is verified when it is read back, and effective only when the measured interrupt rate agrees with it.
"""

from itertools import chain

from msgspec import Struct

from coresteer_core.node.inventory import Inventory, Netdev
from coresteer_core.node.nic import Timer, Verdict, interrupt_timer, selects_adaptive_mode
from coresteer_core.node.rates import NetdevCounts, Rates, unpack_column
from coresteer_core.node.receive import int_param
from coresteer_core.settings import Setting

MIN_PACKETS_PER_S = 1000.0
"""Minimum packet rate for a check; below it even one interrupt per packet proves nothing."""
_TOLERANCE = 2.2
"""Tolerance: a NIC rounds to its own steps, and also interrupts for sent packets and the link. The e1000e of QEMU
reaches 1.94 times the rate that its timer allows, although it follows the timer."""
_VISIBLE_GROWTH = 4.0
"""Factor of predicted growth of the interrupt rate from which a shorter delay must be visible."""
_GROWN = 1.25
_OWN = ("coalesce/rx-usecs", "coalesce/rx-frames", "coalesce/adaptive-rx")


class CoalescingState(Struct, frozen=True):
    """Coalescing parameters of a netdev. values: by name, those that decide when it interrupts for received packets.

    adaptive_mode: rx_usecs is not a time, see selects_adaptive_mode. queues: number of receive queues. shared: their
    interrupts also serve transmit queues.
    """

    driver: str | None
    values: dict[str, str]
    rx_usecs: int | None
    rx_frames: int | None
    adaptive: bool
    tx_usecs: int | None
    tx_frames: int | None
    adaptive_tx: bool
    timer: Timer | None
    adaptive_mode: bool
    queues: int
    shared: bool


def coalescing_state(netdev: Netdev) -> CoalescingState | None:
    """Return a netdev's coalescing parameters; None where it has none or they alone do not decide on interrupts.

    Others decide where a queue has values of its own, or the kernel defers interrupts (gro_flush_timeout).
    """
    params = netdev.params
    values = {name: params[name] for name in _OWN if name in params}
    receiving = [queue for queue in netdev.queues if queue.name.startswith("rx-")]
    if not values or not receiving:
        return None
    for holder in (params, *(queue.params for queue in receiving)):
        if any(holder.get(name, value) != value for name, value in values.items()):
            return None
        if int_param(holder, "gro_flush_timeout") and int_param(holder, "napi_defer_hard_irqs"):
            return None
    rx_usecs = int_param(params, "coalesce/rx-usecs")
    interrupts = {queue.irq for queue in receiving}
    return CoalescingState(
        driver=netdev.driver,
        values=values,
        rx_usecs=rx_usecs,
        rx_frames=int_param(params, "coalesce/rx-frames"),
        adaptive=params.get("coalesce/adaptive-rx") == "on",
        tx_usecs=int_param(params, "coalesce/tx-usecs"),
        tx_frames=int_param(params, "coalesce/tx-frames"),
        adaptive_tx=params.get("coalesce/adaptive-tx") == "on",
        timer=interrupt_timer(netdev.driver, params)[0],
        adaptive_mode=rx_usecs is not None and selects_adaptive_mode(netdev.driver, rx_usecs),
        queues=len(receiving),
        shared=any(queue.irq in interrupts for queue in netdev.queues if queue.name.startswith("tx-")),
    )


class CoalescingCounts(Struct, frozen=True):
    """Packets and interrupts of a netdev over some seconds. interrupts: of all receive queues; busiest: of the busiest.

    rtt_us_s: TCP round-trip time p50 in µs times the seconds for which it is known, which are rtt_s.
    """

    seconds: float
    rx_packets: int
    rx_bytes: int
    tx_packets: int
    dropped: int
    interrupts: int
    busiest: int
    rtt_us_s: float = 0.0
    rtt_s: float = 0.0

    def __add__(self, other: "CoalescingCounts") -> "CoalescingCounts":
        return CoalescingCounts(*(getattr(self, name) + getattr(other, name) for name in self.__struct_fields__))

    @property
    def packets_per_s(self) -> float:
        """Return the received packets per second of the network device."""
        return self.rx_packets / self.seconds if self.seconds > 0 else 0.0

    @property
    def busiest_per_s(self) -> float:
        """Return the interrupts per second of the receive queue with the most."""
        return self.busiest / self.seconds if self.seconds > 0 else 0.0


ReceiveInterrupts = dict[str, tuple[int, int]]
"""By netdev: interrupts of all its receive queues, and of the one with the most."""


def receive_interrupts(rates: Rates, inventory: Inventory) -> ReceiveInterrupts:
    """Return by netdev the interrupts of its receive queues in an interval; netdevs without known IRQs are left out."""
    if rates.irq_ids is None or rates.irq_counts is None:
        return {}
    irqs = {netdev.name: _receiving(netdev) for netdev in inventory.netdevs}
    counts = dict.fromkeys(chain.from_iterable(irqs.values()), 0)
    for irq, count in zip(unpack_column(rates.irq_ids, "I"), unpack_column(rates.irq_counts, "I"), strict=False):
        if irq in counts:
            counts[irq] += count
    found: ReceiveInterrupts = {}
    for name, mine in irqs.items():
        if mine:
            each = [counts[irq] for irq in mine]
            found[name] = sum(each), max(each)
    return found


def _receiving(netdev: Netdev) -> set[int]:
    """Return the IRQs of a netdev's receive queues; none where one is unknown."""
    irqs = {queue.irq for queue in netdev.queues if queue.name.startswith("rx-")} if netdev.params else set()
    return {irq for irq in irqs if irq is not None} if None not in irqs else set()


def coalescing_counts(rates: Rates, counts: NetdevCounts, interrupts: tuple[int, int]) -> CoalescingCounts:
    """Return the packets and interrupts of a netdev in one interval."""
    rtt_s = rates.duration_s if rates.tcp is not None and rates.tcp.sockets else 0.0
    return CoalescingCounts(
        seconds=rates.duration_s,
        rx_packets=counts.rx_packets,
        rx_bytes=counts.rx_bytes,
        tx_packets=counts.tx_packets,
        dropped=counts.rx_dropped,
        interrupts=interrupts[0],
        busiest=interrupts[1],
        rtt_us_s=rates.tcp.rtt_p50_us * rtt_s if rates.tcp is not None else 0.0,
        rtt_s=rtt_s,
    )


def max_interrupts_per_s(standing: CoalescingState, packets_per_s: float, sent_per_s: float) -> float | None:
    """Return the highest interrupt rate that coalescing allows a queue that receives all packets; None: no bound.

    With every timer two interrupts are at least rx-usecs apart unless rx-frames have arrived.
    """
    if standing.adaptive or standing.adaptive_mode or not standing.rx_usecs:
        return None
    most = 1e6 / standing.rx_usecs + (packets_per_s / standing.rx_frames if standing.rx_frames else 0.0)
    if standing.shared and standing.timer is not Timer.THROTTLE:
        if standing.adaptive_tx or not standing.tx_usecs:
            return None  # the rate of transmit interrupts is unknown
        most += 1e6 / standing.tx_usecs + (sent_per_s / standing.tx_frames if standing.tx_frames else 0.0)
    return most


class Agreement(Struct, frozen=True):
    """Whether measured interrupts agree with the coalescing values that are set. holds: None if undecidable."""

    holds: bool | None
    explanation: str = ""


def check_agreement(
    now: CoalescingState,
    since: CoalescingCounts,
    before: CoalescingState | None = None,
    until: CoalescingCounts | None = None,
) -> Agreement:
    """Return whether the interrupts measured since coalescing values were set agree with those values.

    before, until: the earlier values, and what was measured just before the change, where known. A timer bounds the
    interrupts of each queue, and a wait that became several times shorter must be visible.
    """
    if since.packets_per_s < MIN_PACKETS_PER_S:
        return Agreement(None)
    values = ", ".join(f"{name.removeprefix('coalesce/')} {value}" for name, value in now.values.items())
    most = max_interrupts_per_s(now, since.packets_per_s, since.tx_packets / since.seconds)
    if most is not None and since.busiest_per_s > _TOLERANCE * most:
        return Agreement(
            False,
            f"With {values} a queue can interrupt at most {most:,.0f} times/s; the busiest interrupted "
            f"{since.busiest_per_s:,.0f} times/s at {since.packets_per_s:,.0f} packets/s.",
        )
    if before is not None and until is not None and _stayed(now, most, since, before, until):
        return Agreement(
            False,
            f"With {values} the busiest queue interrupted {since.busiest_per_s:,.0f} times/s, as often as before "
            f"({until.busiest_per_s:,.0f} times/s), although the shorter wait allows several times more.",
        )
    return Agreement(True if most is not None else None)


def _stayed(
    now: CoalescingState, most: float | None, since: CoalescingCounts, before: CoalescingState, until: CoalescingCounts
) -> bool:
    """Return whether the interrupt rate stayed as it was although the delay became several times shorter."""
    if now.adaptive or now.adaptive_mode or until.packets_per_s < MIN_PACKETS_PER_S:
        return False
    held = max_interrupts_per_s(before, until.packets_per_s, until.tx_packets / until.seconds)
    if held is None or not held / _TOLERANCE <= until.busiest_per_s <= held * _TOLERANCE:
        return False
    if not 0.5 <= since.packets_per_s / until.packets_per_s <= 2.0:
        return False
    allowed = since.packets_per_s / now.queues
    expected = allowed if most is None else min(allowed, most)
    grew = since.busiest_per_s / until.busiest_per_s
    # a lower rate proves nothing: a busier CPU polls longer
    return expected >= _VISIBLE_GROWTH * until.busiest_per_s and 0.5 <= grew < _GROWN


class WriteAttempt(Struct, frozen=True):
    """Result of writing a setting. found: the value before; read_back: after it, None if refused (see message).

    unsupported: as in DriverResponse.
    """

    setting: Setting
    requested: str
    found: str | None
    read_back: str | None
    message: str = ""
    unsupported: bool = False

    @property
    def verdict(self) -> Verdict:
        """Return how the driver treated the value: accepted, refused, rounded or ignored."""
        if self.read_back is None:
            return Verdict.REFUSED
        if self.read_back == self.requested:
            return Verdict.ACCEPTED
        return Verdict.IGNORED if self.read_back == self.found else Verdict.ROUNDED
