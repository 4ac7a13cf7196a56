"""The report of an experiment. Pure: the same experiment gives the same report."""

from collections.abc import Sequence
from datetime import UTC, datetime

import msgspec

from coresteer.experiments.paper_results import PAPERS
from coresteer.experiments.schemas import Experiment
from coresteer.experiments.spec import Comparison, Level
from coresteer.reports.charts import authors_chart, cpu_heats, effects_chart, grid_chart, line_charts, runs_chart
from coresteer.reports.experiment_method import limits, machine, method, repeat, runs, settings, spoken
from coresteer.reports.findings import Teller, findings, inside, of_primary
from coresteer.reports.model import Block, Language, Paragraph, Report, Section, Table
from coresteer.reports.numbers import amount, chance, correlation, effect, estimate, moment, percent
from coresteer_core.experiments.model import Command

_ALL_FIGURES_UP_TO = 24
"""Arms; with more, the table of means has the first figures only."""
_COLUMNS = 4
_LONGEST_HEAD = 24
_FIRST = (
    *("throughput_bit_per_s", "requests_per_s", "interrupts_per_s", "packets_per_s", "cpu_busy_percent"),
    *("cpu_s_per_gbit", "rtt_p99_us", "c1_mean_us", "c5_mean_us", "c5_by_c1", "all_mean_us"),
)
COLUMNS = [
    *("experiment", "node", "run", "attempt", "stage", "block", "label", "setting", "started", "duration_s"),
    *("discarded", "figure", "value", "unit"),
]


def of_experiment(experiment: Experiment, language: Language) -> Report:
    """What was found, compared, measured and how, in that order."""
    teller = Teller(experiment, language)
    sections: list[tuple[str, list[Block]]] = [
        ("section.compared", _compared(teller)),
        ("section.primary", _primary(teller)),
        ("section.others", _others(teller)),
        ("section.authors", _authors(teller)),
        ("section.cpus", [*cpu_heats(teller)]),
        ("section.noise", _noise(teller)),
        ("section.method", [Paragraph(text) for text in method(teller)]),
        ("section.machine", [machine(teller)]),
        ("section.settings", settings(teller)),
        ("section.runs", runs(teller)),
        ("section.limits", [Paragraph(text) for text in limits(teller)]),
        ("section.repeat", repeat(teller)),
    ]
    metric = teller.label(experiment.primary)
    kind = teller.say(f"kind.{experiment.kind}")
    return Report(
        slug=f"experiment-{experiment.id}",
        language=language,
        title=experiment.name,
        kind=teller.say("subtitle", kind=kind, node=experiment.node_name),
        findings=findings(experiment, language),
        facts=facts(teller),
        sections=[
            Section(teller.say(key, **({"metric": metric} if key == "section.primary" else {})), blocks)
            for key, blocks in sections
            if blocks
        ],
        columns=COLUMNS,
        records=records(experiment),
        source={"experiment": source(experiment)},
    )


def source(experiment: Experiment) -> dict[str, object]:
    """All of it, but for what changes by itself while nothing happens."""
    return experiment.model_dump(mode="json", exclude={"remaining_s", "place", "now"})


def facts(teller: Teller) -> list[tuple[str, str]]:
    """Where, when and how much, in short."""
    experiment = teller.experiment
    analysis = experiment.analysis
    rows = [
        ("fact.node", experiment.node_name),
        ("fact.workload", _workload(teller)),
        ("fact.primary", teller.label(experiment.primary)),
        ("fact.state", teller.say(f"state.{experiment.state}")),
        ("fact.runs", teller.say("fact.runs_text", kept=analysis.kept, discarded=analysis.discarded)),
        ("fact.started", moment(experiment.started_at)),
        ("fact.ended", moment(experiment.ended_at)),
        ("fact.by", experiment.created_by),
        ("fact.seed", str(experiment.seed)),
        ("fact.number", str(experiment.id)),
    ]
    if experiment.spec.peer_node_id is not None:
        rows.insert(1, ("fact.peer", f"#{experiment.spec.peer_node_id}"))
    return [(teller.say(key), text) for key, text in rows]


