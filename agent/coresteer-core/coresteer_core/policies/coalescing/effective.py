"""What coalescing does, from what is measured: which values stand, what was counted meanwhile, and whether that agrees.

A write is believed when it is read back, and effective only when the measured interrupt rate agrees with it.
"""

from itertools import chain

from msgspec import Struct

from coresteer_core.node.inventory import Inventory, Netdev
from coresteer_core.node.nic import Timer, Verdict, sets_own_pace, timer_of
from coresteer_core.node.rates import NetdevCounts, Rates, unpack
from coresteer_core.node.receive import number
from coresteer_core.settings import Setting

ENOUGH_PER_S = 1000.0
"""Packets: with fewer, an interrupt for each is no contradiction to anything."""
_SLACK = 2.2
"""A NIC counts in steps of its own, and its interrupts also tell of sent packets and of the link. The e1000e of QEMU
reaches 1.94 times what its timer allows, and follows it all the same."""
_SEVERAL = 4.0
"""How many times more interrupts a shorter wait must promise before it is expected to show."""
_SHOWS = 1.25
_OWN = ("coalesce/rx-usecs", "coalesce/rx-frames", "coalesce/adaptive-rx")


class Standing(Struct, frozen=True):
    """What a netdev waits for. values: by name, of those that decide when it interrupts for what it received.

    own_pace: rx_usecs is no time, see sets_own_pace. queues: that receive. shared: their interrupts tell of what was
    sent, too.
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
    own_pace: bool
    queues: int
    shared: bool


def standing_of(netdev: Netdev) -> Standing | None:
    """What a netdev waits for; None where it has no such values, or more than they decide.

    That is where a queue has others of its own, or the kernel defers interrupts (gro_flush_timeout).
    """
    params = netdev.params
    values = {name: params[name] for name in _OWN if name in params}
    receiving = [queue for queue in netdev.queues if queue.name.startswith("rx-")]
    if not values or not receiving:
        return None
    for holder in (params, *(queue.params for queue in receiving)):
        if any(holder.get(name, value) != value for name, value in values.items()):
            return None
        if number(holder, "gro_flush_timeout") and number(holder, "napi_defer_hard_irqs"):
            return None
    rx_usecs = number(params, "coalesce/rx-usecs")
    interrupts = {queue.irq for queue in receiving}
    return Standing(
        driver=netdev.driver,
        values=values,
        rx_usecs=rx_usecs,
        rx_frames=number(params, "coalesce/rx-frames"),
        adaptive=params.get("coalesce/adaptive-rx") == "on",
        tx_usecs=number(params, "coalesce/tx-usecs"),
        tx_frames=number(params, "coalesce/tx-frames"),
        adaptive_tx=params.get("coalesce/adaptive-tx") == "on",
        timer=timer_of(netdev.driver, params)[0],
        own_pace=rx_usecs is not None and sets_own_pace(netdev.driver, rx_usecs),
        queues=len(receiving),
        shared=any(queue.irq in interrupts for queue in netdev.queues if queue.name.startswith("tx-")),
    )


class Measured(Struct, frozen=True):
    """What a netdev did. interrupts: of its receiving queues; busiest: of the one that had the most.

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

    def __add__(self, other: "Measured") -> "Measured":
        return Measured(*(getattr(self, name) + getattr(other, name) for name in self.__struct_fields__))

    @property
    def packets_per_s(self) -> float:
        """That were received."""
        return self.rx_packets / self.seconds if self.seconds > 0 else 0.0

    @property
    def busiest_per_s(self) -> float:
        """Interrupts of the queue that had the most."""
        return self.busiest / self.seconds if self.seconds > 0 else 0.0


Interrupts = dict[str, tuple[int, int]]
"""By netdev: those of its receiving queues, and of the one among them that had the most."""


def receive_interrupts(rates: Rates, inventory: Inventory) -> Interrupts:
    """How often the receiving queues interrupted in an interval; without netdevs of which that is not known."""
    if rates.irq_ids is None or rates.irq_counts is None:
        return {}
    irqs = {netdev.name: _receiving(netdev) for netdev in inventory.netdevs}
    counts = dict.fromkeys(chain.from_iterable(irqs.values()), 0)
    for irq, count in zip(unpack(rates.irq_ids, "I"), unpack(rates.irq_counts, "I"), strict=False):
        if irq in counts:
            counts[irq] += count
    found: Interrupts = {}
    for name, mine in irqs.items():
        if mine:
            each = [counts[irq] for irq in mine]
            found[name] = sum(each), max(each)
    return found


