"""Templates of shared paper 4: how long a NIC, or the kernel in its place, waits before it looks. Pure."""

from coresteer.experiments.arm_config import NETDEV
from coresteer.experiments.spec import Factor, Level, Spec
from coresteer.experiments.template_parts import NodeFacts, Unavailable, machine_differs, of_traffic, spec_of, stream
from coresteer_core.changes.plan import DesiredValue
from coresteer_core.experiments.model import Observe, Workload
from coresteer_core.node.inventory import Netdev
from coresteer_core.node.nic import Timer, Verdict, timer_of
from coresteer_core.node.nic_model import packet_gap_us

AUTHORS = "The authors had one link of 1 Gbit/s with frames of 9000 B"
_GAP_US = 72
USECS, FRAMES = "coalesce/rx-usecs", "coalesce/rx-frames"
_ADAPTIVE = "coalesce/adaptive-rx"
_SWEPT_USECS = (18, 36, 54, 72, 90, 250)
"""The authors', and one far past every gap."""
_SWEPT_FRAMES = (6, 18, 42, 48)
_BELOW_THE_GAP, _PAST_THE_GAP = 18, 90
_FRAMES_OF_USECS = 6
_POLLS = 1
_MOSTLY_REFUSE = frozenset({"virtio_net", "vmxnet3"})
"""They show values and take them only where their host has the feature."""


def usecs(facts: NodeFacts, slug: str, title: str) -> tuple[Spec, list[str]]:
    """The time swept, of the NIC or, where none takes it, of the kernel's own polling. Raises Unavailable."""
    nic = _waiting(facts, USECS)
    if nic is None:
        return _software(facts, slug, title)
    few = [DesiredValue(_key(facts, nic, FRAMES), str(_FRAMES_OF_USECS))] if _takes(facts, nic, FRAMES) else []
    levels = [_time(facts, nic, value, few) for value in _values(facts, nic, USECS, _SWEPT_USECS)]
    workload = _traffic(facts)
    spec = spec_of(facts, slug, title, workload, [Factor("rx-usecs", levels, "µs")], primary="interrupts_per_s")
    differs = _of_nic(facts, nic, workload)
    if not few:
        differs.append(f"{nic.driver} takes no rx-frames: the time alone decides. The authors had it at 6.")
    return spec, differs


def frames(facts: NodeFacts, slug: str, title: str) -> tuple[Spec, list[str]]:
    """The count swept with the time below the authors' packet gap and past it. Raises Unavailable."""
    nic = _waiting(facts, FRAMES)
    if nic is None or not _takes(facts, nic, USECS):
        raise Unavailable(
            f"No network card of {facts.name} {'by which the traffic would come ' if facts.peer_id is not None else ''}"
            "takes rx-frames, and the kernel's own waiting has no count of packets."
        )
    times = [_time(facts, nic, value, []) for value in _values(facts, nic, USECS, (_BELOW_THE_GAP, _PAST_THE_GAP))]
    counts = [
        Level(f"{asked} frames", [DesiredValue(_key(facts, nic, FRAMES), str(value))], value=float(value))
        for asked, value in _values(facts, nic, FRAMES, _SWEPT_FRAMES)
    ]
    workload = _traffic(facts)
    factors = [Factor("rx-usecs", times, "µs"), Factor("rx-frames", counts, "frames")]
    return spec_of(facts, slug, title, workload, factors, primary="interrupts_per_s"), _of_nic(facts, nic, workload)


