"""The report of a coscheduling study: its figures as in the paper, the paper's statements, every cell. Pure."""

from collections.abc import Sequence
from itertools import groupby

import msgspec

from coresteer.experiments.spec import Interval
from coresteer.localization.language import Language
from coresteer.localization.numbers import counted, format_percent, format_range, format_time, percent_sign
from coresteer.localization.text import text, translate
from coresteer.reports.model import Bar, Bars, Block, Facts, Paragraph, Report, Section, Table
from coresteer.simulation.parameters import Pattern, describe
from coresteer.simulation.schemas import Simulation
from coresteer.simulation.statements import VERDICT_SEEDS, Effect, Verdict, verdict_line, verdict_sentence
from coresteer.simulation.study import Cell, Run
from coresteer.simulation.summary import PARTS, RUN_COLUMNS, CellSummary, run_rows, sensitivity_sentence
from coresteer.simulation.swf import trace_sentences

_PATTERNS = {Pattern.NEAREST_NEIGHBOR: "NN", Pattern.ALL_TO_ALL: "AA"}


def simulation_report(found: Simulation, runs: Sequence[Run], language: Language) -> Report:
    """Return the report of a study that has ended."""
    groups = _groups(found)
    sensitivities = [sensitivity_sentence(one, language) for one in found.sensitivities]
    jobs = trace_sentences(found.trace, found.spec.parameters, language)
    sections: list[tuple[str, list[Block]]] = [
        ("statements", [_statements(found, language)]),
        ("response", [_response_bars(group, language) for group in groups]),
        ("system", [_time_bars(group, language) for group in groups]),
        ("cells", [_cells(found, language)] if found.cells else []),
        ("effects", _effects(found, language)),
        ("sensitivity", [Paragraph(sentence) for sentence in sensitivities]),
        ("jobs", [Paragraph(sentence) for sentence in jobs]),
        ("parameters", [_parameters(found, language)]),
        ("limits", _limits(language)),
    ]
    return Report(
        slug=f"simulation-{found.id}",
        language=language,
        origin="simulation",
        title=text(language, "study.title", id=found.id),
        kind=text(language, "study.kind"),
        findings=[
            text(
                language,
                "study.finding",
                statement=_stated(each, language),
                verdict=verdict_line(each, language),
            )
            for each in found.verdicts
        ],
        facts=_facts(found, language),
        sections=[Section(text(language, f"study.section.{name}"), blocks) for name, blocks in sections if blocks],
        columns=[text(language, f"csv.{name}") for name in RUN_COLUMNS],
        records=run_rows(runs),
        source={"simulation": found.model_dump(mode="json"), "runs": msgspec.to_builtins(runs)},
    )


def _facts(found: Simulation, language: Language) -> list[tuple[str, str]]:
    spec = found.spec
    state = text(language, f"state.{found.state}")
    planned = counted(found.runs_planned, "run") if language == "en" else str(found.runs_planned)
    facts = {
        "fact.state": f"{state}. {translate(language, found.sentence)}" if found.sentence else state,
        "fact.runs": text(language, "study.fact.runs", done=found.runs_done, runs=planned),
        "study.fact.seeds": str(spec.seeds),
        "study.fact.schemes": ", ".join(spec.schemes),
        "study.fact.trace": spec.trace if found.trace else text(language, "study.generated"),
        "fact.started": format_time(found.created_at),
        "fact.ended": format_time(found.ended_at),
        "fact.by": found.created_by,
    }
    return [(text(language, key), value) for key, value in facts.items()]


def _columns(language: Language, *names: str) -> list[str]:
    return [text(language, f"study.column.{name}") for name in names]


def _name(cell: Cell) -> str:
    return f"{_PATTERNS[cell.pattern]}, {cell.job_type.upper()}, v {cell.imbalance:g}"


def _stated(found: Verdict, language: Language) -> str:
    return found.statement.text_ko if language == "ko" else found.statement.text


def _statements(found: Simulation, language: Language) -> Table:
    rows = []
    for one in found.verdicts:
        published, here, cells = text(language, "study.no_number"), "–", "–"
        if one.statement.change is not None:
            published = format_percent(one.statement.change, language)
        if one.best is not None:
            here = format_percent(one.best, language)
        if one.is_reproduced is not None:
            cells = text(language, "study.in_cells", holds=one.holds, of=one.of)
        rows.append([_stated(one, language), published, here, cells, verdict_sentence(one, language)])
    return Table("", _columns(language, "statement", "paper", "largest", "cells", "verdict"), rows, numeric=[1, 2, 3])


