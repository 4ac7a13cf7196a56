"""Templates of the paper on interrupt coalescing: rx-usecs, rx-frames, or software coalescing. Pure."""

from coresteer.experiments.arm_config import NETDEV_PLACEHOLDER, all_levels
from coresteer.experiments.spec import Factor, Level, Spec
from coresteer.experiments.templates.declaration import TemplateKind, paper_of
from coresteer.experiments.templates.parts import (
    NodeFacts,
    TemplateUnavailable,
    machine_sentence,
    tcp_stream,
    traffic_sentence,
)
from coresteer.localization.text import BilingualText, text
from coresteer_core.changes.plan import DesiredValue
from coresteer_core.experiments.model import Observe, Traffic, Workload
from coresteer_core.node.inventory import Netdev
from coresteer_core.node.nic import Timer, Verdict, interrupt_timer
from coresteer_core.node.nic_model import frame_wire_time_us

_PAPER = paper_of("rx-usecs")
_GAP_US = 72
USECS, FRAMES = "coalesce/rx-usecs", "coalesce/rx-frames"
ADAPTIVE = "coalesce/adaptive-rx"
_SWEPT_USECS = (18, 36, 54, 72, 90, 250)
"""Those of the paper, and one far above every packet gap."""
_SWEPT_FRAMES = (6, 12, 18, 24, 30, 36, 42, 48)
"""Those of the paper."""
_BELOW_THE_GAP, _PAST_THE_GAP = 18, 90
_FRAMES_OF_USECS = 6
_POLLS = 1
_INTERRUPT_METRICS = ("interrupts_per_s", "packets_per_interrupt")
_RARELY_SUPPORTED = frozenset({"virtio_net", "vmxnet3"})
"""Drivers that report the values but accept them only if the host has the feature."""


def _usecs(facts: NodeFacts, kind: TemplateKind) -> tuple[Spec, list[str]]:
    """Return a sweep of rx-usecs or, without support, of gro_flush_timeout. Raises TemplateUnavailable."""
    nic = nic_with(facts, USECS)
    if nic is None:
        return _software(facts, kind)
    few = [DesiredValue(key_of(facts, nic, FRAMES), str(_FRAMES_OF_USECS))] if supports(facts, nic, FRAMES) else []
    levels = [_time(facts, nic, value, few) for value in _values(facts, nic, USECS, _SWEPT_USECS)]
    workload = _traffic(facts)
    spec = kind.spec(facts, workload, [Factor("rx-usecs", levels, "µs")], primary="interrupts_per_s")
    return spec, _of_nic(facts, nic, workload)


def _frames(facts: NodeFacts, kind: TemplateKind) -> tuple[Spec, list[str]]:
    """Return a sweep of rx-frames with rx-usecs below and above the paper's packet gap. Raises TemplateUnavailable."""
    nic = nic_with(facts, FRAMES)
    if nic is None or not supports(facts, nic, USECS):
        raise TemplateUnavailable(
            f"No network card of {facts.name} {'by which the traffic would come ' if facts.peer_id is not None else ''}"
            "supports rx-frames, and software coalescing has no packet count."
        )
    times = [_time(facts, nic, value, []) for value in _values(facts, nic, USECS, (_BELOW_THE_GAP, _PAST_THE_GAP))]
    counts = [
        Level(
            f"{requested} frames",
            [DesiredValue(key_of(facts, nic, FRAMES), str(value))],
            value=float(value),
            role=f"frames/{requested}",
        )
        for requested, value in _values(facts, nic, FRAMES, _SWEPT_FRAMES)
    ]
    workload = _traffic(facts)
    factors = [Factor("rx-usecs", times, "µs"), Factor("rx-frames", counts, "frames")]
    return kind.spec(facts, workload, factors, primary="interrupts_per_s"), _of_nic(facts, nic, workload)


