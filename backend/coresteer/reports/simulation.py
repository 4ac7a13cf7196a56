"""The report of a coscheduling study: its figures as in the paper, the paper's statements, every cell. Pure."""

from collections.abc import Sequence
from itertools import groupby

import msgspec

from coresteer.experiments.spec import Interval
from coresteer.localization.numbers import counted, format_time
from coresteer.reports.model import Bar, Bars, Block, Facts, Paragraph, Report, Section, Table
from coresteer.simulation.parameters import Pattern
from coresteer.simulation.schemas import Simulation
from coresteer.simulation.statements import VERDICT_SEEDS, Effect, percent, verdict_line
from coresteer.simulation.study import Cell, Run
from coresteer.simulation.summary import PARTS, RUN_COLUMNS, CellSummary, run_rows, sensitivity_sentence

_PATTERNS = {Pattern.NEAREST_NEIGHBOR: "NN", Pattern.ALL_TO_ALL: "AA"}
_LIMITS = (
    "The paper states none of the simulated machine's constants. All of them are assumptions, fixed before the first "
    "study was run and listed below; they were not fitted to the paper's figures.",
    "An interval is a 95 % interval over the seeds: of a mean by Student's t, of an effect by the bootstrap in pairs, "
    "because all schemes of a cell have the same jobs and random numbers for a seed. It says nothing about other "
    "constants; the sensitivity analysis does.",
    "A statement is reproduced where the interval of the effect has its sign in every cell that it is about. It is "
    f"judged only if each of these cells has at least {VERDICT_SEEDS} seeds.",
)


def simulation_report(found: Simulation, runs: Sequence[Run]) -> Report:
    """Return the report of a study that has ended, in English."""
    sections: list[tuple[str, list[Block]]] = [
        ("The paper's statements and this study", [_statements(found)]),
        ("Response time (figures 4a, 4c, 5a, 5c)", [_response_bars(group) for group in _groups(found)]),
        ("System time (figures 4b, 4d, 5b, 5d)", [_time_bars(group) for group in _groups(found)]),
        ("Every cell", [_cells(found)] if found.cells else []),
        ("Every effect that a statement is about", _effects(found)),
        ("Sensitivity to the assumed constants", [Paragraph(sensitivity_sentence(one)) for one in found.sensitivities]),
        ("Jobs", [Paragraph(sentence) for sentence in found.jobs]),
        ("Parameters", [_parameters(found)]),
        ("What the results mean", [Paragraph(sentence) for sentence in _LIMITS]),
    ]
    return Report(
        slug=f"simulation-{found.id}",
        language="en",
        origin="simulation",
        title=f"Coscheduling study {found.id}",
        kind="Simulation of coscheduling with process reordering (PROC)",
        findings=[f"The paper: “{each.statement.text}” {verdict_line(each)}" for each in found.verdicts],
        facts=_facts(found),
        sections=[Section(title, blocks) for title, blocks in sections if blocks],
        columns=RUN_COLUMNS,
        records=run_rows(runs),
        source={"simulation": found.model_dump(mode="json"), "runs": msgspec.to_builtins(runs)},
    )


def _facts(found: Simulation) -> list[tuple[str, str]]:
    spec = found.spec
    return [
        ("State", f"{found.state}. {found.sentence}".strip() if found.sentence else found.state.value),
        ("Runs", f"{found.runs_done} of {found.runs_planned}, {counted(spec.seeds, 'seed')}"),
        ("Schemes", ", ".join(spec.schemes)),
        ("Trace", spec.trace if found.trace else "none: generated jobs"),
        ("Started", format_time(found.created_at)),
        ("Ended", format_time(found.ended_at)),
        ("By", found.created_by),
    ]


def _name(cell: Cell) -> str:
    return f"{_PATTERNS[cell.pattern]}, {cell.job_type.upper()}, v {cell.imbalance:g}"


