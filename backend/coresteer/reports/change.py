"""The report of a change's effect on real traffic. Pure: the same change and minutes give the same report."""

from collections.abc import Sequence
from datetime import UTC, datetime

from coresteer.changes.schemas import Change
from coresteer.experiments import findings
from coresteer.experiments.findings import Tone
from coresteer.experiments.spec import Comparison, Interval
from coresteer.localization.language import Language
from coresteer.localization.numbers import (
    format_amount,
    format_effect,
    format_p_value,
    format_percent,
    format_time,
    unit_text,
)
from coresteer.localization.text import metric_label, text, translate
from coresteer.reports.charts import cpu_heat, cpu_means
from coresteer.reports.minutes import MIN_MINUTES, OBSERVED_METRICS, Minute, compare
from coresteer.reports.model import Block, Dot, Dots, Heat, Line, Lines, Origin, Paragraph, Report, Section, Table
from coresteer.telemetry.repository import to_unix_ms

WINDOW_MIN = 60
_IN_FINDINGS = ("cpu_s_per_gbit", "interrupts_per_s", "rtt_p99_us")
"""Metrics of the findings."""
_DRAWN = ("rx_bit_per_s", "interrupts_per_s", "cpu_busy_percent", "cpu_s_per_gbit", "rtt_p99_us")
_LOAD = "rx_bit_per_s"
_HEATS = ("busy", "softirq")
_CSV_COLUMNS = ("change", "node", "period", "minute", "figure", "name", "value", "unit")


def change_report(
    change: Change,
    before: Sequence[Minute],
    after: Sequence[Minute],
    language: Language,
    *,
    origin: Origin = "measured",
) -> Report:
    """Return the report of a change: the differences after it, and the limits of an observation.

    origin: of the node's values.
    """
    present = [name for name in OBSERVED_METRICS if any(name in m.figures for m in (*before, *after))]
    found = {name: compare(name, before, after) for name in present}
    limits = _paragraphs(language, ("limit.one_node", "change.limit.once", "change.limit.others"))
    if found:
        limits.append(Paragraph(text(language, "change.limit.many", count=len(found))))
    if language != "en":
        limits.append(Paragraph(text(language, "limit.untranslated")))
    sections: list[tuple[str, list[Block]]] = [
        ("change.section.did", _did(change, language)),
        ("change.section.effect", _effect(change, before, after, found, language)),
        ("section.cpus", [*_heats(before, after, language)]),
        ("change.section.life", _life(change, language)),
        ("section.method", _paragraphs(language, ("change.method.window", "change.method.interval"))),
        ("section.limits", limits),
    ]
    periods = {"before": before, "after": after}
    return Report(
        slug=f"change-{change.id}",
        language=language,
        origin=origin,
        title=text(language, "change.title", node=change.node_name),
        kind=text(language, "change.kind"),
        findings=_findings(change, before, after, found, language),
        facts=_facts(change, before, after, language),
        sections=[Section(text(language, key), blocks) for key, blocks in sections if blocks],
        columns=[text(language, f"csv.{name}") for name in _CSV_COLUMNS],
        records=_records(change, periods, language),
        source={
            "change": change.model_dump(mode="json", exclude={"remaining_s"}),
            "minutes": {name: [minute._asdict() for minute in period] for name, period in periods.items()},
        },
    )


def _paragraphs(language: Language, keys: Sequence[str]) -> list[Block]:
    return [Paragraph(text(language, key, most=WINDOW_MIN)) for key in keys]


def _findings(
    change: Change, before: Sequence[Minute], after: Sequence[Minute], found: dict[str, Comparison], language: Language
) -> list[str]:
    if change.applied_at is None:
        return [text(language, "change.never")]
    sentences = [sentence for name in _IN_FINDINGS if (sentence := _sentence(found.get(name), language))]
    if not sentences and all(each.verdict == "too-few" for each in found.values()):
        return [text(language, "change.too_few", before=len(before), after=len(after), least=MIN_MINUTES)]
    load = found.get(_LOAD)
    if load and load.effect and load.verdict in ("higher", "lower"):
        names = {
            "metric": findings.label_in_sentence(metric_label(language, _LOAD)),
            "change": format_percent(load.effect.value, language),
        }
        sentences.append(text(language, "change.load", **names, **findings.interval_ends(language, load.effect)))
    return [*sentences, text(language, "change.observed")]


def _sentence(found: Comparison | None, language: Language) -> str | None:
    if found is None:
        return None
    name = metric_label(language, found.metric)
    if found.effect is None:
        keys = {"higher": "change.higher_than_0", "lower": "change.lower_to_0"}
        return text(language, keys[found.verdict], metric=name) if found.verdict in keys else None
    ends = findings.interval_ends(language, found.effect)
    if found.verdict == "no-difference":
        bound = findings.largest_difference(language, found.effect)
        return text(language, "change.none", metric=findings.label_in_sentence(name), bound=bound, **ends)
    size = format_percent(abs(found.effect.value), language, signed=False)
    sentences = text(language, f"change.{found.verdict}", metric=name, change=size, **ends)
    worth = findings.tone(OBSERVED_METRICS[found.metric], found.verdict)
    return f"{sentences} {text(language, f'found.{worth}')}" if worth in ("better", "worse") else sentences


