"""Declaration of an experiment template: its texts, the paper that it repeats, and how it is made for a node."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import NamedTuple

from coresteer import papers
from coresteer.experiments.schedule import check_spec, estimate_duration_s
from coresteer.experiments.schemas import PublishedRow, Template
from coresteer.experiments.spec import Factor, Kind, Spec, Tune
from coresteer.experiments.templates.parts import NodeFacts, TemplateUnavailable
from coresteer.localization.text import BilingualText
from coresteer_core.experiments.model import Workload, has_client

_WARMUP_S, _MEASURE_S = 1.0, 5.0
"""Short, so that the fifty to seventy runs of a template take minutes."""
_SETTLE_S = 15.0
"""Three evaluation rounds of a policy."""


class Paper(NamedTuple):
    """A published measurement that a template repeats, its texts in English and in Korean.

    machine: the authors', as a sentence. rows: the published values; one without a role
    belongs to no arm of the experiment. Only values in a metric's unit are drawn.
    """

    citation: BilingualText
    machine: BilingualText
    rows: list[PublishedRow]


def paper_of(slug: str) -> Paper:
    """Return the paper with the figures that docs/papers.toml declares for a template."""
    measured = [figure for figure in papers.figures() if slug in figure.templates]
    paper = papers.papers()[measured[0].system]
    return Paper(
        BilingualText(paper.citation, paper.citation_ko),
        BilingualText(paper.machine, paper.machine_ko),
        [published_row(figure) for figure in measured],
    )


def published_row(figure: papers.Figure, *, against: str | None = None) -> PublishedRow:
    """Return a published figure as a row. against: as in PublishedRow; by default a figure with a value is absolute."""
    if against is None:
        against = "" if figure.value is not None else figure.against
    return PublishedRow(
        id=figure.id,
        arm=figure.figure,
        metric=figure.metric,
        text=figure.text,
        value=figure.value,
        direction=figure.direction,
        role=figure.role,
        against=against,
    )


class TemplateKind(NamedTuple):
    """An experiment template: its texts, paper, and the function that makes its experiment for a node.

    question: which it answers. explains: what is compared. needs: of the node or the fleet, as a sentence.
    make: returns the experiment for a node and how it differs from the paper's; raises TemplateUnavailable. applies:
    whether the template is offered for a node at all. predictor: metric that should rank the arms as the primary metric
    does; the report shows how well. unmeasured: metrics that say nothing about an experiment's load, with the reason.
    deviations: those from the paper that follow from the experiment, for forms and reports.
    names_ko: title, factors, units and levels in Korean, by their names in English; {n} is any text.
    """

    slug: str
    title: str
    question: str
    explains: str
    needs: str
    make: "Callable[[NodeFacts, TemplateKind], tuple[Spec, list[str]]]"
    paper: Paper | None = None
    applies: Callable[[NodeFacts], bool] = lambda _: True
    predictor: str = ""
    unmeasured: Callable[[Spec], Mapping[str, str]] = lambda _: {}
    deviations: Callable[[Spec], list[BilingualText]] = lambda _: []
    names_ko: Mapping[str, str] = MappingProxyType({})

    def for_node(self, facts: NodeFacts) -> Template:
        """Return the template with its experiment for a node, or the reason why the node cannot have it."""
        spec: Spec | None = None
        differs: list[str] = []
        unavailable: str | None = None
        try:
            spec, differs = self.make(facts, self)
        except TemplateUnavailable as why:
            unavailable = str(why)
        return Template(
            slug=self.slug,
            title=self.title,
            paper="" if self.paper is None else self.paper.citation.en,
            question=self.question,
            explains=self.explains,
            needs=self.needs,
            spec=spec,
            duration_s=None if spec is None else estimate_duration_s(spec),
            unavailable_because=unavailable,
            differs=differs,
            deviations=[] if spec is None else [each.en for each in self.deviations(spec)],
            published=[] if self.paper is None else self.paper.rows,
        )

    def spec(
        self,
        facts: NodeFacts,
        workload: Workload,
        factors: list[Factor],
        *,
        primary: str,
        measure_s: float = _MEASURE_S,
        tune: Tune | None = None,
    ) -> Spec:
        """Return an experiment with these factors: A/B for two levels, else a sweep. Raises TemplateUnavailable.

        tune: search instead.
        """
        compared: Kind = "ab" if [len(factor.levels) for factor in factors] == [2] else "sweep"
        spec = Spec(
            name=self.title,
            kind=compared if tune is None else "tune",
            tune=tune or Tune(),
            node_id=facts.node_id,
            peer_node_id=facts.peer_id if has_client(workload) else None,
            workload=workload,
            primary=primary,
            factors=factors,
            warmup_s=_WARMUP_S,
            measure_s=measure_s,
            settle_s=_SETTLE_S,
            template=self.slug,
        )
        if (why := check_spec(spec)) is not None:
            raise TemplateUnavailable(why)
        return spec