def _effects(found: Simulation, language: Language) -> list[Block]:
    places = {one.cell: place for place, one in enumerate(found.cells)}
    return [
        Table(
            text(
                language,
                "study.effects",
                metric=text(language, f"study.metric.{one.statement.metric}"),
                statement=_stated(one, language),
            ),
            _columns(language, "cell", "of", "against", "change", "interval"),
            [
                _effect_row(effect, language, by_imbalance=one.statement.by_imbalance)
                for effect in sorted(one.effects, key=lambda effect: places[effect.cell])
            ],
            numeric=[3, 4],
        )
        for one in found.verdicts
        if one.effects
    ]


def _effect_row(effect: Effect, language: Language, *, by_imbalance: bool) -> list[str]:
    against = f"v {effect.against.imbalance:g}" if by_imbalance else effect.against.scheme
    interval = format_range(format_percent(effect.low, language), format_percent(effect.high, language), language)
    return [_name(effect.cell), effect.cell.scheme, against, format_percent(effect.change, language), interval]


def _groups(found: Simulation) -> list[list[CellSummary]]:
    """Return the cells of each chart: of one pattern and one workload."""
    return [list(cells) for _, cells in groupby(found.cells, lambda one: (one.cell.pattern, one.cell.job_type))]


def _title(group: Sequence[CellSummary]) -> str:
    cell = group[0].cell
    return f"{_PATTERNS[cell.pattern]}-{cell.job_type.upper()}"


def _label(one: CellSummary) -> str:
    return f"{one.cell.scheme}, v {one.cell.imbalance:g}"


def _response_bars(group: Sequence[CellSummary], language: Language) -> Bars:
    bars = []
    for one in group:
        value, interval = f"{one.response_s:.3g} s", None
        if one.low_s is not None and one.high_s is not None:
            value += f" ({format_range(f'{one.low_s:.3g}', f'{one.high_s:.3g}', language)})"
            interval = Interval(one.response_s, one.low_s, one.high_s)
        bars.append(Bar(_label(one), [one.response_s], value, interval))
    title = text(language, "study.figure.response", cell=_title(group))
    parts = [text(language, "study.metric.response time")]
    return Bars(title, text(language, "study.figure.response_note"), parts, bars, "s")


def _time_bars(group: Sequence[CellSummary], language: Language) -> Bars:
    bars = []
    for one in group:
        idle, spin = (format_percent(share, language, signed=False) for share in (one.shares.idle, one.shares.spin))
        value = text(language, "study.figure.parts", idle=idle, spin=spin)
        bars.append(Bar(_label(one), [getattr(one.times, part) for part in PARTS], value))
    title = text(language, "study.figure.system", cell=_title(group))
    note, axis = text(language, "study.figure.system_note"), text(language, "study.axis.system")
    return Bars(title, note, [text(language, f"study.part.{part}") for part in PARTS], bars, axis)


def _cells(found: Simulation, language: Language) -> Table:
    rows = []
    for one in found.cells:
        interval = "–" if one.low_s is None else format_range(f"{one.low_s:.3f}", f"{one.high_s:.3f}", language)
        shares = [f"{100 * getattr(one.shares, part):.2f}" for part in PARTS]
        head = [_name(one.cell), one.cell.scheme, str(one.seeds), f"{one.response_s:.3f}", interval]
        rows.append([*head, *shares, f"{one.switches:,.0f}"])
    parts = [text(language, f"study.part.{part}") + percent_sign(language) for part in PARTS]
    columns = _columns(language, "cell", "scheme", "seeds", "response", "interval") + parts
    columns += _columns(language, "switches")
    return Table("", columns, rows, numeric=list(range(2, len(columns))))


def _parameters(found: Simulation, language: Language) -> Facts:
    facts = describe(found.spec.parameters, language)
    return Facts([(each.label, f"{each.text}. {each.help}".rstrip(". ")) for each in facts])


def _limits(language: Language) -> list[Block]:
    return [
        Paragraph(text(language, "study.limit.assumptions")),
        Paragraph(text(language, "study.limit.intervals")),
        Paragraph(text(language, "study.limit.verdicts", least=VERDICT_SEEDS)),
    ]
