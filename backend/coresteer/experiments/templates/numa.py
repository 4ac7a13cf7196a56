"""Templates of the paper on NUMA scheduling: four ways to place processes, and the contention factor. Pure."""

from coresteer.experiments.arm_config import all_levels
from coresteer.experiments.spec import Factor, Level, Spec
from coresteer.experiments.templates.declaration import TemplateKind, paper_of
from coresteer.experiments.templates.parts import NodeFacts, TemplateUnavailable, machine_sentence
from coresteer.localization.text import BilingualText
from coresteer_core.changes.plan import DesiredValue
from coresteer_core.cpuset import format_cpu_list, parse_cpu_list
from coresteer_core.experiments.model import Memory
from coresteer_core.node.topology import NumaNode

_UNAS, _CONTENTION_FACTOR = paper_of("unas"), paper_of("contention-factor")
_BALANCING = "kernel/numa_balancing"
_MOST_PROCESSES = 64
_MOST_MIB, _LEAST_MIB = 256, 32
_MEMORY_SHARE = 0.5
"""Share of the lowest NUMA node's memory that all processes together may use."""
_WORK_S, _CONTENTION_WORK_S = 60.0, 10.0
_MAX_RUN_S = 300.0
_CO_RUNNERS = (0, 1, 3, 7, 15, 31, 63)
_FEWEST_CORES = 3
KERNEL, AUTOMATIC, PINS, POLICY = "kernel", "automatic", "pins", "policy"
"""Roles of the arms."""


