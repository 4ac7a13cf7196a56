"""The report of an experiment. Pure: the same experiment gives the same report."""

import re
from collections.abc import Sequence
from datetime import UTC, datetime

from coresteer import papers
from coresteer.experiments.arm_config import NETDEV_PLACEHOLDER, all_levels
from coresteer.experiments.findings import Phrases, findings, label_in_sentence, primary_comparisons
from coresteer.experiments.schemas import Experiment, PublishedResult
from coresteer.experiments.spec import Comparison, Level
from coresteer.experiments.templates import Paper, TemplateKind, deviations_of, find_template, published_by
from coresteer.localization.language import Language
from coresteer.localization.numbers import (
    format_amount,
    format_correlation,
    format_effect,
    format_estimate,
    format_p_value,
    format_percent,
    format_range,
    format_time,
    unit_text,
)
from coresteer.localization.text import text, translate
from coresteer.reports.charts import cpu_heats, effects_chart, grid_chart, line_charts, published_chart, runs_chart
from coresteer.reports.experiment_method import (
    format_fact,
    limit_sentences,
    machine_table,
    method_sentences,
    repeat_section,
    runs_section,
    settings_section,
)
from coresteer.reports.model import Block, Bullets, Origin, Paragraph, Report, Section, Table
from coresteer.reports.predictor import predictor_blocks
from coresteer.reports.tune import tune_blocks
from coresteer.reports.workload_text import fields_text, workload_text

_MAX_ARMS_WITH_ALL_METRICS = 24
"""Number of arms up to which the table of means has all metrics."""
_COLUMNS = 4
_MAX_HEAD_LENGTH = 24
_FIRST = (
    *("throughput_bit_per_s", "requests_per_s", "interrupts_per_s", "packets_per_s", "cpu_busy_percent"),
    *("cpu_s_per_gbit", "gbit_per_cpu_s", "rtt_p99_us", "c1_mean_us", "c5_mean_us", "c5_by_c1", "all_mean_us"),
)
_CSV_COLUMNS = (
    *("experiment", "node", "run", "attempt", "stage", "block", "label", "setting", "started", "duration_s"),
    *("discarded", "figure", "name", "value", "unit"),
)


def experiment_report(experiment: Experiment, language: Language) -> Report:
    """Return the report of an experiment: findings, comparison, measurements, method, in that order."""
    phrases = Phrases(experiment, language)
    sections: list[tuple[str, list[Block]]] = [
        ("section.compared", _compared(phrases)),
        ("section.primary", _primary(phrases)),
        ("section.others", _others(phrases)),
        ("section.predictor", predictor_blocks(phrases)),
        ("section.published", _published(phrases)),
        ("section.cpus", [*cpu_heats(phrases)]),
        ("section.noise", _noise(phrases)),
        ("section.method", [Paragraph(text) for text in method_sentences(phrases)]),
        ("section.machine", [machine_table(phrases)]),
        ("section.settings", settings_section(phrases)),
        ("section.runs", runs_section(phrases)),
        ("section.limits", [Paragraph(text) for text in limit_sentences(phrases)]),
        ("section.repeat", repeat_section(phrases)),
    ]
    metric = phrases.label(experiment.primary)
    kind = phrases.text(f"kind.{experiment.kind}")
    return Report(
        slug=f"experiment-{experiment.id}",
        language=language,
        origin=origin_of(experiment),
        title=phrases.translated(experiment.name),
        kind=phrases.text("subtitle", kind=kind, node=experiment.node_name),
        findings=findings(experiment, language),
        facts=experiment_facts(phrases),
        sections=[
            Section(phrases.text(key, **({"metric": metric} if key == "section.primary" else {})), blocks)
            for key, blocks in sections
            if blocks
        ],
        columns=csv_columns(language),
        records=csv_rows(phrases),
        source={"experiment": json_source(experiment)},
    )


def origin_of(experiment: Experiment) -> Origin:
    """Return where the values of an experiment come from: from the least real one of its machines."""
    machines = [experiment.machine, experiment.machine.get("peer") or {}]
    if any(machine.get("simulated") for machine in machines):
        return "simulated-node"
    return "emulated-machine" if any(machine.get("emulated") for machine in machines) else "measured"


def json_source(experiment: Experiment) -> dict[str, object]:
    """Return the experiment as JSON for its report, without fields that change while it is queued."""
    return experiment.model_dump(mode="json", exclude={"remaining_s", "queue_position", "activity"})


