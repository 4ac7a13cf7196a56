"""Template of the paper on service classes: nice values against percentile scheduling. Pure."""

from coresteer.experiments.spec import Factor, Level, Spec
from coresteer.experiments.templates.declaration import Paper, TemplateKind, published_row
from coresteer.experiments.templates.parts import NodeFacts, TemplateUnavailable, machine_sentence
from coresteer.localization.text import BilingualText
from coresteer_core.experiments.model import Classes
from coresteer_core.metrics import CLASS_NAMES

_REQUESTS = 50
_MAX_RUN_S = 30.0
_METRICS = (*(f"{name}_mean_us" for name in CLASS_NAMES), "all_mean_us", "c5_by_c1")
_PUBLISHED = {
    "nice": (3780, 5004, 5791, 6061, 7724, 5672, 2.04),
    "percentile": (3177, 4401, 5507, 7197, 10125, 6081, 3.19),
}
"""Values of _METRICS by arm."""
PAPER = Paper(
    "Kim, Song, Lee: percentile scheduling for differentiated services",
    BilingualText(
        "The authors used one echo server that forks a task for each request, and five clients with ten threads each.",
        "논문의 환경: 요청마다 태스크를 만드는 에코 서버 하나와, 스레드가 각각 10개인 클라이언트 5대.",
    ),
    [
        published_row(arm, metric, f"{value / 1000:.3f} ms" if metric.endswith("_us") else f"{value:.2f}", value)
        for arm, values in _PUBLISHED.items()
        for metric, value in zip(_METRICS, values, strict=True)
    ],
)


def _make(facts: NodeFacts, kind: TemplateKind) -> tuple[Spec, list[str]]:
    """Return the authors' five classes, with nice values and with the gate. Raises TemplateUnavailable on one CPU."""
    if len(facts.topology.online()) < 2:
        raise TemplateUnavailable(f"{facts.name} has one CPU; the servers need one that the clients do not use.")
    levels = [Level("nice", workload={"method": "nice"}), Level("percentile", workload={"method": "gate"})]
    workload = Classes(method="nice", requests=_REQUESTS)
    factors = [Factor("scheduling", levels)]
    spec = kind.spec(facts, workload, factors, primary="c5_by_c1", measure_s=_MAX_RUN_S)
    requests = 5 * 10 * _REQUESTS
    return spec, [
        machine_sentence(facts, PAPER.machine.en),
        f"A run is {requests:,} requests, not 50,000, because it is repeated; all servers share one CPU.",
        "The authors' scheduler was in the kernel; here the servers request admission from the gate.",
    ]


SERVICE_CLASSES = TemplateKind(
    "service-classes",
    "Service classes: nice values or percentile scheduling",
    "Five classes with different targets send requests to a server that forks for each request. Precedence is given by "
    "nice values or by how far each class is from its target: how different are the response times of the classes?",
    _make,
    PAPER,
)