def _statements(found: Simulation) -> Table:
    rows = []
    for one in found.verdicts:
        paper = "no number" if one.statement.change is None else percent(one.statement.change)
        here = "–" if one.best is None else percent(one.best)
        cells = "–" if one.is_reproduced is None else f"{one.holds} of {one.of}"
        rows.append([one.statement.text, paper, here, cells, one.sentence])
    return Table("", ["statement", "paper", "largest here", "cells", "verdict"], rows, numeric=[1, 2, 3])


def _effects(found: Simulation) -> list[Block]:
    places = {one.cell: place for place, one in enumerate(found.cells)}
    return [
        Table(
            f"Relative change of {one.statement.metric}: {one.statement.text}",
            ["cell", "of", "against", "change", "95 % interval"],
            [
                _effect_row(effect, by_imbalance=one.statement.by_imbalance)
                for effect in sorted(one.effects, key=lambda effect: places[effect.cell])
            ],
            numeric=[3, 4],
        )
        for one in found.verdicts
        if one.effects
    ]


def _effect_row(effect: Effect, *, by_imbalance: bool) -> list[str]:
    against = f"v {effect.against.imbalance:g}" if by_imbalance else effect.against.scheme
    interval = f"{percent(effect.low)} to {percent(effect.high)}"
    return [_name(effect.cell), effect.cell.scheme, against, percent(effect.change), interval]


def _groups(found: Simulation) -> list[list[CellSummary]]:
    """Return the cells of each chart: of one pattern and one workload."""
    return [list(cells) for _, cells in groupby(found.cells, lambda one: (one.cell.pattern, one.cell.job_type))]


def _title(group: Sequence[CellSummary]) -> str:
    cell = group[0].cell
    return f"{_PATTERNS[cell.pattern]}-{cell.job_type.upper()}"


def _label(one: CellSummary) -> str:
    return f"{one.cell.scheme}, v {one.cell.imbalance:g}"


def _response_bars(group: Sequence[CellSummary]) -> Bars:
    bars = []
    for one in group:
        text, interval = f"{one.response_s:.3g} s", None
        if one.low_s is not None and one.high_s is not None:
            text = f"{one.response_s:.3g} s ({one.low_s:.3g} to {one.high_s:.3g})"
            interval = Interval(one.response_s, one.low_s, one.high_s)
        bars.append(Bar(_label(one), [one.response_s], text, interval))
    note = "Mean over the seeds with its 95 % interval. Shorter is better."
    return Bars(f"{_title(group)}: mean response time of the jobs", note, ["response time"], bars, "s")


def _time_bars(group: Sequence[CellSummary]) -> Bars:
    bars = [
        Bar(
            _label(one),
            [getattr(one.times, part) for part in PARTS],
            f"idle {one.shares.idle:.1%}, spin {one.shares.spin:.1%}".replace("%", " %"),
        )
        for one in group
    ]
    note = "Elapsed time × nodes. Overhead: interrupts, load updates and reordering."
    return Bars(f"{_title(group)}: system time", note, list(PARTS), bars, "node-seconds")


def _cells(found: Simulation) -> Table:
    rows = []
    for one in found.cells:
        interval = "–" if one.low_s is None else f"{one.low_s:.3f} to {one.high_s:.3f}"
        shares = [f"{100 * getattr(one.shares, part):.2f}" for part in PARTS]
        head = [_name(one.cell), one.cell.scheme, str(one.seeds), f"{one.response_s:.3f}", interval]
        rows.append([*head, *shares, f"{one.switches:,.0f}"])
    columns = ["cell", "scheme", "seeds", "response s", "95 %", *(f"{part} %" for part in PARTS), "switches"]
    return Table("", columns, rows, numeric=list(range(2, len(columns))))


def _parameters(found: Simulation) -> Facts:
    return Facts([(each.label, f"{each.text}. {each.help}".rstrip(". ")) for each in found.parameters])
