"""Receive interrupts, received traffic and coalescing of a netdev, as input of the NIC model (nic_model)."""

from collections.abc import Mapping

from msgspec import Struct
from msgspec.structs import replace

from coresteer_core.node.inventory import Inventory, Netdev
from coresteer_core.node.load import Load
from coresteer_core.node.nic import Timer, interrupt_timer, selects_adaptive_mode
from coresteer_core.node.nic_model import TYPICAL_HOST_COSTS, HostCosts, Prediction, QueueTraffic, TimerParams, predict


class ReceivedTraffic(Struct, frozen=True):
    """Traffic that a netdev, or one of its queues, receives. share: of the packets, on the busiest or selected queue.

    interrupts_per_s: of all queues together, or of the selected one; None where unknown.
    """

    packets_per_s: float
    frame_bytes: float
    share: float
    interrupts_per_s: float | None


def int_param(params: Mapping[str, str], name: str) -> int | None:
    """Return a parameter's value as an integer; None where the device has none."""
    value = params.get(name, "")
    return int(value) if value.isdecimal() else None


def receive_irqs(inventory: Inventory, netdev: Netdev) -> frozenset[int]:
    """Return the interrupt numbers of a netdev's receive queues; all of its interrupts where those are unknown."""
    from_queues = {q.irq for q in netdev.queues if q.irq is not None and q.name.startswith("rx-")}
    irqs = [irq for irq in inventory.irqs if irq.netdev == netdev.name]
    receiving = from_queues | {irq.irq for irq in irqs if any(queue.startswith("rx-") for queue in irq.queues)}
    return frozenset(receiving or {irq.irq for irq in irqs})


def received_traffic(
    inventory: Inventory, load: Load, netdev: Netdev, irq: int | None = None
) -> ReceivedTraffic | None:
    """Return the traffic that a netdev receives on all queues, or on that of one interrupt; None if none was measured.

    Packets are divided among queues in proportion to their interrupts.
    """
    counted = next((each for each in load.netdevs if each.name == netdev.name), None)
    if counted is None or counted.rx_packets_per_s <= 0:
        return None
    per_s = dict.fromkeys(receive_irqs(inventory, netdev), 0.0)
    for cell in load.irqs:
        if cell.irq in per_s:
            per_s[cell.irq] += cell.per_s
    total = sum(per_s.values())
    frame_bytes = counted.rx_bytes_per_s / counted.rx_packets_per_s
    if irq is None:
        share = max(per_s.values()) / total if total else 1.0
        return ReceivedTraffic(counted.rx_packets_per_s, frame_bytes, share, total if load.irqs and per_s else None)
    if not per_s.get(irq):
        return None
    return ReceivedTraffic(counted.rx_packets_per_s * per_s[irq] / total, frame_bytes, 1.0, per_s[irq])


def timer_params(driver: str | None, params: Mapping[str, str]) -> TimerParams | None:
    """Return a NIC's timer with rx-usecs and rx-frames; None without rx-usecs or where the driver adapts them.

    An unknown timer is assumed to be restarting, which waits longest: it fires no earlier than absolute, and that no
    earlier than throttle.
    """
    rx_usecs = int_param(params, "coalesce/rx-usecs")
    if rx_usecs is None or params.get("coalesce/adaptive-rx") == "on" or selects_adaptive_mode(driver, rx_usecs):
        return None
    timer, _ = interrupt_timer(driver, params)
    return TimerParams(timer or Timer.RESTARTING, rx_usecs, int_param(params, "coalesce/rx-frames"))


def predict_received(netdev: Netdev, traffic: ReceivedTraffic, wait: TimerParams, *, packets: int = 1000) -> Prediction:
    """Return the predicted interrupts of all queues of a netdev together, and the latency of its busiest queue."""
    arrivals = QueueTraffic(traffic.packets_per_s * traffic.share, traffic.frame_bytes, netdev.speed_bits_per_s)
    host = HostCosts(ring=int_param(netdev.params, "ring/rx") or TYPICAL_HOST_COSTS.ring)
    found = predict(arrivals, wait, host, packets=packets)
    return replace(found, interrupts_per_s=found.interrupts_per_s / traffic.share)
