"""Template of the paper on coscheduling by reordering: parallel jobs without and with periodic boosts. Pure."""

from coresteer.experiments.spec import Factor, Level, Spec
from coresteer.experiments.templates.declaration import TemplateKind, paper_of
from coresteer.experiments.templates.parts import NodeFacts, TemplateUnavailable, machine_sentence
from coresteer.localization.text import BilingualText
from coresteer_core.cpuset import format_cpu_list
from coresteer_core.experiments.parallel_jobs import COMMAND, Bsp

_PAPER = paper_of("coscheduling")
_PROCESSES, _MPL, _LOOPS = 2, 3, 250
"""Half a minute of work: a policy finds the processes only 5 s after their start."""
_MAX_RUN_S = 300.0
KERNEL, BOOST, REORDERED = "kernel", "boost", "reordered"
"""Roles of the arms."""


def _make(facts: NodeFacts, kind: TemplateKind) -> tuple[Spec, list[str]]:
    """Return kernel default, periodic boost, and periodic boost with reordering. Raises TemplateUnavailable."""
    machines = 1 if facts.peer_id is None else 2
    cpus = facts.usable_cpus[: _PROCESSES // machines]
    if len(cpus) < _PROCESSES // machines:
        raise TemplateUnavailable(f"{facts.name} has one usable CPU; the two processes of a job need one each.")
    if facts.coscheduling is None or facts.periodic_boost is None:
        what = "with" if facts.coscheduling is None else "without"
        raise TemplateUnavailable(
            f"There is no policy of the kind coscheduling {what} reordering that matches the command {COMMAND}. Create "
            "one under Policies, in mode observe or disabled; the experiment puts it in force during its runs."
        )
    (boost_name, boost), (name, reordered) = facts.periodic_boost, facts.coscheduling
    levels = [
        Level("kernel default", role=KERNEL),
        Level("PB", policy=boost, role=BOOST),
        Level("PB+RO", policy=reordered, role=REORDERED),
    ]
    workload = Bsp(
        jobs=_MPL,
        mpl=_MPL,
        processes=_PROCESSES,
        machines=machines,
        loops=_LOOPS,
        wait="busy-wait",
        cpus=format_cpu_list(cpus) if machines == 1 else "",
    )
    spec = kind.spec(facts, workload, [Factor("scheduling", levels)], primary="job_response_s", measure_s=_MAX_RUN_S)
    where = f"CPUs {' and '.join(map(str, cpus))}" if machines == 1 else "a CPU of this node and one of its peer"
    return spec, [
        machine_sentence(facts, _PAPER.machine.en),
        f"The jobs share {where}.",
        f"PB is the policy “{boost_name}”, version {boost.version}; PB+RO is “{name}”, version {reordered.version}.",
    ]


def _deviations(spec: Spec) -> list[BilingualText]:
    if not isinstance(load := spec.workload, Bsp):
        return []
    return [
        _DEVIATIONS["load"].filled(jobs=load.jobs, processes=load.processes),
        _DEVIATIONS["boost"].filled(),
    ]


_NAMES_KO = {
    "Coscheduling: kernel, periodic boost, or boost with reordering": (
        "협력 스케줄링: 커널, 주기적 우선순위 상승, 또는 재정렬을 더한 상승"
    ),
    "scheduling": "스케줄링",
}
"""Names of the experiment, its factors, units and levels, in Korean."""
_DEVIATIONS = {
    "load": BilingualText(
        "{jobs} jobs of {processes} processes share the same CPUs, instead of 200 jobs on a cluster; I/O is a sleep, "
        "as in the authors' simulator.",
        "클러스터의 작업 200개 대신 프로세스가 {processes}개인 작업 {jobs}개가 같은 CPU를 함께 쓴다. I/O는 논문의 "
        "시뮬레이터와 같이 대기로 처리한다.",
    ),
    "boost": BilingualText(
        "A boost is a nice value for a period, not a priority of Solaris.",
        "우선순위 상승은 한 주기 동안의 nice 값이며 Solaris의 우선순위가 아니다.",
    ),
}
"""How the experiment deviates from that of the paper."""


COSCHEDULING = TemplateKind(
    "coscheduling",
    "Coscheduling: kernel, periodic boost, or boost with reordering",
    "How much sooner do parallel jobs end when processes with messages are boosted?",
    "Three parallel jobs share the same CPUs, and their processes wait for each other's messages. The kernel "
    "alone schedules them, processes with messages are boosted, or the one whose peer runs soonest is boosted "
    "first.",
    "Two usable CPUs, and two policies of the kind coscheduling: with and without reordering.",
    _make,
    _PAPER,
    deviations=_deviations,
    names_ko=_NAMES_KO,
)