def records(experiment: Experiment) -> list[list[str | int | float | None]]:
    """Every figure of every run, also of discarded ones, under COLUMNS."""
    names = dict(zip(experiment.analysis.arms, experiment.arms, strict=False))
    rows: list[list[str | int | float | None]] = []
    for run in sorted(experiment.runs, key=lambda run: (run.planned.number, run.attempt)):
        planned = run.planned
        started = datetime.fromtimestamp(run.started_ms / 1000, UTC).isoformat(timespec="milliseconds")
        head: list[str | int | float | None]
        head = [experiment.id, experiment.node_name, planned.number, run.attempt, planned.stage, planned.block]
        head += [planned.label, names.get(planned.arm, ""), started, run.duration_s, run.discarded]
        for figure in (*experiment.metrics, *sorted(run.figures.keys() - experiment.metrics.keys())):
            if figure in run.figures:
                known = experiment.metrics.get(figure)
                rows.append([*head, figure, run.figures[figure], known.unit if known else ""])
    return rows


def _workload(teller: Teller) -> str:
    workload = teller.experiment.spec.workload
    fields = msgspec.to_builtins(workload)
    kind = fields.pop("type")
    if isinstance(workload, Command):
        return teller.say("workload.command", name=workload.name)
    unlimited = {field.name: field.default for field in msgspec.structs.fields(workload) if "limit" in field.name}
    set_fields = ", ".join(
        f"{name} {value}" for name, value in fields.items() if value not in ("", False) and value != unlimited.get(name)
    )
    named = teller.say(f"workload.{kind}")
    return f"{named} ({set_fields})" if set_fields else named


def _compared(teller: Teller) -> list[Block]:
    experiment = teller.experiment
    if experiment.kind == "aa":
        return [Paragraph(teller.say("arm.as_it_is"))]
    rows = []
    for place, arm in enumerate(experiment.analysis.arms):
        levels = [factor.levels[at] for factor, at in zip(experiment.spec.factors, arm, strict=True)]
        name = teller.name(arm)
        told = "\n".join(text for level in levels for text in does(teller, level)) or teller.say("arm.as_it_is")
        rows.append([teller.say("arm.baseline", arm=name) if place == 0 and arm else name, told])
    return [Table("", [teller.say("column.arm"), teller.say("column.does")], rows)] if rows else []


def does(teller: Teller, level: Level) -> list[str]:
    """What a level does to the node, in short."""
    told = [f"{desired_value.key} = {desired_value.value}" for desired_value in level.settings]
    if level.policy:
        policy = level.policy
        told.append(teller.say("arm.policy", id=policy.policy_id, version=policy.version, mode=policy.mode.value))
    if level.irqbalance:
        told.append(teller.say("arm.irqbalance"))
    if level.workload:
        fields = ", ".join(f"{name} {value}" for name, value in level.workload.items())
        told.append(teller.say("arm.workload", fields=fields))
    return told


def _primary(teller: Teller) -> list[Block]:
    experiment = teller.experiment
    found = of_primary(experiment)
    blocks: list[Block] = []
    if experiment.kind == "sweep":
        blocks += [*effects_chart(teller, found), *grid_chart(teller), *line_charts(teller, [experiment.primary])]
    blocks += runs_chart(teller)
    if found:
        title = teller.say("table.primary", metric=teller.label(experiment.primary))
        blocks.append(_comparison_table(teller, title, found, by_arm=True))
    return blocks


def _comparison_table(teller: Teller, title: str, found: Sequence[Comparison], *, by_arm: bool) -> Table:
    columns = [
        teller.say("column.arm" if by_arm else "column.figure"),
        short(teller.baseline),
        teller.label(found[0].metric) if by_arm else short(teller.name(found[0].arm)),
        *(teller.say(f"column.{name}") for name in ("effect", "p", "visible", "verdict")),
    ]
    rows = []
    for one in found:
        unit = teller.unit(one.metric)
        visible = one.smallest_visible
        rows.append(
            [
                teller.name(one.arm) if by_arm else teller.label(one.metric),
                amount(one.baseline.value if one.baseline else None, unit, teller.language),
                amount(one.level.value if one.level else None, unit, teller.language),
                effect(one.effect, teller.language),
                chance(one.p),
                "–" if visible is None else percent(visible, teller.language, signed=False, up=True),
                teller.verdict(one),
            ]
        )
    return Table(title, columns, rows, numeric=[1, 2, 3, 4, 5])


def short(name: str) -> str:
    """For the head of a column of numbers, which a long name would widen."""
    return name if len(name) <= _LONGEST_HEAD else name[: _LONGEST_HEAD - 1].rstrip() + "…"


def _others(teller: Teller) -> list[Block]:
    experiment = teller.experiment
    others = [metric for metric in _ordered(experiment) if metric != experiment.primary]
    if not others or experiment.kind == "aa" or not experiment.analysis.comparisons:
        return []
    if experiment.kind == "ab":
        by_metric = {one.metric: one for one in experiment.analysis.comparisons}
        found = [by_metric[metric] for metric in (experiment.primary, *others) if metric in by_metric]
        title = teller.say("table.effects", arm=teller.name(found[0].arm), baseline=teller.baseline)
        table = _comparison_table(teller, title, found, by_arm=False)
        return [*effects_chart(teller, found), Paragraph(teller.say("table.others_note")), table]
    return [*line_charts(teller, others[:3]), *_means(teller, others), *_trends(teller)]