def experiment_facts(phrases: Phrases) -> list[tuple[str, str]]:
    """Return node, time and size of the experiment as names and texts for the head of its report."""
    experiment = phrases.experiment
    analysis = experiment.analysis
    rows = [
        ("fact.node", experiment.node_name),
        ("fact.workload", workload_text(phrases)),
        ("fact.primary", phrases.label(experiment.primary)),
        ("fact.state", phrases.text(f"state.{experiment.state}")),
        ("fact.runs", phrases.text("fact.runs_text", kept=analysis.counted, discarded=analysis.discarded)),
        ("fact.started", format_time(experiment.started_at)),
        ("fact.ended", format_time(experiment.ended_at)),
        ("fact.by", experiment.created_by),
        ("fact.seed", str(experiment.seed)),
        ("fact.number", str(experiment.id)),
    ]
    if experiment.spec.peer_node_id is not None:
        peer = (experiment.machine.get("peer") or {}).get("name")
        rows.insert(1, ("fact.peer", peer or f"#{experiment.spec.peer_node_id}"))
    return [(phrases.text(key), text) for key, text in rows]


def csv_columns(language: Language) -> list[str]:
    """Return the headings of the CSV file of experiments."""
    return [text(language, f"csv.{name}") for name in _CSV_COLUMNS]


def csv_rows(phrases: Phrases) -> list[list[str | int | float | None]]:
    """Return every metric of every run for the CSV file, including discarded runs, in rows of csv_columns()."""
    experiment, language = phrases.experiment, phrases.language
    rows: list[list[str | int | float | None]] = []
    for run in sorted(experiment.runs, key=lambda run: (run.planned.number, run.attempt)):
        planned = run.planned
        started = datetime.fromtimestamp(run.started_ms / 1000, UTC).isoformat(timespec="milliseconds")
        stage = planned.stage if language == "en" else phrases.text(f"stage.{planned.stage}")
        discarded = None if run.discarded is None else translate(language, run.discarded)
        head: list[str | int | float | None]
        head = [experiment.id, experiment.node_name, planned.number, run.attempt, stage, planned.block]
        head += [planned.label, phrases.name(planned.arm), started, run.duration_s, discarded]
        rows += [
            [*head, figure, phrases.label(figure), run.figures[figure], unit_text(language, phrases.unit(figure))]
            for figure in (*experiment.metrics, *sorted(run.figures.keys() - experiment.metrics.keys()))
            if figure in run.figures
        ]
    return rows


def _compared(phrases: Phrases) -> list[Block]:
    experiment = phrases.experiment
    if experiment.kind == "aa":
        return [Paragraph(phrases.text("arm.as_it_is"))]
    rows = []
    for position, arm in enumerate(experiment.analysis.arms):
        levels = [factor.levels[at] for factor, at in zip(experiment.spec.factors, arm, strict=True)]
        name = phrases.name(arm)
        effects = [text for level in levels for text in level_effects(phrases, level)]
        description = "\n".join(effects) or phrases.text("arm.as_it_is")
        rows.append([phrases.text("arm.baseline", arm=name) if position == 0 and arm else name, description])
    return [Table("", [phrases.text("column.arm"), phrases.text("column.does")], rows)] if rows else []


def level_effects(phrases: Phrases, level: Level) -> list[str]:
    """Return what a level changes on the node, one sentence for each change."""
    netdev = netdev_of(phrases)
    effects = [
        f"{desired_value.key.replace(NETDEV_PLACEHOLDER, netdev)} = {desired_value.value}"
        for desired_value in level.settings
    ]
    if level.policy:
        policy, mode = level.policy, phrases.translated(level.policy.mode.value)
        effects.append(phrases.text("arm.policy", id=policy.policy_id, version=policy.version, mode=mode))
    if level.irqbalance:
        only = phrases.text("arm.irqbalance_cpus", cpus=level.irqbalance_cpus) if level.irqbalance_cpus else ""
        effects.append(only or phrases.text("arm.irqbalance"))
    if level.workload:
        fields = fields_text(phrases, phrases.experiment.spec.workload, level.workload)
        effects.append(phrases.text("arm.workload", fields=fields))
    return effects


