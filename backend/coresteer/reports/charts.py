"""Charts of an experiment's report, as data. Pure."""

from collections.abc import Sequence

from coresteer.experiments.arm_config import levels_of
from coresteer.experiments.findings import Phrases, primary_comparisons
from coresteer.experiments.schemas import PublishedResult
from coresteer.experiments.spec import Arm, Comparison, Factor, Interval
from coresteer.localization.numbers import axis_scale, format_amount, format_effect, format_number
from coresteer.reports.model import Dot, Dots, Heat, Line, Lines, RunPoint, Runs

_MAX_DOTS = 48
_MAX_LINES = 8
_CPU_KINDS = ("busy", "softirq", "irq")
_MAX_TEXTS = 64
_MAX_CPU_ROWS = 24


def effects_chart(phrases: Phrases, found: Sequence[Comparison]) -> list[Dots]:
    """Return a chart of effects with their intervals: of one metric by arm, or of one arm by metric."""
    if not found or len(found) > _MAX_DOTS or all(one.effect is None for one in found):
        return []
    by_arm = len({one.metric for one in found}) == 1
    is_itself = phrases.experiment.kind == "aa"
    noise = phrases.experiment.analysis.noise.get(found[0].metric) if by_arm and not is_itself else None
    rows = [
        Dot(
            phrases.name(one.arm) if by_arm and not is_itself else phrases.label(one.metric),
            format_effect(one.effect, phrases.language),
            one.effect,
            phrases.tone(one),
        )
        for one in found
    ]
    band = noise.effect if noise else None
    note = phrases.text("figure.effects_note" if band else "figure.effects_note_plain")
    title = phrases.text("figure.effects", baseline=phrases.baseline)
    return [Dots(title, note, rows, phrases.text("axis.effect", baseline=phrases.baseline), band)]


def runs_chart(phrases: Phrases) -> list[Runs]:
    """Return a chart of the primary metric of every run in chronological order."""
    experiment = phrases.experiment
    positions = {arm: place for place, arm in enumerate(experiment.analysis.arms)}
    in_order = sorted(experiment.runs, key=lambda run: (run.started_ms, run.planned.number, run.attempt))
    points = [
        RunPoint(at, run.figures[phrases.primary], positions.get(run.planned.arm, 0), run.discarded is not None)
        for at, run in enumerate(in_order, 1)
        if phrases.primary in run.figures
    ]
    if not points:
        return []
    names = [phrases.name(arm) for arm in experiment.analysis.arms]
    title = phrases.text("figure.runs", metric=phrases.label(phrases.primary))
    captions = (phrases.text("axis.run"), phrases.text("legend.discarded"))
    return [Runs(title, phrases.text("figure.runs_note"), names, points, phrases.unit(phrases.primary), *captions)]


def line_charts(phrases: Phrases, metrics: Sequence[str]) -> list[Lines]:
    """Return charts of metrics over the numeric factor, with a line for each level of the other one."""
    factors = phrases.experiment.spec.factors
    numeric = [place for place, factor in enumerate(factors) if all(level.value is not None for level in factor.levels)]
    if not numeric:
        return []
    over = max(numeric, key=lambda place: len(factors[place].levels))
    if any(len(factor.levels) > _MAX_LINES for place, factor in enumerate(factors) if place != over):
        return []
    charts = []
    for metric in metrics:
        lines = _lines(phrases, metric, over)
        if any(len(line.points) > 1 for line in lines):
            factor = phrases.translated(factors[over].name)
            title = phrases.text("figure.lines", metric=phrases.label(metric), factor=factor)
            axis = _axis(phrases, factors[over])
            note, unit = phrases.text("figure.lines_note"), phrases.unit(metric)
            charts.append(Lines(title, note, lines, axis, unit))
    return charts


def _axis(phrases: Phrases, factor: Factor) -> str:
    return ", ".join(phrases.translated(part) for part in (factor.name, factor.unit) if part)


def _lines(phrases: Phrases, metric: str, over: int) -> list[Line]:
    spec, analysis = phrases.experiment.spec, phrases.experiment.analysis
    points: dict[str, list[tuple[float, Interval]]] = {}
    for arm, mean in zip(analysis.arms, analysis.means.get(metric, []), strict=False):
        value = spec.factors[over].levels[arm[over]].value
        others = [phrases.translated(level.name) for place, level in enumerate(levels_of(spec, arm)) if place != over]
        line = points.setdefault(", ".join(others) or phrases.label(metric), [])
        if mean is not None and value is not None:
            line.append((value, mean))
    return [Line(name, sorted(line, key=lambda point: point[0])) for name, line in points.items()]


