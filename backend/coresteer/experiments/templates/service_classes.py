"""Template of the paper on service classes: nice values against percentile scheduling. Pure."""

from coresteer.experiments.spec import Factor, Level, Spec
from coresteer.experiments.templates.declaration import TemplateKind, paper_of
from coresteer.experiments.templates.parts import NodeFacts, TemplateUnavailable, machine_sentence
from coresteer.localization.text import BilingualText, bilingual
from coresteer_core.experiments.model import Classes
from coresteer_core.policies.service_class.gate import MAX_ADMISSIONS_OF_OTHERS

_REQUESTS = 50
_PAPER_REQUESTS = 50_000
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
    spec = kind.spec(facts, workload, factors, primary="c5_by_c1", measure_s=workload.limit_s)
    return spec, [machine_sentence(facts, PAPER.machine.en)]


def _deviations(spec: Spec) -> list[BilingualText]:
    workload = spec.workload
    if not isinstance(workload, Classes):
        return []
    which = "requests" if workload.total_requests == _PAPER_REQUESTS else "fewer_requests"
    return [
        bilingual(f"deviation.classes.{which}", requests=f"{workload.total_requests:,}"),
        bilingual("deviation.classes.gate"),
        bilingual("deviation.classes.window", window=f"{workload.window_s:g}"),
        bilingual("deviation.classes.admissions", most=MAX_ADMISSIONS_OF_OTHERS),
    ]


SERVICE_CLASSES = TemplateKind(
    "service-classes",
    "Service classes: nice values or percentile scheduling",
    "Five classes with different targets send requests to a server that forks for each request. Precedence is given by "
    "nice values or by how far each class is from its target: how different are the response times of the classes?",
    _make,
    PAPER,
    deviations=_deviations,
)