def netdev_of(phrases: Phrases) -> str:
    """Return the name of the netdev by which the load arrived; a description where it is not recorded."""
    experiment = phrases.experiment
    if netdev := experiment.machine.get("netdev"):
        return str(netdev)
    keys = {desired.key for _, level in all_levels(experiment.spec) for desired in level.settings}
    for pattern in (re.escape(key).replace(re.escape(NETDEV_PLACEHOLDER), "([^/]+)") for key in sorted(keys)):
        for key in experiment.settings.before:
            if (found := re.fullmatch(pattern, key)) and found.groups():
                return found[1]
    return phrases.text("netdev.veth" if experiment.spec.peer_node_id is None else "netdev.unknown")


def _primary(phrases: Phrases) -> list[Block]:
    experiment = phrases.experiment
    found = primary_comparisons(experiment)
    blocks: list[Block] = []
    if experiment.kind == "sweep":
        blocks += [*effects_chart(phrases, found), *grid_chart(phrases), *line_charts(phrases, [experiment.primary])]
    blocks += [*tune_blocks(phrases), *runs_chart(phrases)]
    if found:
        title = phrases.text("table.primary", metric=phrases.label(experiment.primary))
        blocks.append(_comparison_table(phrases, title, found, by_arm=True))
    return blocks


def _comparison_table(phrases: Phrases, title: str, found: Sequence[Comparison], *, by_arm: bool) -> Table:
    columns = [
        phrases.text("column.arm" if by_arm else "column.figure"),
        shorten_heading(phrases.baseline),
        phrases.label(found[0].metric) if by_arm else shorten_heading(phrases.name(found[0].arm)),
        *(phrases.text(f"column.{name}") for name in ("effect", "p", "visible", "verdict")),
    ]
    rows = []
    for one in found:
        unit = phrases.unit(one.metric)
        visible = one.minimum_detectable
        rows.append(
            [
                phrases.name(one.arm) if by_arm else phrases.label(one.metric),
                format_amount(one.baseline.value if one.baseline else None, unit, phrases.language),
                format_amount(one.level.value if one.level else None, unit, phrases.language),
                format_effect(one.effect, phrases.language),
                format_p_value(one.p),
                "–" if visible is None else format_percent(visible, phrases.language, signed=False, up=True),
                phrases.verdict(one),
            ]
        )
    return Table(title, columns, rows, numeric=[1, 2, 3, 4, 5])


def shorten_heading(name: str) -> str:
    """Shorten a name for the head of a column of numbers, which a long name would widen."""
    return name if len(name) <= _MAX_HEAD_LENGTH else name[: _MAX_HEAD_LENGTH - 1].rstrip() + "…"


def _others(phrases: Phrases) -> list[Block]:
    experiment = phrases.experiment
    others = [metric for metric in _ordered(experiment) if metric != experiment.primary]
    if not others or experiment.kind == "aa" or not experiment.analysis.comparisons:
        return []
    if experiment.kind == "ab":
        by_metric = {one.metric: one for one in experiment.analysis.comparisons}
        found = [by_metric[metric] for metric in (experiment.primary, *others) if metric in by_metric]
        title = phrases.text("table.effects", arm=phrases.name(found[0].arm), baseline=phrases.baseline)
        table = _comparison_table(phrases, title, found, by_arm=False)
        return [*effects_chart(phrases, found), Paragraph(phrases.text("table.others_note")), table]
    return [*line_charts(phrases, others[:3]), *_means(phrases, others), *_trends(phrases)]


def _ordered(experiment: Experiment) -> list[str]:
    """Return the metrics, the most important ones first."""
    metrics = experiment.analysis.metrics
    return [
        *(metric for metric in _FIRST if metric in metrics),
        *(metric for metric in metrics if metric not in _FIRST),
    ]


def _means(phrases: Phrases, others: Sequence[str]) -> list[Block]:
    analysis = phrases.experiment.analysis
    verdicts = {(one.metric, one.arm): one.verdict for one in analysis.comparisons}
    marks = {"higher": " ▲", "lower": " ▼"}
    shown = others if len(analysis.arms) <= _MAX_ARMS_WITH_ALL_METRICS else others[:_COLUMNS]
    blocks: list[Block] = [Paragraph(phrases.text("table.means_note"))]
    for start in range(0, len(shown), _COLUMNS):
        part = shown[start : start + _COLUMNS]
        rows = []
        for position, arm in enumerate(analysis.arms):
            cells = []
            for metric in part:
                mean = analysis.means.get(metric, [None] * len(analysis.arms))[position]
                text = format_amount(mean.value if mean else None, phrases.unit(metric), phrases.language)
                cells.append(text + marks.get(verdicts.get((metric, arm), ""), ""))
            rows.append([phrases.name(arm), *cells])
        columns = [phrases.text("column.arm"), *(phrases.label(metric) for metric in part)]
        blocks.append(Table(phrases.text("table.means"), columns, rows, numeric=list(range(1, len(columns)))))
    return blocks


