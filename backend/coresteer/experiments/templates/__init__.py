"""Experiment templates. A new one is a module beside these with its texts, and its entry in TEMPLATES. Pure."""

from coresteer.experiments.published import published_results
from coresteer.experiments.schemas import PublishedResult, Template
from coresteer.experiments.spec import Analysis, Spec
from coresteer.experiments.templates.coalescing import RX_FRAMES, RX_USECS
from coresteer.experiments.templates.coscheduling import COSCHEDULING
from coresteer.experiments.templates.declaration import Paper, TemplateKind
from coresteer.experiments.templates.numa import CONTENTION_FACTOR, UNAS
from coresteer.experiments.templates.parts import NodeFacts
from coresteer.experiments.templates.placement import FEW_INTERRUPT_CORES, M_N
from coresteer.experiments.templates.rps import RPS
from coresteer.experiments.templates.service_classes import SERVICE_CLASSES
from coresteer.experiments.templates.steering import STEERING
from coresteer.experiments.templates.tune import TUNE
from coresteer.localization.text import BilingualText

__all__ = [
    "TEMPLATES",
    "NodeFacts",
    "Paper",
    "TemplateKind",
    "deviations_of",
    "find_template",
    "published_by",
    "templates",
    "unmeasured_by",
]

TEMPLATES = (
    TUNE,
    M_N,
    *FEW_INTERRUPT_CORES,
    RX_USECS,
    RX_FRAMES,
    RPS,
    STEERING,
    SERVICE_CLASSES,
    UNAS,
    CONTENTION_FACTOR,
    COSCHEDULING,
)
"""In the order in which they are offered."""

_BY_SLUG = {kind.slug: kind for kind in TEMPLATES}


def templates(facts: NodeFacts) -> list[Template]:
    """Return every template for a node, with its experiment or the reason why the node cannot have it."""
    return [kind.for_node(facts) for kind in TEMPLATES if kind.applies(facts)]


def deviations_of(spec: Spec) -> list[BilingualText]:
    """Return how an experiment deviates from the paper of its template; none without a template."""
    kind = find_template(spec.template)
    return [] if kind is None else kind.deviations(spec)


def find_template(slug: str) -> TemplateKind | None:
    """Return the template with this slug, None for an experiment without one."""
    return _BY_SLUG.get(slug)


def unmeasured_by(spec: Spec) -> dict[str, str]:
    """Return the metrics that say nothing about an experiment's load, with the reason; never its primary metric."""
    template = find_template(spec.template)
    found = {} if template is None else template.unmeasured(spec)
    return {metric: reason for metric, reason in found.items() if metric != spec.primary}


def published_by(spec: Spec, analysis: Analysis) -> list[PublishedResult]:
    """Return the published values of an experiment's template next to its own; none without a paper."""
    template = find_template(spec.template)
    if template is None or template.paper is None:
        return []
    return published_results(spec, analysis, template.paper.rows, unmeasured_by(spec))
