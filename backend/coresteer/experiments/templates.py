"""The papers' experiments, made for one node. Pure."""

from collections.abc import Callable
from functools import partial
from typing import TypeAlias

from coresteer.experiments.paper_results import PAPERS
from coresteer.experiments.schemas import AuthorsRow, Template
from coresteer.experiments.spec import Factor, Level, Spec
from coresteer.experiments.template_coalescing import frames, usecs
from coresteer.experiments.template_parts import NodeFacts, Unavailable, machine_differs, spec_of
from coresteer.experiments.template_placement import FEW, few_cores, has_few, m_n
from coresteer_core.experiments.model import Classes

_REQUESTS = 50
_CLASSES_AT_MOST_S = 30.0
_FEW = "few-interrupt-cores"

_Made: TypeAlias = tuple[Spec, list[str]]


def templates(facts: NodeFacts) -> list[Template]:
    """Every template, with its experiment for this node or the reason why it can have none."""
    makers: dict[str, Callable[[NodeFacts, str, str], _Made]] = {
        "m-n": m_n,
        **{f"{_FEW}{ending}": partial(few_cores, ending=ending) for ending in FEW if has_few(facts, ending)},
        "rx-usecs": usecs,
        "rx-frames": frames,
        "service-classes": _classes,
    }
    return [_template(facts, slug, make) for slug, make in makers.items()]


def authors_of(slug: str) -> list[AuthorsRow]:
    """What a template's paper states, to stand beside new figures; nothing for an experiment without a template."""
    paper = PAPERS.get(slug)
    return [] if paper is None else paper.rows


def _template(facts: NodeFacts, slug: str, make: Callable[[NodeFacts, str, str], _Made]) -> Template:
    paper = PAPERS[slug]
    spec: Spec | None = None
    differs: list[str] = []
    unavailable: str | None = None
    try:
        spec, differs = make(facts, slug, paper.title)
    except Unavailable as why:
        unavailable = str(why)
    return Template(
        slug=slug,
        title=paper.title,
        paper=paper.source,
        explains=paper.explains,
        spec=spec,
        unavailable_because=unavailable,
        differs=differs,
        authors=paper.rows,
    )


def _classes(facts: NodeFacts, slug: str, title: str) -> _Made:
    """The authors' five classes, with nice values and with the gate. Raises Unavailable."""
    if len(facts.topology.online()) < 2:
        raise Unavailable(f"{facts.name} has one CPU; the servers need one that the clients do not use.")
    levels = [Level("nice", workload={"method": "nice"}), Level("percentile", workload={"method": "gate"})]
    workload = Classes(method="nice", requests=_REQUESTS)
    factors = [Factor("who goes first", levels)]
    spec = spec_of(facts, slug, title, workload, factors, primary="c5_by_c1", measure_s=_CLASSES_AT_MOST_S)
    requests = 5 * 10 * _REQUESTS
    return spec, [
        machine_differs(facts, "The authors had one echo server and five clients"),
        f"A run is {requests:,} requests, not 50,000, because it is repeated; all servers share one CPU.",
        "The authors' scheduler was in the kernel; here the servers ask at the gate before they work on a request.",
    ]
