"""Templates of shared paper 1: where the interrupt is and where the process. Pure."""

from itertools import groupby

from coresteer.experiments.spec import Factor, Level, Spec
from coresteer.experiments.template_parts import (
    NodeFacts,
    Unavailable,
    interrupts_on,
    machine_differs,
    of_traffic,
    spec_of,
    stream,
)
from coresteer_core.cpuset import format_cpu_list
from coresteer_core.policies.distance import DISTANCE, REMOTE_DISTANCE, SMT_LAST_DISTANCE, Locality, Smt, cpu_distances
from coresteer_core.settings.base import format_cpus

AUTHORS = "The authors had 8 cores of which each two share a cache, Linux 2.6.18 and 2.6.28, and 8 clients of 1 Gbit/s"
_ALL_UP_TO = 8
_A_RING = 2
_CACHE = (DISTANCE[Locality.L2], DISTANCE[Locality.L3])
_WORDS = {
    0: "the same CPU",
    DISTANCE[Locality.L2]: "shares L2",
    DISTANCE[Locality.L3]: "shares L3",
    SMT_LAST_DISTANCE: "the same core",
    DISTANCE[Locality.NUMA]: "shares no cache",
    REMOTE_DISTANCE: "on another NUMA node",
}
FEW = {"": (1, True), "-2s": (2, True), "-2n": (2, False), "-4s": (4, True), "-4n": (4, False)}
"""How many interrupt CPUs, and whether they share a cache, by the end of the slug."""


def m_n(facts: NodeFacts, slug: str, title: str) -> tuple[Spec, list[str]]:
    """The process on every CPU or, of many, on some at each distance. Raises Unavailable.

    The baseline shares a cache with the interrupt's CPU where one does: the authors compare with it.
    """
    home = _home(facts)
    row = cpu_distances(facts.topology, Smt.LAST).rows[home]
    clients = [] if facts.peer_id is not None else _kept_for_clients(facts)
    servers = sorted((cpu for cpu in facts.usable if cpu not in clients), key=lambda cpu: (row[cpu], cpu))
    if len(servers) < 2:
        raise Unavailable(f"{facts.name} has one CPU that may be used; the process can be nowhere else.")
    if len(servers) > _ALL_UP_TO:
        servers = [cpu for _, ring in groupby(servers, lambda cpu: row[cpu]) for cpu in list(ring)[:_A_RING]]
    near = next((cpu for cpu in servers if row[cpu] in _CACHE), home)
    servers.sort(key=lambda cpu: (cpu != near, row[cpu], cpu))
    settings = interrupts_on(facts, [home])
    levels = [
        Level(f"⟨{home}-{cpu}⟩ {_distance(facts, row[cpu])}", settings, workload={"server_cpus": str(cpu)})
        for cpu in servers
    ]
    workload = stream(facts, limited=True, client_cpus=format_cpu_list(clients))
    spec = spec_of(facts, slug, title, workload, [Factor("CPU of the process", levels)], primary="cpu_s_per_gbit")
    differs = [machine_differs(facts, AUTHORS), of_traffic(facts, workload), *_about_interrupts(facts, [home])]
    differs.append(f"It is limited to {workload.limit_mbit_per_s} Mbit/s, so that CPU use can be compared.")
    if all(row[cpu] < DISTANCE[Locality.NUMA] for cpu in servers):
        differs.append(f"All CPUs of {facts.name} share a cache: the far case, where the authors saw most, is missing.")
    elif len(servers) < len(facts.usable) - len(clients):
        differs.append(f"Of {len(facts.usable)} CPUs {len(servers)} are measured, {_A_RING} at each distance at most.")
    return spec, differs


