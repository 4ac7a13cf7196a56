"""Templates of the paper on network-process scheduling: CPU of the interrupt and CPU of the process. Pure."""

from functools import partial
from itertools import groupby

from coresteer.experiments.arm_config import all_levels
from coresteer.experiments.spec import Factor, Level, Spec
from coresteer.experiments.templates.declaration import TemplateKind, paper_of
from coresteer.experiments.templates.parts import (
    NodeFacts,
    TemplateUnavailable,
    machine_sentence,
    receive_settings,
    tcp_stream,
    traffic_sentence,
)
from coresteer.localization.text import BilingualText
from coresteer_core.changes.plan import DesiredValue
from coresteer_core.cpuset import format_cpu_list
from coresteer_core.experiments.model import TcpStream
from coresteer_core.node.distance import DISTANCE, REMOTE_DISTANCE, SMT_LAST_DISTANCE, Locality, Smt, cpu_distances
from coresteer_core.settings.base import format_cpus

_PAPER = paper_of("m-n")
_MAX_CPUS_MEASURED = 8
_CPUS_PER_DISTANCE = 2
_CACHE = (DISTANCE[Locality.L2], DISTANCE[Locality.L3])
_DISTANCE_TEXT = {
    0: "the same CPU",
    DISTANCE[Locality.L2]: "shares L2",
    DISTANCE[Locality.L3]: "shares L3",
    SMT_LAST_DISTANCE: "the same core",
    DISTANCE[Locality.NUMA]: "shares no cache",
    REMOTE_DISTANCE: "on another NUMA node",
}
_ROLES = {
    0: "n/same",
    DISTANCE[Locality.L2]: "n/cache",
    DISTANCE[Locality.L3]: "n/cache",
    SMT_LAST_DISTANCE: "n/core",
    DISTANCE[Locality.NUMA]: "n/none",
    REMOTE_DISTANCE: "n/none/remote",
}
"""Role of an arm by the distance of its CPU."""
_FEW_VARIANTS = {"": (1, True), "-2s": (2, True), "-2n": (2, False), "-4s": (4, True), "-4n": (4, False)}
"""Number of interrupt CPUs and whether they share a cache, by the end of the slug."""


def _m_n(facts: NodeFacts, kind: TemplateKind) -> tuple[Spec, list[str]]:
    """Return the process on every CPU or, on large machines, on some at each distance. Raises TemplateUnavailable.

    The baseline is the interrupt's CPU itself, as in the paper: ⟨0-0⟩.
    """
    home = home_cpu(facts)
    row = cpu_distances(facts.topology, Smt.LAST).rows[home]
    clients = [] if facts.peer_id is not None else client_cpus(facts)
    servers = sorted((cpu for cpu in facts.usable_cpus if cpu not in clients), key=lambda cpu: (row[cpu], cpu))
    if len(servers) < 2:
        raise TemplateUnavailable(f"{facts.name} has one usable CPU; the process cannot run elsewhere.")
    if len(servers) > _MAX_CPUS_MEASURED:
        servers = [cpu for _, ring in groupby(servers, lambda cpu: row[cpu]) for cpu in list(ring)[:_CPUS_PER_DISTANCE]]
    settings = receive_settings(facts, [home])
    levels = [
        Level(
            f"⟨{home}-{cpu}⟩ {_distance(facts, row[cpu])}",
            settings,
            workload={"server_cpus": str(cpu)},
            role=_ROLES[row[cpu]],
        )
        for cpu in servers
    ]
    workload = tcp_stream(facts, limited=True, client_cpus=format_cpu_list(clients))
    spec = kind.spec(facts, workload, [Factor("CPU of the process", levels)], primary="cpu_s_per_gbit")
    differs = [
        _differs(facts),
        traffic_sentence(facts, workload),
        *_about_interrupts(facts, [home]),
    ]
    if all(row[cpu] < DISTANCE[Locality.NUMA] for cpu in servers):
        differs.append(
            f"All CPUs of {facts.name} share a cache; the largest effect of the paper was without a shared one."
        )
    elif len(servers) < len(facts.usable_cpus) - len(clients):
        differs.append(
            f"{len(servers)} of {len(facts.usable_cpus)} CPUs are measured, {_CPUS_PER_DISTANCE} per distance."
        )
    return spec, differs