def _software(facts: NodeFacts, kind: TemplateKind) -> tuple[Spec, list[str]]:
    """Return a sweep of gro_flush_timeout instead of rx-usecs (kernel: Documentation/networking/napi.rst)."""
    wire = facts.receiving_netdev
    if facts.peer_id is not None and (wire is None or "gro_flush_timeout" not in wire.params):
        which = facts.name if wire is None else wire.name
        raise TemplateUnavailable(f"{which} supports neither rx-usecs nor gro_flush_timeout.")
    levels = [
        Level(
            f"{value} µs",
            [
                DesiredValue(f"netdev/{NETDEV_PLACEHOLDER}/napi_defer_hard_irqs", str(_POLLS)),
                DesiredValue(f"netdev/{NETDEV_PLACEHOLDER}/gro_flush_timeout", str(value * 1000)),
            ],
            value=float(value),
            role=f"usecs/{value}",
        )
        for value in _SWEPT_USECS
    ]
    workload = tcp_stream(facts, limited=True)
    primary = "cpu_s_per_gbit" if facts.peer_id is None else "interrupts_per_s"
    spec = kind.spec(facts, workload, [Factor("gro_flush_timeout", levels, "µs")], primary=primary)
    return spec, [_differs(facts), traffic_sentence(facts, workload)]


def _deviations(spec: Spec) -> list[BilingualText]:
    """Return the deviations that follow from the settings that are varied."""
    names = {
        desired.key.partition("/")[2].partition("/")[2] for _, level in all_levels(spec) for desired in level.settings
    }
    found = []
    if "gro_flush_timeout" in names:
        found.append(_DEVIATIONS["software"].filled(polls=_POLLS))
        if _without_interrupts(spec):
            found.append(_DEVIATIONS["veth"].filled())
    elif FRAMES not in names:
        found.append(_DEVIATIONS["no_frames"].filled())
    if ADAPTIVE in names:
        found.append(_DEVIATIONS["adaptive"].filled())
    return found


def _differs(facts: NodeFacts) -> str:
    return machine_sentence(facts, _PAPER.machine.en)


def _traffic(facts: NodeFacts) -> Workload:
    """Return traffic of the peer, or the existing traffic: that of own namespaces does not pass the NIC."""
    return Observe() if facts.peer_id is None else tcp_stream(facts, limited=True)


def nic_with(facts: NodeFacts, name: str) -> Netdev | None:
    """Return the NIC that receives the traffic, without a peer the busiest, if it supports the parameter."""
    if facts.peer_id is not None:
        return (
            facts.receiving_netdev
            if facts.receiving_netdev is not None and supports(facts, facts.receiving_netdev, name)
            else None
        )
    packets = {load.name: load.rx_packets_per_s for load in facts.load.netdevs}
    nics = [nic for nic in facts.inventory.active_nics() if supports(facts, nic, name)]
    return max(nics, key=lambda nic: packets.get(nic.name, 0.0), default=None)


def supports(facts: NodeFacts, nic: Netdev, name: str) -> bool:
    """Return whether a driver has a parameter and accepts values for it, as far as was learned."""
    responses = facts.learned.responses(nic.driver, name)
    if name not in nic.params or any(one.unsupported for one in responses):
        return False
    if not responses:
        return nic.driver not in _RARELY_SUPPORTED
    return any(one.verdict in (Verdict.ACCEPTED, Verdict.ROUNDED) for one in responses)


def _values(facts: NodeFacts, nic: Netdev, name: str, requested: tuple[int, ...]) -> list[tuple[int, int]]:
    """Return the paper's values with the driver's rounded ones, as far as was learned, without duplicates."""
    made = {
        one.requested: int(one.read_back)
        for one in facts.learned.responses(nic.driver, name)
        if one.verdict is Verdict.ROUNDED and one.read_back is not None and one.read_back.isdecimal()
    }
    found: dict[int, int] = {}
    for value in requested:
        found.setdefault(made.get(str(value), value), value)
    return [(value, stands) for stands, value in found.items()]


def _time(facts: NodeFacts, nic: Netdev, value: tuple[int, int], more: list[DesiredValue]) -> Level:
    requested, stands = value
    steady = [DesiredValue(key_of(facts, nic, ADAPTIVE), "off")] if nic.params.get(ADAPTIVE) == "on" else []
    return Level(
        f"{requested} µs",
        [*steady, DesiredValue(key_of(facts, nic, USECS), str(stands)), *more],
        value=float(stands),
        role=f"usecs/{requested}",
    )