def _unas(facts: NodeFacts, kind: TemplateKind) -> tuple[Spec, list[str]]:
    """Return the four ways to place processes. Raises TemplateUnavailable."""
    nodes = _nodes(facts)
    if _BALANCING not in facts.inventory.settings:
        raise TemplateUnavailable(f"The kernel of {facts.name} has no automatic NUMA balancing to compare with.")
    if facts.numa is None:
        raise TemplateUnavailable(
            "There is no policy of the kind numa. Create one under Policies, in mode observe or disabled; the "
            "experiment puts it in force during its runs."
        )
    half = max(1, min(_MOST_PROCESSES, len(facts.usable_cpus) // 2))
    memory, computing = _cpus(facts, nodes[: len(nodes) // 2]), _cpus(facts, nodes[len(nodes) // 2 :])
    pins: dict[str, str | int | bool] = {
        "memory_cpus": memory,
        "compute_cpus": computing,
        "first_touch": "own",
    }
    name, policy = facts.numa
    off, on = ([DesiredValue(_BALANCING, value)] for value in ("0", "1"))
    levels = [
        Level("kernel alone", off, role=KERNEL),
        Level("automatic balancing", on, role=AUTOMATIC),
        Level("static pins", off, workload=pins, role=PINS),
        Level("numa policy", off, policy=policy, role=POLICY),
    ]
    workload = Memory(compute_processes=half, memory_processes=half, mib=_mib(nodes[0], half), work_s=_WORK_S)
    spec = kind.spec(facts, workload, [Factor("placement", levels)], primary="makespan_s", measure_s=_MAX_RUN_S)
    return spec, [
        machine_sentence(facts, _UNAS.machine.en),
        f"The policy is “{name}”, version {policy.version}.",
    ]


def _unas_deviations(spec: Spec) -> list[BilingualText]:
    if not isinstance(load := spec.workload, Memory):
        return []
    sizes = {"compute": load.compute_processes, "memory": load.memory_processes, "mib": load.mib}
    found = [_UNAS_DEVIATIONS["load"].filled(**sizes)]
    for _, level in all_levels(spec):
        if {"memory_cpus", "compute_cpus"} <= level.workload.keys():
            cpus = {"memory": level.workload["memory_cpus"], "compute": level.workload["compute_cpus"]}
            found.append(_UNAS_DEVIATIONS["pins"].filled(**cpus))
    return [*found, _UNAS_DEVIATIONS["policy"].filled()]


def _contention(facts: NodeFacts, kind: TemplateKind) -> tuple[Spec, list[str]]:
    """Return a sweep of processes that stream from one NUMA node's memory. Raises TemplateUnavailable."""
    node = _nodes(facts)[0]
    cores = _first_threads(facts, parse_cpu_list(node.cpus))
    if len(cores) < _FEWEST_CORES:
        raise TemplateUnavailable(
            f"NUMA node {node.id} of {facts.name} has {len(cores)} usable cores; a sweep of co-runners needs "
            f"{_FEWEST_CORES}."
        )
    most = min(len(cores), _MOST_PROCESSES) - 1
    counts = [*(count for count in _CO_RUNNERS if count < most), most]
    levels = [
        Level(
            f"{count} co-runner{'' if count == 1 else 's'}",
            workload={"memory_processes": count + 1},
            value=float(count),
            role=f"co-runners/{count}",
        )
        for count in counts
    ]
    workload = Memory(
        compute_processes=0,
        memory_processes=1,
        mib=_mib(node, most + 1),
        work_s=_CONTENTION_WORK_S,
        memory_cpus=format_cpu_list(cores),
    )
    spec = kind.spec(facts, workload, [Factor("co-runners", levels)], primary="memory_run_s", measure_s=_MAX_RUN_S)
    return spec, [machine_sentence(facts, _UNAS.machine.en)]


def _contention_deviations(spec: Spec) -> list[BilingualText]:
    if not isinstance(load := spec.workload, Memory):
        return []
    most = max([int(level.workload.get("memory_processes", 1)) for _, level in all_levels(spec)], default=1)
    return [_CONTENTION_DEVIATIONS["load"].filled(most=most, mib=load.mib)]


def _nodes(facts: NodeFacts) -> list[NumaNode]:
    """Return the NUMA nodes that have usable CPUs, ascending. Raises TemplateUnavailable if there is only one."""
    usable = set(facts.usable_cpus)
    nodes = sorted(
        (each for each in facts.topology.numa_nodes if parse_cpu_list(each.cpus) & usable), key=lambda n: n.id
    )
    if len(nodes) < 2:
        raise TemplateUnavailable(
            f"{facts.name} has a single NUMA node: all of its memory is equally near to every CPU, so there is nothing "
            "to place."
        )
    return nodes


def _cpus(facts: NodeFacts, nodes: list[NumaNode]) -> str:
    usable = set(facts.usable_cpus)
    return format_cpu_list(cpu for node in nodes for cpu in parse_cpu_list(node.cpus) if cpu in usable)


def _first_threads(facts: NodeFacts, cpus: frozenset[int]) -> list[int]:
    """Return one usable CPU of each core."""
    cores = facts.topology.cores
    return sorted({min(cores[cpu] & set(facts.usable_cpus)) for cpu in facts.usable_cpus if cpu in cpus})


def _mib(node: NumaNode, processes: int) -> int:
    """Return the memory of a process. Raises TemplateUnavailable if the NUMA node's is too small."""
    fits = _MOST_MIB if node.memory_bytes is None else int(node.memory_bytes * _MEMORY_SHARE / processes) >> 20
    if fits < _LEAST_MIB:
        raise TemplateUnavailable(
            f"Half the memory of NUMA node {node.id} is {fits} MiB for each of {processes} processes; {_LEAST_MIB} MiB "
            "are needed, so that caches do not hold them."
        )
    return min(_MOST_MIB, fits)


_NAMES_KO = {
    "NUMA: kernel, automatic balancing, static pins or policy": "NUMA: 커널, 자동 균형 조정, 고정 배치 또는 정책",
    "NUMA: contention on one node's memory": "NUMA: 한 노드의 메모리 경합",
    "placement": "배치",
    "co-runners": "동시 실행 프로세스 수",
    "kernel alone": "커널만",
    "automatic balancing": "자동 균형 조정",
    "static pins": "고정 배치",
    "numa policy": "numa 정책",
    "{n} co-runner": "동시 실행 {n}개",
    "{n} co-runners": "동시 실행 {n}개",
}
"""Names of the experiment, its factors, units and levels, in Korean."""
_UNAS_DEVIATIONS = {
    "load": BilingualText(
        "{compute} processes compute and {memory} use {mib} MiB each, instead of PARSEC. All memory is first touched "
        "on the lowest NUMA node, an adverse start; with static pins it is touched by the pinned process.",
        "PARSEC 대신 프로세스 {compute}개가 연산하고 {memory}개가 각각 {mib} MiB의 메모리를 쓴다. 모든 메모리는 가장 "
        "낮은 NUMA 노드에서 처음 접근되는 불리한 조건에서 시작하며, 고정 배치에서는 배치된 프로세스가 접근한다.",
    ),
    "pins": BilingualText(
        "Static pins: memory processes on CPUs {memory}, the others on CPUs {compute}.",
        "고정 배치: 메모리 프로세스는 CPU {memory}, 나머지는 CPU {compute}.",
    ),
    "policy": BilingualText(
        "The policy moves two processes each 5 s, so with many a run should have more work than about a minute.",
        "정책은 5초마다 프로세스를 둘씩 옮기므로 프로세스가 많으면 작업량이 약 1분보다 많아야 한다.",
    ),
}
"""How the experiment deviates from that of the paper."""
_CONTENTION_DEVIATIONS = {
    "load": BilingualText(
        "One process to {most} use {mib} MiB each in the memory of one NUMA node, each on a core of its own there. The "
        "difference from the first arm is the slow-down by contention, minus 1.",
        "프로세스 1~{most}개가 한 NUMA 노드의 메모리를 각각 {mib} MiB씩, 그 노드의 서로 다른 코어에서 쓴다. 첫 "
        "조건과의 차이는 경합으로 느려진 배율에서 1을 뺀 값이다.",
    ),
}


UNAS = TemplateKind(
    "unas",
    "NUMA: kernel, automatic balancing, static pins or policy",
    "How long do processes take where the kernel, automatic NUMA balancing, static pins or the policy place them?",
    "Half of the processes compute, half use memory that is on one NUMA node at first.",
    "Two NUMA nodes, a kernel with automatic NUMA balancing, and a policy of the kind numa.",
    _unas,
    _UNAS,
    deviations=_unas_deviations,
    names_ko=_NAMES_KO,
)

CONTENTION_FACTOR = TemplateKind(
    "contention-factor",
    "NUMA: contention on one node's memory",
    "How much slower do processes become that share one NUMA node's memory?",
    "More and more processes copy memory of the same NUMA node. The policy's contention factor should rank the "
    "loads in the same order.",
    "Two NUMA nodes, with several cores on one of them.",
    _contention,
    _CONTENTION_FACTOR,
    predictor="contention_factor",
    deviations=_contention_deviations,
    names_ko=_NAMES_KO,
)