def _facts(
    change: Change, before: Sequence[Minute], after: Sequence[Minute], language: Language
) -> list[tuple[str, str]]:
    undone = change.undone
    policy = "" if change.policy_id is None else f" ({text(language, 'change.fact.policy', id=change.policy_id)})"
    rows = [
        ("fact.node", change.node_name),
        ("change.fact.by", change.created_by + policy),
        ("change.fact.reason", change.reason),
        ("change.fact.state", text(language, f"change.state.{change.status}")),
        ("change.fact.applied", format_time(change.applied_at)),
        ("change.fact.ended", format_time(change.ended_at)),
        ("change.fact.undone", "" if undone is None else f"{format_time(undone.at)}, {undone.by}"),
        ("change.fact.window", text(language, "change.window", before=len(before), after=len(after))),
        ("change.fact.number", change.id),
    ]
    return [(text(language, key), value) for key, value in rows if value]


def _did(change: Change, language: Language) -> list[Block]:
    actions = change.plan.actions
    rows = [[each.key, each.was, each.becomes, translate(language, each.reason)] for each in actions]
    columns = [text(language, f"column.{name}") for name in ("key", "was", "becomes", "reason")]
    sentence = change.sentence if language == "en" else text(language, "change.did", count=len(rows))
    return [Paragraph(sentence), Table("", columns, rows)]


def _effect(
    change: Change, before: Sequence[Minute], after: Sequence[Minute], found: dict[str, Comparison], language: Language
) -> list[Block]:
    if not found or change.applied_at is None:
        return []
    blocks: list[Block] = []
    known = [one for one in found.values() if one.effect]
    if known:
        rows = [
            Dot(metric_label(language, one.metric), format_effect(one.effect, language), one.effect, _tone(one))
            for one in known
        ]
        axis = text(language, "axis.effect", baseline=text(language, "legend.before"))
        note = text(language, "figure.effects_note_plain")
        blocks.append(Dots(text(language, "change.effects"), note, rows, axis, None))
    columns = [text(language, f"column.{name}") for name in ("figure", "before", "after", "effect", "p", "verdict")]
    rows_of_texts = []
    for one in found.values():
        unit = OBSERVED_METRICS[one.metric].unit
        levels = [format_amount(level.value if level else None, unit, language) for level in (one.baseline, one.level)]
        is_known = one.verdict != "too-few"
        finding = findings.verdict(language, _tone(one), one.verdict) if is_known else text(language, "change.few")
        rows_of_texts.append(
            [
                metric_label(language, one.metric),
                *levels,
                format_effect(one.effect, language),
                format_p_value(one.p),
                finding,
            ]
        )
    blocks.append(Table(text(language, "change.table"), columns, rows_of_texts, numeric=[1, 2, 3, 4]))
    applied_ms = to_unix_ms(change.applied_at)
    blocks += [_lines(name, applied_ms, before, after, language) for name in _DRAWN if name in found]
    return blocks


def _tone(found: Comparison) -> Tone:
    return findings.tone(OBSERVED_METRICS[found.metric], found.verdict)


def _lines(
    name: str, applied_ms: float, before: Sequence[Minute], after: Sequence[Minute], language: Language
) -> Lines:
    def line(key: str, minutes: Sequence[Minute]) -> Line:
        points = [
            (round((m.start_ms - applied_ms) / 60_000, 2), Interval(*[m.figures[name]] * 3))
            for m in minutes
            if name in m.figures
        ]
        return Line(text(language, key), points)

    lines = [one for one in (line("legend.before", before), line("legend.after", after)) if one.points]
    title, axis = text(language, "change.figure", metric=metric_label(language, name)), text(language, "axis.minutes")
    mark = (0.0, text(language, "legend.change"))
    return Lines(title, "", lines, axis, OBSERVED_METRICS[name].unit, mark)


def _heats(before: Sequence[Minute], after: Sequence[Minute], language: Language) -> list[Heat]:
    heats = []
    for kind in _HEATS:
        rows = [
            (text(language, key), cpu_means([minute.cpus[kind] for minute in minutes]))
            for key, minutes in (("legend.before", before), ("legend.after", after))
        ]
        if any(value is not None for _, values in rows for value in values):
            title = text(language, "figure.cpus", kind=text(language, f"cpu.{kind}"))
            heats.append(cpu_heat(title, text(language, "change.cpus_note"), rows, text(language, "axis.cpu")))
    return heats


def _life(change: Change, language: Language) -> list[Block]:
    rows = [
        [format_time(step.at), text(language, f"change.state.{step.state}"), translate(language, step.sentence)]
        for step in sorted(change.steps, key=lambda step: step.at)
    ]
    columns = [text(language, key) for key in ("change.column.when", "change.fact.state", "change.column.what")]
    return [Table("", columns, rows)] if rows else []


def _records(
    change: Change, periods: dict[str, Sequence[Minute]], language: Language
) -> list[list[str | int | float | None]]:
    named = {
        figure: (metric_label(language, figure), unit_text(language, metric.unit))
        for figure, metric in OBSERVED_METRICS.items()
    }
    rows: list[list[str | int | float | None]] = []
    for period, minutes in periods.items():
        for minute in minutes:
            at = datetime.fromtimestamp(minute.start_ms / 1000, UTC).isoformat(timespec="seconds")
            head = [change.id, change.node_name, text(language, f"legend.{period}"), at]
            rows += [
                [*head, figure, label, minute.figures[figure], unit]
                for figure, (label, unit) in named.items()
                if figure in minute.figures
            ]
    return rows