def few_cores(facts: NodeFacts, slug: str, title: str, ending: str) -> tuple[Spec, list[str]]:
    """The kernel alone against the network-process policy, with interrupts on few CPUs. Raises Unavailable."""
    count, near = FEW[ending]
    if facts.network_process is None:
        raise Unavailable(
            "There is no policy of the kind network-process. Make one under Policies, in mode observe or disabled; the "
            "experiment puts it in force for its own runs."
        )
    cpus = _few(facts, count, near=near)
    settings = interrupts_on(facts, cpus)
    name, policy = facts.network_process
    levels = [Level("kernel default", settings), Level("network-process", settings, policy=policy)]
    workload = stream(facts, limited=False)
    factor = Factor("who places the processes", levels)
    spec = spec_of(facts, slug, title, workload, [factor], primary="cpu_s_per_gbit")
    differs = [
        machine_differs(facts, AUTHORS),
        of_traffic(facts, workload),
        *_about_interrupts(facts, cpus),
        f"Coresteer's policy is “{name}”, version {policy.version}; the authors' was in the kernel.",
    ]
    return spec, differs


def has_few(facts: NodeFacts, ending: str) -> bool:
    """Whether a node is one for which such a comparison makes sense: others show none of it.

    One interrupt CPU is for machines and traffic that cannot have several: with RPS on several CPUs, as over a veth
    pair, nobody knows where a process's packets arrive, and the policy leaves it alone.
    """
    count, near = FEW[ending]
    several = facts.wire is not None and len([q for q in facts.wire.queues if q.name.startswith("rx-")]) > 1
    if count == 1:
        return not (several and any(has_few(facts, each) for each in FEW if each))
    try:
        return several and len(_few(facts, count, near=near)) == count
    except Unavailable:
        return False


def _few(facts: NodeFacts, count: int, *, near: bool) -> list[int]:
    """So many interrupt CPUs, on cores of their own."""
    if len(facts.usable) < 2 * count:
        raise Unavailable(f"{facts.name} has {len(facts.usable)} CPUs that may be used; {count} of them are not few.")
    distances = cpu_distances(facts.topology, Smt.LAST).rows
    found = [_home(facts)]
    for cpu in facts.usable:
        apart = [distances[other][cpu] for other in found]
        if len(found) < count and all((each in _CACHE) if near else each >= DISTANCE[Locality.NUMA] for each in apart):
            found.append(cpu)
    if len(found) < count:
        shares = "share a cache" if near else "share none"
        raise Unavailable(f"{facts.name} has no {count} cores that {shares}.")
    return found


def _distance(facts: NodeFacts, distance: int) -> str:
    """In words; where NUMA nodes are not known, none is named."""
    return _WORDS[distance if len(facts.topology.numa_nodes) > 1 else min(distance, DISTANCE[Locality.NUMA])]


def _home(facts: NodeFacts) -> int:
    """The first CPU, of those near the card where the traffic comes by one."""
    if not facts.usable:
        raise Unavailable(f"Which CPUs {facts.name} has is not known.")
    wire, nodes = facts.wire, facts.topology.nodes
    near = [cpu for cpu in facts.usable if wire is not None and nodes.get(cpu) == wire.numa_node]
    return (near or facts.usable)[0]


def _kept_for_clients(facts: NodeFacts) -> list[int]:
    """The last quarter of the cores, so that what sends disturbs no measured CPU; none of fewer than four cores."""
    cores = facts.topology.cores
    whole = list(dict.fromkeys(frozenset(cores[cpu]) & frozenset(facts.usable) for cpu in facts.usable))
    kept = whole[-(len(whole) // 4) :] if len(whole) >= 4 else []
    return sorted(cpu for core in kept for cpu in core)


def _about_interrupts(facts: NodeFacts, cpus: list[int]) -> list[str]:
    where = format_cpus(set(cpus))
    if facts.peer_id is None:
        return [
            f"A veth pair has no interrupt: {where}, to which its packets are passed on (RPS), stands for the "
            "interrupt's CPU.",
            "irqbalance is not compared: it moves interrupts, and there is none here.",
        ]
    wire = facts.wire
    name = wire.name if wire is not None else "the card"
    return [f"The receive queues of {name} are put on {where} in every run; the authors bound one port to each core."]