def _receiving(netdev: Netdev) -> set[int]:
    """The interrupts of its receiving queues; none where one is not known."""
    irqs = {queue.irq for queue in netdev.queues if queue.name.startswith("rx-")} if netdev.params else set()
    return {irq for irq in irqs if irq is not None} if None not in irqs else set()


def measured(rates: Rates, counts: NetdevCounts, interrupts: tuple[int, int]) -> Measured:
    """What a netdev did in one interval."""
    rtt_s = rates.duration_s if rates.tcp is not None and rates.tcp.sockets else 0.0
    return Measured(
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


def most_per_s(standing: Standing, packets_per_s: float, sent_per_s: float) -> float | None:
    """How often a queue that receives all of that can interrupt at the most; None where nothing says so.

    Whichever timer it is, two interrupts are at least rx-usecs apart unless rx-frames have come.
    """
    if standing.adaptive or standing.own_pace or not standing.rx_usecs:
        return None
    most = 1e6 / standing.rx_usecs + (packets_per_s / standing.rx_frames if standing.rx_frames else 0.0)
    if standing.shared and standing.timer is not Timer.THROTTLE:
        if standing.adaptive_tx or not standing.tx_usecs:
            return None  # nobody knows how often sent packets interrupt
        most += 1e6 / standing.tx_usecs + (sent_per_s / standing.tx_frames if standing.tx_frames else 0.0)
    return most


class Agreement(Struct, frozen=True):
    """Whether measured interrupts agree with the values that stand, with the figures; None: that cannot be told."""

    holds: bool | None
    words: str = ""


def agrees(now: Standing, since: Measured, before: Standing | None = None, until: Measured | None = None) -> Agreement:
    """Whether what was measured since the values of now stand agrees with them.

    before, until: what stood until then, and what was measured just before the change, where that is known. A timer
    bounds the interrupts of each queue, and a wait that became several times shorter must show.
    """
    if since.packets_per_s < ENOUGH_PER_S:
        return Agreement(None)
    what = ", ".join(f"{name.removeprefix('coalesce/')} {value}" for name, value in now.values.items())
    most = most_per_s(now, since.packets_per_s, since.tx_packets / since.seconds)
    if most is not None and since.busiest_per_s > _SLACK * most:
        return Agreement(
            False,
            f"With {what} a queue can interrupt {most:,.0f} times a second; the busiest did {since.busiest_per_s:,.0f} "
            f"times at {since.packets_per_s:,.0f} packets/s.",
        )
    if before is not None and until is not None and _stayed(now, most, since, before, until):
        return Agreement(
            False,
            f"With {what} the busiest queue interrupted {since.busiest_per_s:,.0f} times a second, as often as before "
            f"({until.busiest_per_s:,.0f}), although a shorter wait allows several times more.",
        )
    return Agreement(True if most is not None else None)


def _stayed(now: Standing, most: float | None, since: Measured, before: Standing, until: Measured) -> bool:
    """Whether interrupts that the former wait held back did not become more with one several times shorter."""
    if now.adaptive or now.own_pace or until.packets_per_s < ENOUGH_PER_S:
        return False
    held = most_per_s(before, until.packets_per_s, until.tx_packets / until.seconds)
    if held is None or not held / _SLACK <= until.busiest_per_s <= held * _SLACK:
        return False
    if not 0.5 <= since.packets_per_s / until.packets_per_s <= 2.0:
        return False
    allowed = since.packets_per_s / now.queues
    expected = allowed if most is None else min(allowed, most)
    grew = since.busiest_per_s / until.busiest_per_s
    # fewer than before are no sign of it: the more a CPU has to do, the longer it polls
    return expected >= _SEVERAL * until.busiest_per_s and 0.5 <= grew < _SHOWS


class Attempt(Struct, frozen=True):
    """A write. found: what stood before it; stood: what was read after it, None where it was refused in those words.

    unsupported: as in Tried.
    """

    setting: Setting
    asked: str
    found: str | None
    stood: str | None
    words: str = ""
    unsupported: bool = False

    @property
    def verdict(self) -> Verdict:
        """What became of the value."""
        if self.stood is None:
            return Verdict.REFUSED
        if self.stood == self.asked:
            return Verdict.TAKEN
        return Verdict.IGNORED if self.stood == self.found else Verdict.ROUNDED
