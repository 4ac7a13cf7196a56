"""Predict what the policy's bounds result in: the policy itself, evaluated on the NIC model until it settles."""

from math import isfinite

from msgspec import Struct
from msgspec.structs import replace

from coresteer_core.node.inventory import Inventory, Irq, Netdev, Queue
from coresteer_core.node.load import IrqLoad, Load, NetdevLoad
from coresteer_core.node.nic import Timer
from coresteer_core.node.nic_knee import KNEE_FRAMES, Knee, find_knee
from coresteer_core.node.nic_model import TYPICAL_HOST_COSTS, HostCosts, Prediction, QueueTraffic, TimerParams
from coresteer_core.node.receive import (
    ReceivedTraffic,
    int_param,
    predict_received,
    receive_irqs,
    received_traffic,
    timer_params,
)
from coresteer_core.node.topology import Topology
from coresteer_core.node.view import View
from coresteer_core.policies.base import ROUND_PERIOD_S, Scope
from coresteer_core.policies.coalescing.candidates import RX_FRAMES, RX_USECS, KernelPolling, find_mechanism
from coresteer_core.policies.coalescing.policy import CoalescingMemory, decide
from coresteer_core.policies.coalescing.spec import Coalescing

_PACKETS = 600
"""Packets to simulate for each pair of values."""
_MOST_ROUNDS, _CALM_ROUNDS = 120, 10
"""Rounds to evaluate at most, and rounds without a step after which the policy has settled."""


class Outcome(Struct, frozen=True):
    """Coalescing values at which the policy settles, the prediction for them, and why it stops there, as a sentence.

    usecs: rx-usecs, or where the kernel waits instead of the NIC, gro_flush_timeout in µs; None where there is neither.
    frames: rx-frames. predicted: None where the driver chooses the delay. max_wait_us: the longest time that a packet
    waits, None where nothing bounds it.
    """

    usecs: int | None
    frames: int | None
    predicted: Prediction | None
    max_wait_us: float | None
    why: str


class Example(Struct, frozen=True):
    """A NIC and its traffic, for bounds that are chosen without a node."""

    label: str
    view: View


def _example(
    label: str, netdev: tuple[str, int, dict[str, str]], *, packets_per_s: float, frame_bytes: float
) -> Example:
    """netdev: driver, bit/s, and params."""
    driver, speed_bits_per_s, params = netdev
    only = Netdev(
        "eth0", driver, speed_bits_per_s, None, None, True,
        virtual=False, management=False, queues=[Queue("rx-0", 1)], params=params,
    )  # fmt: skip
    irq = Irq(1, "eth0-rx-0", "PCI-MSI", None, None, None, True, netdev="eth0", queues=["rx-0"])
    sent_per_s = packets_per_s / 50  # little more than acknowledgements
    received = NetdevLoad("eth0", packets_per_s, packets_per_s * frame_bytes, sent_per_s, sent_per_s * 60, 0.0)
    load = Load(seconds=ROUND_PERIOD_S, netdevs=[received])
    return Example(label, View(Topology([], [], []), Inventory([only], [irq]), load))


EXAMPLES = (
    _example(
        "1 Gbit/s in frames of 9,000 bytes, timer restarts (bnx2; the paper's traffic)",
        ("bnx2", 10**9, {RX_USECS: "18", RX_FRAMES: "6", "ring/rx": "255"}),
        packets_per_s=1e9 / (8 * 9000),
        frame_bytes=9000.0,
    ),
    _example(
        "1 Gbit/s in frames of 1,500 bytes, timer counts from the last interrupt (ixgbe)",
        ("ixgbe", 10**10, {RX_USECS: "10", "ring/rx": "512"}),
        packets_per_s=1e9 / (8 * 1500),
        frame_bytes=1500.0,
    ),
    _example(
        "20,000 packets/s of 200 bytes, timer counts from the first packet (virtio_net)",
        ("virtio_net", 10**10, {RX_USECS: "0", RX_FRAMES: "1", "ring/rx": "256"}),
        packets_per_s=20_000.0,
        frame_bytes=200.0,
    ),
)
"""Typical traffic for which the policy's form shows what its bounds result in."""