def _few_cores(facts: NodeFacts, kind: TemplateKind, ending: str) -> tuple[Spec, list[str]]:
    """Return kernel against network-process policy with interrupts on few CPUs. Raises TemplateUnavailable."""
    count, near = _FEW_VARIANTS[ending]
    if facts.network_process is None:
        raise TemplateUnavailable(
            "There is no policy of the kind network-process. Create one under Policies, in mode observe or disabled; "
            "the experiment puts it in force during its runs."
        )
    cpus = _few(facts, count, near=near)
    settings = receive_settings(facts, cpus)
    name, policy = facts.network_process
    levels = [
        Level("kernel default", settings, role="kernel"),
        *([_irqbalance(cpus)] if _has_interrupts(settings) else []),
        Level("network-process", settings, policy=policy, role="policy"),
    ]
    workload = tcp_stream(facts, limited=False)
    factor = Factor("placement", levels)
    spec = kind.spec(facts, workload, [factor], primary="cpu_s_per_gbit")
    differs = [
        _differs(facts),
        traffic_sentence(facts, workload),
        *_about_interrupts(facts, cpus),
        _about_irqbalance(facts, settings),
        f"The policy is “{name}”, version {policy.version}.",
    ]
    return spec, differs


def _offers_few(facts: NodeFacts, ending: str) -> bool:
    """Return whether the comparison is meaningful on a node.

    One interrupt CPU is for machines and traffic that cannot have several: with RPS on several CPUs, as over a veth
    pair, the RX placement of a process is unknown, and the policy skips it.
    """
    count, near = _FEW_VARIANTS[ending]
    several = (
        facts.receiving_netdev is not None
        and len([q for q in facts.receiving_netdev.queues if q.name.startswith("rx-")]) > 1
    )
    if count == 1:
        return not (several and any(_offers_few(facts, each) for each in _FEW_VARIANTS if each))
    try:
        return several and len(_few(facts, count, near=near)) == count
    except TemplateUnavailable:
        return False


def _few(facts: NodeFacts, count: int, *, near: bool) -> list[int]:
    """Return interrupt CPUs on separate cores. Raises TemplateUnavailable."""
    if len(facts.usable_cpus) < 2 * count:
        raise TemplateUnavailable(
            f"{facts.name} has {len(facts.usable_cpus)} usable CPUs; {count} interrupt CPUs need at least {2 * count}."
        )
    distances = cpu_distances(facts.topology, Smt.LAST).rows
    found = [home_cpu(facts)]
    for cpu in facts.usable_cpus:
        apart = [distances[other][cpu] for other in found]
        if len(found) < count and all((each in _CACHE) if near else each >= DISTANCE[Locality.NUMA] for each in apart):
            found.append(cpu)
    if len(found) < count:
        shares = "share a cache" if near else "share none"
        raise TemplateUnavailable(f"{facts.name} has no {count} cores that {shares}.")
    return found


def _differs(facts: NodeFacts) -> str:
    return machine_sentence(facts, _PAPER.machine.en)


def _distance(facts: NodeFacts, distance: int) -> str:
    """Return a distance as text; without known NUMA nodes none is named."""
    return _DISTANCE_TEXT[distance if len(facts.topology.numa_nodes) > 1 else min(distance, DISTANCE[Locality.NUMA])]


def home_cpu(facts: NodeFacts) -> int:
    """Return the first usable CPU, near the network card if a peer sends. Raises TemplateUnavailable."""
    if not facts.usable_cpus:
        raise TemplateUnavailable(f"The CPUs of {facts.name} are unknown.")
    wire, nodes = facts.receiving_netdev, facts.topology.nodes
    near = [cpu for cpu in facts.usable_cpus if wire is not None and nodes.get(cpu) == wire.numa_node]
    return (near or facts.usable_cpus)[0]