def _ordered(experiment: Experiment) -> list[str]:
    """The figures that most want to see, then the others."""
    metrics = experiment.analysis.metrics
    return [
        *(metric for metric in _FIRST if metric in metrics),
        *(metric for metric in metrics if metric not in _FIRST),
    ]


def _means(teller: Teller, others: Sequence[str]) -> list[Block]:
    analysis = teller.experiment.analysis
    verdicts = {(one.metric, one.arm): one.verdict for one in analysis.comparisons}
    marks = {"higher": " ▲", "lower": " ▼"}
    shown = others if len(analysis.arms) <= _ALL_FIGURES_UP_TO else others[:_COLUMNS]
    blocks: list[Block] = [Paragraph(teller.say("table.means_note"))]
    for start in range(0, len(shown), _COLUMNS):
        part = shown[start : start + _COLUMNS]
        rows = []
        for place, arm in enumerate(analysis.arms):
            cells = []
            for metric in part:
                mean = analysis.means.get(metric, [None] * len(analysis.arms))[place]
                text = amount(mean.value if mean else None, teller.unit(metric), teller.language)
                cells.append(text + marks.get(verdicts.get((metric, arm), ""), ""))
            rows.append([teller.name(arm), *cells])
        columns = [teller.say("column.arm"), *(teller.label(metric) for metric in part)]
        blocks.append(Table(teller.say("table.means"), columns, rows, numeric=list(range(1, len(columns)))))
    return blocks


def _trends(teller: Teller) -> list[Block]:
    experiment = teller.experiment
    rows = [
        [
            teller.label(trend.metric),
            experiment.spec.factors[trend.factor].name,
            correlation(trend.rho),
            chance(trend.p),
        ]
        for trend in experiment.analysis.trends
    ]
    columns = [teller.say(f"column.{name}") for name in ("figure", "factor", "trend", "p")]
    return [Table(teller.say("table.trends"), columns, rows, numeric=[2, 3])] if rows else []


def _authors(teller: Teller) -> list[Block]:
    experiment = teller.experiment
    paper = PAPERS.get(experiment.spec.template)
    if paper is None:
        return []
    analysis = experiment.analysis
    places = {teller.name(arm): place for place, arm in enumerate(analysis.arms)}
    rows = []
    for row in paper.rows:
        means = analysis.means.get(row.metric)
        mean = means[places[row.arm]] if means and row.arm in places else None
        here = estimate(mean, teller.unit(row.metric), teller.language)
        rows.append([row.arm, teller.label(row.metric), row.text, here])
    columns = [teller.say(f"column.{name}") for name in ("arm", "figure", "authors", "here")]
    return [
        Paragraph(teller.say("authors.source", title=paper.title, paper=paper.source)),
        Paragraph(_both_machines(teller)),
        *authors_chart(teller, paper.rows),
        Table(teller.say("table.authors"), columns, rows, numeric=[3]),
        Paragraph(teller.say("authors.note")),
    ]


def _both_machines(teller: Teller) -> str:
    slug, machine = teller.experiment.spec.template, teller.experiment.machine
    family = "rx" if slug.startswith("rx-") else "service" if slug.startswith("service-") else "m"
    seen = {name: spoken(teller, machine.get(name)) or "?" for name in ("cpus", "kernel")}
    here = teller.say("authors.here", **seen, workload=inside(_workload(teller)))
    return f"{teller.say(f'authors.{family}')} {here}"


def _noise(teller: Teller) -> list[Block]:
    analysis = teller.experiment.analysis
    found = [analysis.noise[metric] for metric in _ordered(teller.experiment) if metric in analysis.noise]
    if not found:
        return []
    rows = [
        [
            teller.label(one.metric),
            amount(one.baseline.value if one.baseline else None, teller.unit(one.metric), teller.language),
            effect(one.effect, teller.language),
            chance(one.p),
        ]
        for one in found
    ]
    columns = [teller.say("column.figure"), short(teller.baseline), teller.say("column.effect"), teller.say("column.p")]
    table = Table(teller.say("table.noise"), columns, rows, numeric=[1, 2, 3])
    chart = effects_chart(teller, found) if teller.experiment.kind == "aa" else []
    return [Paragraph(teller.say("table.noise_note")), *chart, table]