def settle(view: View, netdev: Netdev, spec: Coalescing) -> Outcome | None:
    """Return where the policy settles on a netdev whose traffic stays as it is now; None if that is not known.

    The model's interrupts are multiplied by the measured ones ÷ the model's with the present values.
    """
    traffic = received_traffic(view.inventory, view.load, netdev)
    load = next((each for each in view.load.netdevs if each.name == netdev.name), None)
    if traffic is None or load is None:
        return None
    correction = _correction(view, netdev, traffic, spec)
    memory, calm, why = CoalescingMemory(), 0, ""
    for _ in range(_MOST_ROUNDS):
        predicted = _predict(netdev, traffic, view, spec, correction)
        decision = decide(_view_of(view, netdev, load, predicted), spec, Scope(), memory)
        if isinstance(decision.memory, CoalescingMemory):
            memory = decision.memory
        writes = {each.key.removeprefix(f"netdev/{netdev.name}/"): each.value for each in decision.proposals}
        netdev = replace(netdev, params={**netdev.params, **writes})
        calm = 0 if writes else calm + 1
        why = next((each.why for each in decision.skipped), why)
        if calm == _CALM_ROUNDS:
            break
    mechanism = find_mechanism(netdev, view.learned, software=spec.software)
    if isinstance(mechanism, str):
        return Outcome(None, None, _predict(netdev, traffic, view, spec, correction), None, why)
    delay = mechanism.current_delay
    longest_us = mechanism.max_wait_us(delay)
    return Outcome(
        delay.usecs,
        delay.frames,
        _predict(netdev, traffic, view, spec, correction),
        longest_us if isfinite(longest_us) else None,
        why,
    )


def knee_within(view: View, netdev: Netdev, spec: Coalescing) -> Knee | None:
    """Return the knee of a netdev's present traffic within the bounds; None where there is none or it is not known.

    interrupts_per_s of its prediction is that of all queues together, corrected as in settle().
    """
    traffic = received_traffic(view.inventory, view.load, netdev)
    wait = timer_params(netdev.driver, netdev.params)
    if traffic is None or wait is None:
        return None
    queue = QueueTraffic(traffic.packets_per_s * traffic.share, traffic.frame_bytes, netdev.speed_bits_per_s)
    host = HostCosts(ring=int_param(netdev.params, "ring/rx") or TYPICAL_HOST_COSTS.ring)
    counts = [count for count in KNEE_FRAMES if count <= spec.packets_per_interrupt]
    frames = counts if RX_FRAMES in netdev.params else []
    knee = find_knee(queue, wait.timer, host, frames=frames, max_added_us=spec.max_added_us)
    if knee is None:
        return None
    per_s = knee.predicted.interrupts_per_s / traffic.share * _correction(view, netdev, traffic, spec)
    per_s = min(traffic.packets_per_s, per_s)
    return replace(knee, predicted=replace(knee.predicted, interrupts_per_s=per_s))


def _correction(view: View, netdev: Netdev, traffic: ReceivedTraffic, spec: Coalescing) -> float:
    """Return the measured interrupts ÷ the model's with the present values; 1 where either is not known."""
    found = _model(netdev, traffic, view, spec)
    if not traffic.interrupts_per_s or found is None or not found.interrupts_per_s:
        return 1.0
    return traffic.interrupts_per_s / found.interrupts_per_s


def _predict(
    netdev: Netdev, traffic: ReceivedTraffic, view: View, spec: Coalescing, correction: float
) -> Prediction | None:
    """Return the model's prediction with corrected interrupts, at most one for each packet."""
    found = _model(netdev, traffic, view, spec)
    if found is None or not found.interrupts_per_s:
        return found
    per_s = min(traffic.packets_per_s, found.interrupts_per_s * correction)
    per_interrupt = found.packets_per_interrupt * found.interrupts_per_s / per_s
    return replace(found, interrupts_per_s=per_s, packets_per_interrupt=per_interrupt)


def _model(netdev: Netdev, traffic: ReceivedTraffic, view: View, spec: Coalescing) -> Prediction | None:
    mechanism = find_mechanism(netdev, view.learned, software=spec.software)
    if isinstance(mechanism, KernelPolling):
        wait: TimerParams | None = TimerParams(Timer.THROTTLE, mechanism.current_delay.usecs)
    else:
        wait = timer_params(netdev.driver, netdev.params)
    return None if wait is None else predict_received(netdev, traffic, wait, packets=_PACKETS)


def _view_of(view: View, netdev: Netdev, load: NetdevLoad, found: Prediction | None) -> View:
    """Return the node's view with only this netdev, and the interrupts that are predicted for its values."""
    present = dict.fromkeys(sorted(receive_irqs(view.inventory, netdev)), 0.0)
    for cell in view.load.irqs:
        if cell.irq in present:
            present[cell.irq] += cell.per_s
    total = sum(present.values())
    per_s = found.interrupts_per_s if found is not None else total
    lost = found.dropped_share if found is not None else 0.0
    irqs = [IrqLoad(irq, 0, per_s * (each / total if total else 1 / len(present))) for irq, each in present.items()]
    received = replace(
        load,
        rx_packets_per_s=load.rx_packets_per_s * (1 - lost),
        rx_bytes_per_s=load.rx_bytes_per_s * (1 - lost),
        dropped_per_s=load.dropped_per_s + load.rx_packets_per_s * lost,
    )
    return replace(
        view,
        inventory=replace(view.inventory, netdevs=[netdev]),
        load=replace(view.load, irqs=irqs, netdevs=[received]),
    )