def key_of(facts: NodeFacts, nic: Netdev, name: str) -> str:
    """Return the key of a NIC's parameter, with the placeholder where a peer's traffic decides the NIC."""
    return f"netdev/{NETDEV_PLACEHOLDER if facts.peer_id is not None else nic.name}/{name}"


def _without_interrupts(spec: Spec) -> dict[str, str]:
    """Return the metrics of interrupts with the reason, where the load passes a veth pair instead of a NIC."""
    passes_nic = spec.peer_node_id is not None or not isinstance(spec.workload, Traffic)
    return {} if passes_nic else dict.fromkeys(_INTERRUPT_METRICS, text("en", "reason.no_interrupt"))


def _of_nic(facts: NodeFacts, nic: Netdev, workload: Workload) -> list[str]:
    timer, why = interrupt_timer(nic.driver, nic.params)
    differs = [
        _differs(facts),
        traffic_sentence(facts, workload),
        f"The card is {nic.name} ({nic.driver}).",
    ]
    if timer is not Timer.RESTARTING:
        differs.append(f"The authors' timer restarted with each packet. {why}")
    if nic.speed_bits_per_s and nic.mtu:
        gap_us = frame_wire_time_us(nic.mtu, nic.speed_bits_per_s)
        differs.append(
            f"At line rate, frames of {nic.mtu} B are {gap_us:.3g} µs apart; in the paper they were {_GAP_US} µs "
            "apart. A delay up to that time coalesces nothing."
        )
    return differs


_NAMES_KO = {
    "rx-usecs: time until an interrupt": "rx-usecs: 인터럽트까지의 시간",
    "rx-frames: number of packets until an interrupt": "rx-frames: 인터럽트까지의 패킷 수",
    "frames": "프레임",
    "{n} frames": "{n}프레임",
}
"""Names of the experiment, its factors, units and levels, in Korean."""
_DEVIATIONS = {
    "software": BilingualText(
        "No network card supports rx-usecs here, so software coalescing is used: napi_defer_hard_irqs {polls} and "
        "gro_flush_timeout at the paper's times. The kernel polls again after that time instead of waiting for an "
        "interrupt. There is no counterpart of rx-frames.",
        "rx-usecs를 지원하는 NIC이 없어 소프트웨어 병합을 쓴다: napi_defer_hard_irqs {polls}, 논문과 같은 시간의 "
        "gro_flush_timeout. 커널은 인터럽트를 기다리지 않고 그 시간이 지나면 다시 폴링한다. rx-frames에 해당하는 것은 "
        "없다.",
    ),
    "veth": BilingualText(
        "A veth pair has no interrupt, so CPU time is the primary metric.",
        "veth 쌍에는 인터럽트가 없으므로 CPU 시간이 판정 지표이다.",
    ),
    "no_frames": BilingualText(
        "rx-frames is not set, so the time alone decides; the authors used 6.",
        "rx-frames를 설정하지 않으므로 시간만이 결정한다. 논문에서는 6을 썼다.",
    ),
    "adaptive": BilingualText(
        "adaptive-rx, with which the driver adapts the time, is off in every run.",
        "드라이버가 시간을 조절하는 adaptive-rx를 모든 실행에서 끈다.",
    ),
}
"""How the experiment deviates from that of the paper."""


RX_USECS = TemplateKind(
    "rx-usecs",
    "rx-usecs: time until an interrupt",
    "From which delay on are there fewer interrupts, and at what cost?",
    "The longer the NIC waits for more packets, the fewer interrupts it raises.",
    "A NIC with rx-usecs, or a kernel with gro_flush_timeout.",
    _usecs,
    _PAPER,
    unmeasured=_without_interrupts,
    deviations=_deviations,
    names_ko=_NAMES_KO,
)

RX_FRAMES = TemplateKind(
    "rx-frames",
    "rx-frames: number of packets until an interrupt",
    "At which packet count does the NIC interrupt least without loss?",
    "A packet count ends the wait early. It matters only where the time is longer than the gap between packets, "
    "so both a shorter and a longer time are measured.",
    "A NIC with rx-frames.",
    _frames,
    paper_of("rx-frames"),
    deviations=_deviations,
    names_ko=_NAMES_KO,
)
