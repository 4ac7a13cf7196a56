"""Template of the paper on service classes: nice values against percentile scheduling. Pure."""

from coresteer.experiments.spec import Factor, Level, Spec
from coresteer.experiments.templates.declaration import TemplateKind, paper_of
from coresteer.experiments.templates.parts import NodeFacts, TemplateUnavailable, machine_sentence
from coresteer_core.experiments.model import Classes

_REQUESTS = 50
_MAX_RUN_S = 30.0
PAPER = paper_of("service-classes")


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