def grid_chart(phrases: Phrases) -> list[Heat]:
    """Return a heat map of the primary metric of a sweep over two factors, none for other experiments."""
    spec, analysis = phrases.experiment.spec, phrases.experiment.analysis
    means = analysis.means.get(phrases.primary)
    if len(spec.factors) != 2 or not means or not any(means):
        return []
    rows, columns = spec.factors
    by_arm = dict(zip(analysis.arms, means, strict=True))
    cells = [[by_arm.get((r, c)) for c in range(len(columns.levels))] for r in range(len(rows.levels))]
    known = [mean.value for line in cells for mean in line if mean]
    unit, language = phrases.unit(phrases.primary), phrases.language
    factor, _ = axis_scale(max(map(abs, known)), unit)
    row, column = phrases.translated(rows.name), phrases.translated(columns.name)
    names = {"metric": phrases.label(phrases.primary), "rows": row, "columns": column}
    return [
        Heat(
            phrases.text("figure.grid", **names),
            phrases.text("figure.grid_note", rows=row, columns=column),
            [phrases.translated(level.name) for level in rows.levels],
            [phrases.translated(level.name) for level in columns.levels],
            column,
            [[mean.value if mean else None for mean in line] for line in cells],
            [[format_number(mean.value / factor) if mean else "" for mean in line] for line in cells],
            min(known),
            max(known),
            (format_amount(min(known), unit, language), format_amount(max(known), unit, language)),
        )
    ]


def cpu_heats(phrases: Phrases) -> list[Heat]:
    """Return heat maps of each CPU's utilization, means over runs, a row for each arm."""
    experiment = phrases.experiment
    kept = [run for run in experiment.runs if run.discarded is None and run.planned.stage == "main"]
    kept = kept or [run for run in experiment.runs if run.discarded is None]
    arms = _most_different(phrases)
    is_part = len(arms) < len(experiment.analysis.arms)
    note = phrases.text("figure.cpus_part" if is_part else "figure.cpus_note", count=len(arms))
    heats = []
    for kind in _CPU_KINDS:
        rows = [
            (phrases.name(arm), cpu_means([run.cpus.get(kind, []) for run in kept if run.planned.arm == arm]))
            for arm in arms
        ]
        rows = [row for row in rows if any(value is not None for value in row[1])]
        if any(value for _, values in rows for value in values):
            named = phrases.text(f"cpu.{kind}")
            title = phrases.text("figure.cpus", kind=named)
            heats.append(cpu_heat(title, note, rows, phrases.text("axis.cpu")))
    return heats


def _most_different(phrases: Phrases) -> list[Arm]:
    """Return all arms, or the baseline and those that differ most from it in the primary metric, in order."""
    arms = phrases.experiment.analysis.arms
    effects = {one.arm: abs(one.effect.value) if one.effect else 0.0 for one in primary_comparisons(phrases.experiment)}
    chosen = {*arms[:1], *sorted(arms[1:], key=lambda arm: -effects.get(arm, 0.0))[: _MAX_CPU_ROWS - 1]}
    return [arm for arm in arms if arm in chosen]


def cpu_heat(title: str, note: str, rows: Sequence[tuple[str, list[float | None]]], axis: str) -> Heat:
    """Return a heat map of percentages by CPU, with numbers in the cells where there are few."""
    count = max((len(values) for _, values in rows), default=0)
    values = [row + [None] * (count - len(row)) for _, row in rows]
    texts = [[format_number(round(v, 1)) if v is not None else "" for v in row] for row in values]
    shown = texts if count * len(rows) <= _MAX_TEXTS else []
    names = [name for name, _ in rows]
    return Heat(
        title, note, names, [str(cpu) for cpu in range(count)], axis, values, shown, 0.0, 100.0, ("0 %", "100 %")
    )


def cpu_means(runs: Sequence[Sequence[float | None]]) -> list[float | None]:
    """Return the mean of each CPU over the runs that have a value; None where none has."""
    means: list[float | None] = []
    for cpu in range(max(map(len, runs), default=0)):
        known = [value for run in runs if cpu < len(run) and (value := run[cpu]) is not None]
        means.append(round(sum(known) / len(known), 3) if known else None)
    return means


def published_chart(phrases: Phrases, published: Sequence[PublishedResult]) -> list[Lines]:
    """Return charts of metrics with at least two published values.

    Paper and node are each relative to their own baseline.
    """
    factors = phrases.experiment.spec.factors
    if len(factors) != 1:
        return []
    values = [level.value for level in factors[0].levels]
    charts = []
    for metric in dict.fromkeys(row.metric for row in published):
        theirs = [
            (at, row.value)
            for row in published
            if row.metric == metric and row.value is not None and row.arms and (at := values[row.arms[0]]) is not None
        ]
        ours = [line for line in _lines(phrases, metric, 0) if line.points] if None not in values else []
        first = values[0]
        base = next((value for at, value in theirs if at == first), 0)
        own = next((e.value for at, e in ours[0].points if at == first), 0) if ours else 0
        if len(theirs) < 2 or not base or not own:
            continue
        here = [(at, Interval(*(100 * each / own for each in (e.value, e.low, e.high)))) for at, e in ours[0].points]
        them = [(at, Interval(*[100 * value / base] * 3)) for at, value in sorted(theirs)]
        lines = [
            Line(phrases.text("legend.published"), them, is_published=True),
            Line(phrases.text("legend.here"), here),
        ]
        names = {"metric": phrases.label(metric), "baseline": phrases.baseline}
        axis = _axis(phrases, factors[0])
        title, note = phrases.text("figure.published", **names), phrases.text("figure.published_note")
        charts.append(Lines(title, note, lines, axis, "%"))
    return charts