def _software(facts: NodeFacts, slug: str, title: str) -> tuple[Spec, list[str]]:
    """gro_flush_timeout in the place of rx-usecs (kernel: Documentation/networking/napi.rst)."""
    wire = facts.wire
    if facts.peer_id is not None and (wire is None or "gro_flush_timeout" not in wire.params):
        which = facts.name if wire is None else wire.name
        raise Unavailable(f"{which} takes no rx-usecs, and the kernel cannot wait in its place.")
    levels = [
        Level(
            f"{value} µs",
            [
                DesiredValue(f"netdev/{NETDEV}/napi_defer_hard_irqs", str(_POLLS)),
                DesiredValue(f"netdev/{NETDEV}/gro_flush_timeout", str(value * 1000)),
            ],
            value=float(value),
        )
        for value in _SWEPT_USECS
    ]
    workload = stream(facts, limited=True)
    primary = "cpu_s_per_gbit" if facts.peer_id is None else "interrupts_per_s"
    spec = spec_of(facts, slug, title, workload, [Factor("gro_flush_timeout", levels, "µs")], primary=primary)
    differs = [
        machine_differs(facts, AUTHORS),
        of_traffic(facts, workload),
        "No network card takes rx-usecs here: the kernel waits in its place, with napi_defer_hard_irqs "
        f"{_POLLS} and gro_flush_timeout at the authors' times. It polls again after that time instead of waiting for "
        "an interrupt, and counts no packets, so there is nothing like rx-frames.",
    ]
    if facts.peer_id is None:
        differs.append("A veth pair has no interrupt: CPU use decides instead of interrupts.")
    return spec, differs


def _traffic(facts: NodeFacts) -> Workload:
    """From a peer if there is one: a node's own namespaces do not lead through its NIC."""
    return Observe() if facts.peer_id is None else stream(facts, limited=True)


def _waiting(facts: NodeFacts, name: str) -> Netdev | None:
    """The NIC that the traffic comes by if it takes values of this name; the node's own comes by the busiest."""
    if facts.peer_id is not None:
        return facts.wire if facts.wire is not None and _takes(facts, facts.wire, name) else None
    packets = {load.name: load.rx_packets_per_s for load in facts.load.netdevs}
    nics = [nic for nic in facts.inventory.active_nics() if _takes(facts, nic, name)]
    return max(nics, key=lambda nic: packets.get(nic.name, 0.0), default=None)


def _takes(facts: NodeFacts, nic: Netdev, name: str) -> bool:
    """Whether a driver has it and has not refused or ignored whatever it was asked for, or has not mostly done so."""
    responses = facts.learned.responses(nic.driver, name)
    if name not in nic.params or any(one.unsupported for one in responses):
        return False
    if not responses:
        return nic.driver not in _MOSTLY_REFUSE
    return any(one.verdict in (Verdict.ACCEPTED, Verdict.ROUNDED) for one in responses)


def _values(facts: NodeFacts, nic: Netdev, name: str, asked: tuple[int, ...]) -> list[tuple[int, int]]:
    """What the authors asked for, with what the driver makes of it as far as that was learned; none twice."""
    made = {
        one.requested: int(one.read_back)
        for one in facts.learned.responses(nic.driver, name)
        if one.verdict is Verdict.ROUNDED and one.read_back is not None and one.read_back.isdecimal()
    }
    found: dict[int, int] = {}
    for value in asked:
        found.setdefault(made.get(str(value), value), value)
    return [(value, stands) for stands, value in found.items()]


def _time(facts: NodeFacts, nic: Netdev, value: tuple[int, int], more: list[DesiredValue]) -> Level:
    asked, stands = value
    steady = [DesiredValue(_key(facts, nic, _ADAPTIVE), "off")] if nic.params.get(_ADAPTIVE) == "on" else []
    return Level(
        f"{asked} µs", [*steady, DesiredValue(_key(facts, nic, USECS), str(stands)), *more], value=float(stands)
    )


def _key(facts: NodeFacts, nic: Netdev, name: str) -> str:
    return f"netdev/{NETDEV if facts.peer_id is not None else nic.name}/{name}"


def _of_nic(facts: NodeFacts, nic: Netdev, workload: Workload) -> list[str]:
    timer, why = timer_of(nic.driver, nic.params)
    differs = [machine_differs(facts, AUTHORS), of_traffic(facts, workload), f"The card is {nic.name} ({nic.driver})."]
    if timer is not Timer.RESTARTING:
        differs.append(f"The authors' timer began anew with each packet. {why}")
    if nic.speed_bits_per_s and nic.mtu:
        gap_us = packet_gap_us(nic.mtu, nic.speed_bits_per_s)
        differs.append(
            f"Frames of {nic.mtu} B come at most every {gap_us:.3g} µs; the authors' came every {_GAP_US} µs, and "
            "coalescing set in where the time passed that."
        )
    if nic.params.get(_ADAPTIVE) == "on":
        differs.append("adaptive-rx, by which the driver changes the time itself, is off in every run.")
    return differs