def _trends(phrases: Phrases) -> list[Block]:
    experiment = phrases.experiment
    rows = [
        [
            phrases.label(trend.metric),
            phrases.translated(experiment.spec.factors[trend.factor].name),
            format_correlation(trend.rho),
            format_p_value(trend.p),
        ]
        for trend in experiment.analysis.trends
    ]
    columns = [phrases.text(f"column.{name}") for name in ("figure", "factor", "trend", "p")]
    return [Table(phrases.text("table.trends"), columns, rows, numeric=[2, 3])] if rows else []


def _published(phrases: Phrases) -> list[Block]:
    experiment = phrases.experiment
    template = find_template(experiment.spec.template)
    if template is None or template.paper is None:
        return []
    paper = template.paper
    published = published_by(experiment.spec, experiment.analysis)
    rows = [_published_row(phrases, row) for row in published]
    columns = [phrases.text(f"column.{name}") for name in ("arm", "figure", "published", "here")]
    return [
        Paragraph(_source(phrases, template, paper)),
        Paragraph(_both_machines(phrases, paper)),
        *_deviations(phrases),
        *published_chart(phrases, published),
        Table(phrases.text("table.published"), columns, rows, numeric=[3]),
        Paragraph(phrases.text("published.note")),
    ]


def _source(phrases: Phrases, template: TemplateKind, paper: Paper) -> str:
    names = {"title": phrases.translated(template.title), "paper": getattr(paper.citation, phrases.language)}
    return phrases.text("published.source", **names)


def _published_row(phrases: Phrases, row: PublishedResult) -> list[str]:
    """Return a published value as a row: of what, the metric, what the paper states, and this node's value."""
    printed = papers.figure(row.id)
    of, stated = (printed.figure, printed.text) if phrases.language == "en" else (printed.figure_ko, printed.text_ko)
    of, stated = of or phrases.translated(printed.figure), stated or printed.text
    return [of, phrases.label(row.metric), stated, _here(phrases, row)]


def _deviations(phrases: Phrases) -> list[Block]:
    sentences = [getattr(each, phrases.language) for each in deviations_of(phrases.experiment.spec)]
    return [Bullets(phrases.text("published.deviations"), sentences)] if sentences else []


def _here(phrases: Phrases, row: PublishedResult) -> str:
    """Return this node's value for a published one: an effect, an estimate, or the range of several arms."""
    if row.unmeasured_because is not None:
        return translate(phrases.language, row.unmeasured_because)
    if row.against:
        return format_effect(row.effect, phrases.language)
    means = phrases.experiment.analysis.means.get(row.metric, [])
    found = [mean for at in row.arms if at < len(means) and (mean := means[at]) is not None]
    unit, language = phrases.unit(row.metric), phrases.language
    if len(found) < 2:
        return format_estimate(found[0] if found else None, unit, language)
    low, high = (format_amount(each(mean.value for mean in found), unit, language) for each in (min, max))
    return format_range(low, high, language)


def _both_machines(phrases: Phrases, paper: Paper) -> str:
    machine = phrases.experiment.machine
    known = {name: format_fact(phrases, machine.get(name)) or "?" for name in ("cpus", "kernel")}
    here = phrases.text("published.here", **known, workload=label_in_sentence(workload_text(phrases)))
    return f"{getattr(paper.machine, phrases.language)} {here}"


def _noise(phrases: Phrases) -> list[Block]:
    analysis = phrases.experiment.analysis
    found = [analysis.noise[metric] for metric in _ordered(phrases.experiment) if metric in analysis.noise]
    if not found:
        return []
    rows = [
        [
            phrases.label(one.metric),
            format_amount(one.baseline.value if one.baseline else None, phrases.unit(one.metric), phrases.language),
            format_effect(one.effect, phrases.language),
            format_p_value(one.p),
        ]
        for one in found
    ]
    columns = [
        phrases.text("column.figure"),
        shorten_heading(phrases.baseline),
        phrases.text("column.effect"),
        phrases.text("column.p"),
    ]
    table = Table(phrases.text("table.noise"), columns, rows, numeric=[1, 2, 3])
    chart = effects_chart(phrases, found) if phrases.experiment.kind == "aa" else []
    return [Paragraph(phrases.text("table.noise_note")), *chart, table]
