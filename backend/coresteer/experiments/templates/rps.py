"""Template: receive packet steering (RPS) off, or on all CPUs near the network card. Pure."""

from coresteer.experiments.arm_config import NETDEV_PLACEHOLDER
from coresteer.experiments.spec import Factor, Level, Spec
from coresteer.experiments.templates.declaration import TemplateKind
from coresteer.experiments.templates.parts import NodeFacts, TemplateUnavailable, tcp_stream, traffic_sentence
from coresteer_core.changes.plan import DesiredValue
from coresteer_core.cpuset import format_cpu_list
from coresteer_core.settings.base import format_cpus
from coresteer_core.settings.queue import NO_CPUS

_MAX_QUEUES = 64
"""Settings of one level at most."""


def _make(facts: NodeFacts, kind: TemplateKind) -> tuple[Spec, list[str]]:
    """Return RPS off against RPS on the local CPUs. Raises TemplateUnavailable."""
    queues, cpus = _queues(facts), _local_cpus(facts)
    if len(cpus) < 2:
        raise TemplateUnavailable(
            f"{facts.name} has one usable CPU near the traffic; RPS cannot spread packets over others."
        )
    levels = [
        Level(name, [DesiredValue(f"netdev/{NETDEV_PLACEHOLDER}/{queue}/rps", value) for queue in queues])
        for name, value in (("RPS off", NO_CPUS), (f"RPS on {len(cpus)} CPUs", format_cpu_list(cpus)))
    ]
    workload = tcp_stream(facts, limited=False)
    spec = kind.spec(facts, workload, [Factor("RPS", levels)], primary="throughput_bit_per_s")
    return spec, [
        traffic_sentence(facts, workload),
        f"RPS spreads the packets of {len(queues)} receive queue{'s' if len(queues) > 1 else ''} over "
        f"{format_cpus(set(cpus))}.",
    ]


def _queues(facts: NodeFacts) -> list[str]:
    """Return the receive queues with RPS, of the veth pair or of the NIC. Raises TemplateUnavailable."""
    if facts.peer_id is None:
        return ["rx-0"]
    if facts.receiving_netdev is None:
        raise TemplateUnavailable(f"{facts.name} has no network card that is up and could receive a peer's traffic.")
    netdev = facts.receiving_netdev
    queues = [queue.name for queue in netdev.queues if queue.name.startswith("rx-") and queue.rps is not None]
    if not queues or len(queues) > _MAX_QUEUES:
        raise TemplateUnavailable(
            f"{netdev.name} has {len(queues)} receive queues with RPS; the template needs 1 to {_MAX_QUEUES}."
        )
    return queues


def _local_cpus(facts: NodeFacts) -> list[int]:
    """Return the usable CPUs on the NIC's NUMA node; all usable ones if that is unknown or there is no NIC."""
    node = None if facts.receiving_netdev is None else facts.receiving_netdev.numa_node
    return [cpu for cpu in facts.usable_cpus if facts.topology.nodes.get(cpu) == node] or facts.usable_cpus


_NAMES_KO = {
    "RPS: packets on one CPU or on several": "RPS: 패킷을 CPU 1개 또는 여러 개에서 처리",
    "RPS off": "RPS 사용 안 함",
    "RPS on {n} CPUs": "CPU {n}개에서 RPS",
}
"""Names of the experiment, its factors, units and levels, in Korean."""


RPS = TemplateKind(
    "rps",
    "RPS: packets on one CPU or on several",
    "Does RPS raise the throughput, and at what cost in CPU time?",
    "Without RPS the CPU of a receive queue processes all of its packets. RPS spreads them by flow over the CPUs "
    "near the network card.",
    "Two usable CPUs near the traffic. With traffic from a peer: queues with RPS.",
    _make,
    names_ko=_NAMES_KO,
)
