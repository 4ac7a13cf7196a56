"""Template of the paper on service classes: nice values against percentile scheduling. Pure."""

from coresteer.experiments.spec import Factor, Level, Spec
from coresteer.experiments.templates.declaration import TemplateKind, paper_of
from coresteer.experiments.templates.parts import NodeFacts, TemplateUnavailable, machine_sentence
from coresteer.localization.text import BilingualText
from coresteer_core.experiments.model import Classes
from coresteer_core.policies.service_class.gate import MAX_ADMISSIONS_OF_OTHERS

_REQUESTS = 50
_PAPER_REQUESTS = 50_000
PAPER = paper_of("service-classes")
_NAMES_KO = {
    "Service classes: nice values or percentile scheduling": "서비스 클래스: nice 값 또는 백분위 스케줄링",
    "scheduling": "스케줄링",
    "percentile": "백분위",
}
"""Names of the experiment, its factors, units and levels, in Korean."""
_DEVIATIONS = {
    "requests": BilingualText(
        "A run is {requests} requests, as in the paper; all servers share one CPU.",
        "한 실행은 논문과 같이 요청 {requests}건이며, 모든 서버가 CPU 하나를 함께 쓴다.",
    ),
    "fewer_requests": BilingualText(
        "A run is {requests} requests, not 50,000, because it is repeated; all servers share one CPU.",
        "실행을 반복하므로 한 실행은 요청 50,000건이 아니라 {requests}건이며, 모든 서버가 CPU 하나를 함께 쓴다.",
    ),
    "gate": BilingualText(
        "The authors' scheduler was in the kernel; here the servers request admission from the gate, which never "
        "interrupts a request.",
        "논문의 스케줄러는 커널 안에 있었다. 여기서는 서버가 게이트에 진입을 요청하며, 게이트는 진행 중인 요청을 "
        "중단시키지 않는다.",
    ),
    "window": BilingualText(
        "N and S count the requests of the last {window} s and the pending ones; in the paper they count all requests "
        "since the start.",
        "N과 S는 최근 {window}초의 요청과 대기 중인 요청을 센다. 논문에서는 시작 이후의 모든 요청을 센다.",
    ),
    "admissions": BilingualText(
        "A waiting class is served next after {most} admissions of others, whatever its F; the paper has no such "
        "bound.",
        "대기 중인 클래스는 다른 클래스가 {most}회 진입하면 F와 관계없이 다음 차례가 된다. 논문에는 이러한 한계가 "
        "없다.",
    ),
}
"""How the experiment deviates from that of the paper."""


def _make(facts: NodeFacts, kind: TemplateKind) -> tuple[Spec, list[str]]:
    """Return the authors' five classes, with nice values and with the gate. Raises TemplateUnavailable on one CPU."""
    if len(facts.topology.online()) < 2:
        raise TemplateUnavailable(f"{facts.name} has one CPU; the servers need one that the clients do not use.")
    levels = [
        Level("nice", workload={"method": "nice"}, role="nice"),
        Level("percentile", workload={"method": "gate"}, role="percentile"),
    ]
    workload = Classes(method="nice", requests=_REQUESTS)
    factors = [Factor("scheduling", levels)]
    spec = kind.spec(facts, workload, factors, primary="c5_by_c1", measure_s=workload.limit_s)
    return spec, [machine_sentence(facts, PAPER.machine.en)]


def _deviations(spec: Spec) -> list[BilingualText]:
    workload = spec.workload
    if not isinstance(workload, Classes):
        return []
    which = "requests" if workload.total_requests == _PAPER_REQUESTS else "fewer_requests"
    return [
        _DEVIATIONS[which].filled(requests=f"{workload.total_requests:,}"),
        _DEVIATIONS["gate"].filled(),
        _DEVIATIONS["window"].filled(window=f"{workload.window_s:g}"),
        _DEVIATIONS["admissions"].filled(most=MAX_ADMISSIONS_OF_OTHERS),
    ]


SERVICE_CLASSES = TemplateKind(
    "service-classes",
    "Service classes: nice values or percentile scheduling",
    "How different are the response times of five classes with nice values and with percentile scheduling?",
    "Five classes with different targets send requests to a server that forks for each request. Precedence is "
    "given by nice values or by how far each class is from its target.",
    "Two CPUs: one for the servers, which the clients do not use.",
    _make,
    PAPER,
    deviations=_deviations,
    names_ko=_NAMES_KO,
)