def client_cpus(facts: NodeFacts) -> list[int]:
    """Return the last quarter of the cores for the senders, which then disturb no measured CPU; none below 4 cores."""
    cores = facts.topology.cores
    whole = list(dict.fromkeys(frozenset(cores[cpu]) & frozenset(facts.usable_cpus) for cpu in facts.usable_cpus))
    kept = whole[-(len(whole) // 4) :] if len(whole) >= 4 else []
    return sorted(cpu for core in kept for cpu in core)


def _irqbalance(cpus: list[int]) -> Level:
    """Return irqbalance on the same CPUs, without settings: it moves only interrupts that no change has set."""
    return Level("irqbalance", irqbalance=True, irqbalance_cpus=format_cpu_list(cpus), role="irqbalance")


def _has_interrupts(settings: list[DesiredValue]) -> bool:
    """Return whether the placement of packets is that of interrupts, instead of RPS."""
    return all(desired.key.startswith("irq/") for desired in settings)


def _about_irqbalance(facts: NodeFacts, settings: list[DesiredValue]) -> str:
    if _has_interrupts(settings):
        return "irqbalance may use the same CPUs only (IRQBALANCE_BANNED_CPULIST); the kernel places the processes."
    if facts.peer_id is None:
        return "irqbalance is not compared, as there is no interrupt."
    return "irqbalance is not compared, as the interrupts cannot be moved."


def _about_interrupts(facts: NodeFacts, cpus: list[int]) -> list[str]:
    if facts.peer_id is None:
        return []
    where = format_cpus(set(cpus))
    wire = facts.receiving_netdev
    name = wire.name if wire is not None else "the card"
    return [f"The receive queues of {name} are on {where} in every run; the authors bound one port to each core."]


def _deviations(spec: Spec) -> list[BilingualText]:
    """Return the deviations that follow from the load and from whether a policy is compared."""
    found = [] if spec.peer_node_id is not None else [_DEVIATIONS["veth"].filled()]
    if isinstance(spec.workload, TcpStream) and spec.workload.limit_mbit_per_s < TcpStream().limit_mbit_per_s:
        found.append(_DEVIATIONS["limited"].filled(limit=f"{spec.workload.limit_mbit_per_s:,}"))
    if any(level.policy for _, level in all_levels(spec)):
        found.append(_DEVIATIONS["policy"].filled())
    return found


_NAMES_KO = {
    "⟨m-n⟩: interrupt on CPU m, process on CPU n": "⟨m-n⟩: 인터럽트는 CPU m, 프로세스는 CPU n",
    "One interrupt CPU: placement of the processes": "인터럽트 CPU 1개: 프로세스 배치",
    "2S: two interrupt CPUs that share a cache": "2S: 캐시를 공유하는 인터럽트 CPU 2개",
    "2N: two interrupt CPUs that share no cache": "2N: 캐시를 공유하지 않는 인터럽트 CPU 2개",
    "4S: four interrupt CPUs that share a cache": "4S: 캐시를 공유하는 인터럽트 CPU 4개",
    "4N: four interrupt CPUs that share no cache": "4N: 캐시를 공유하지 않는 인터럽트 CPU 4개",
    "CPU of the process": "프로세스의 CPU",
    "placement": "배치",
    "⟨{n}⟩ the same CPU": "⟨{n}⟩ 같은 CPU",
    "⟨{n}⟩ shares L2": "⟨{n}⟩ L2 공유",
    "⟨{n}⟩ shares L3": "⟨{n}⟩ L3 공유",
    "⟨{n}⟩ the same core": "⟨{n}⟩ 같은 코어",
    "⟨{n}⟩ shares no cache": "⟨{n}⟩ 캐시 비공유",
    "⟨{n}⟩ on another NUMA node": "⟨{n}⟩ 다른 NUMA 노드",
}
"""Names of the experiment, its factors, units and levels, in Korean."""
_DEVIATIONS = {
    "veth": BilingualText(
        "A veth pair has no interrupt: the CPU that RPS selects takes the place of the interrupt's CPU.",
        "veth 쌍에는 인터럽트가 없으므로 RPS가 선택한 CPU가 인터럽트 CPU를 대신한다.",
    ),
    "limited": BilingualText(
        "The load is limited to {limit} Mbit/s, so that CPU time can be compared.",
        "CPU 시간을 비교할 수 있도록 부하를 {limit} Mbit/s로 제한한다.",
    ),
    "policy": BilingualText(
        "A policy places the processes; the authors changed the kernel.",
        "정책이 프로세스를 배치한다. 논문에서는 커널을 수정했다.",
    ),
}
"""How the experiment deviates from that of the paper."""


M_N = TemplateKind(
    "m-n",
    "⟨m-n⟩: interrupt on CPU m, process on CPU n",
    "How much CPU time does the distance between interrupt and process cost?",
    "Packets are received on CPU m in every run, and the process that consumes them runs on one CPU after another.",
    "Two usable CPUs. With traffic from a peer: interrupts that can be moved, or queues with RPS.",
    _m_n,
    _PAPER,
    deviations=_deviations,
    names_ko=_NAMES_KO,
)

_FEW_TITLES = {
    "": "One interrupt CPU: placement of the processes",
    "-2s": "2S: two interrupt CPUs that share a cache",
    "-2n": "2N: two interrupt CPUs that share no cache",
    "-4s": "4S: four interrupt CPUs that share a cache",
    "-4n": "4N: four interrupt CPUs that share no cache",
}

FEW_INTERRUPT_CORES = tuple(
    TemplateKind(
        f"few-interrupt-cores{ending}",
        title,
        "Does a network-process policy place processes better than the kernel does?",
        "Packets are received on few CPUs. The kernel's placement of processes is compared with the policy's, which "
        "places them on the CPUs that handle their packets or near them.",
        "A policy of the kind network-process, and two usable CPUs for each interrupt CPU.",
        partial(_few_cores, ending=ending),
        paper_of(f"few-interrupt-cores{ending}"),
        partial(_offers_few, ending=ending),
        deviations=_deviations,
        names_ko=_NAMES_KO,
    )
    for ending, title in _FEW_TITLES.items()
)
