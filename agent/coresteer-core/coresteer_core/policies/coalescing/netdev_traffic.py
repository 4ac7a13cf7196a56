"""Received traffic and interrupts of a netdev, of one round or as means over rounds."""

from math import inf

from msgspec import Struct
from msgspec.structs import astuple

from coresteer_core.node.inventory import Irq
from coresteer_core.node.load import NetdevLoad
from coresteer_core.node.view import View

_MOST_ROUNDS = 12
"""Number of rounds that means cover: about one minute."""

_UNLIKE = 2.0
NO_INTERRUPTS = 1e9
"""Packets per interrupt where none occurs (the kernel polls all the time). Finite, because JSON has no infinity."""


class NetdevTraffic(Struct, frozen=True, gc=False):
    """Received traffic and interrupts of a netdev, per second, as means over some rounds.

    interrupts_per_s: of its receive queues; busiest: the share of the queue that has most of them.
    rtt_us: TCP round-trip time p50 of the node, None where not known.
    """

    rounds: int
    packets_per_s: float
    bytes_per_s: float
    sent_per_s: float
    interrupts_per_s: float
    dropped_per_s: float
    busiest: float
    rtt_us: float | None

    @property
    def per_interrupt(self) -> float:
        """Return the received packets per interrupt."""
        return self.packets_per_s / self.interrupts_per_s if self.interrupts_per_s else NO_INTERRUPTS

    @property
    def gap_us(self) -> float:
        """Return the mean time in µs between two packets of the busiest queue."""
        queue_per_s = self.packets_per_s * self.busiest
        return 1e6 / queue_per_s if queue_per_s else inf

    @property
    def frame_bytes(self) -> float:
        """Return the mean size of a received packet in bytes."""
        return self.bytes_per_s / self.packets_per_s if self.packets_per_s else 0.0

    @property
    def dropped_percent(self) -> float:
        """Return the dropped packets in percent of received and dropped ones."""
        total = self.packets_per_s + self.dropped_per_s
        return 100 * self.dropped_per_s / total if total else 0.0

    @property
    def in_flight(self) -> float | None:
        """Return the packets in flight to the busiest queue, rate × RTT (Little's law); None without a known RTT."""
        return None if self.rtt_us is None else self.rtt_us / self.gap_us

    def differs_from(self, before: "NetdevTraffic") -> bool:
        """Return whether packets per second or per interrupt differ from earlier traffic by a factor above two."""
        rates = (self.packets_per_s, before.packets_per_s), (self.per_interrupt, before.per_interrupt)
        return any(max(pair) > _UNLIKE * min(pair) for pair in rates)

    def averaged_with(self, before: "NetdevTraffic | None") -> "NetdevTraffic":
        """Return the means over earlier rounds and this one."""
        if before is None or not before.rounds:
            return self
        rounds = min(before.rounds + 1, _MOST_ROUNDS)

        def mean(old: float | None, new: float | None) -> float | None:
            return new if old is None or new is None else old + (new - old) / rounds

        return NetdevTraffic(rounds, *map(mean, astuple(before)[1:], astuple(self)[1:]))  # type: ignore[arg-type]  # as given


def receive_interrupts_per_s(view: View) -> dict[str, list[float]]:
    """Return by netdev the interrupts/s of each receive queue; of all its interrupts where queues are unknown."""
    per_s: dict[int, float] = {}
    for cell in view.load.irqs:
        per_s[cell.irq] = per_s.get(cell.irq, 0.0) + cell.per_s
    of_netdev: dict[str, list[Irq]] = {}
    for irq in view.inventory.irqs:
        if irq.netdev is not None:
            of_netdev.setdefault(irq.netdev, []).append(irq)
    found = {}
    for name, irqs in of_netdev.items():
        receiving = [irq for irq in irqs if any(queue.startswith("rx-") for queue in irq.queues)] or irqs
        found[name] = [per_s.get(irq.irq, 0.0) for irq in receiving]
    return found


def measure_round(load: NetdevLoad, per_s: list[float], rtt_us: float | None) -> NetdevTraffic:
    """Return a netdev's traffic in this round. per_s: interrupts/s by queue; rtt_us: None where unknown."""
    total = sum(per_s)
    return NetdevTraffic(
        rounds=1,
        packets_per_s=load.rx_packets_per_s,
        bytes_per_s=load.rx_bytes_per_s,
        sent_per_s=load.tx_packets_per_s,
        interrupts_per_s=total,
        dropped_per_s=load.dropped_per_s,
        busiest=max(per_s) / total if total else 1.0,
        rtt_us=rtt_us,
    )
