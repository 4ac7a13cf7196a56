"""The table of `coresteer papers`: each published figure, this machine's, and the verdict. Pure."""

from collections import Counter
from collections.abc import Sequence

import msgspec

from coresteer.localization.numbers import format_amount, format_percent
from coresteer.papers import Figure, papers, published_change
from coresteer.papers.verdicts import Measured, Row, Verdict
from coresteer_core.metrics import METRICS, MetricLabel

NONE = "–"
COLUMNS = ("figure", "metric", "paper", "ours", "95 % interval", "verdict", "by")
_OF_MODELS = {
    "idle_s": MetricLabel("Idle time", "s"),
    "overhead_and_switch_s": MetricLabel("Overhead and context switches", "s"),
    "added_worst_us": MetricLabel("Longest added wait", "µs"),
}


def table_markdown(rows: Sequence[Row], facts: Sequence[str], differs: Sequence[str]) -> str:
    """Return the facts, a table for each system, the notes, and how many figures have which verdict."""
    parts = [_listed(facts), counted(rows)]
    for system, paper in papers().items():
        of_system = [row for row in rows if row.figure.system == system]
        if of_system:
            cells = [COLUMNS, *(_cells(row) for row in of_system)]
            parts.append(f"### {paper.citation}\n\n{_aligned(cells)}")
    notes = dict.fromkeys(row.measured.note for row in rows if row.measured.note)
    caveats = dict.fromkeys(f"{row.figure.figure}: {row.figure.caveat}" for row in rows if row.figure.caveat)
    parts += [f"### {title}\n\n{_listed(lines)}" for title, lines in _notes([*notes, *caveats], differs)]
    return "\n\n".join(parts)


def _notes(notes: Sequence[str], differs: Sequence[str]) -> list[tuple[str, Sequence[str]]]:
    titled = [("Notes", notes), ("How the experiments here differ from the papers'", differs)]
    return [(title, lines) for title, lines in titled if lines]


def _listed(lines: Sequence[str]) -> str:
    return "\n".join(f"- {line}" for line in lines)


def counted(rows: Sequence[Row]) -> str:
    """Return how many rows have which verdict, measured and simulated ones apart, as a sentence."""
    parts = []
    for simulated in (False, True):
        verdicts = Counter(row.verdict for row in rows if row.measured.simulated is simulated)
        if verdicts:
            each = ", ".join(f"{verdicts[verdict]} {verdict}" for verdict in Verdict if verdicts[verdict])
            parts.append(f"{'Simulated' if simulated else 'On this machine'}: {each}.")
    return " ".join(parts)


def table_json(rows: Sequence[Row]) -> list[dict[str, object]]:
    """Return the rows with all of their fields."""
    found: list[dict[str, object]] = msgspec.to_builtins(rows)
    return found


def verdict_text(row: Row) -> str:
    """Return the verdict, with the reason where a figure is not possible here."""
    reason = row.measured.reason.rstrip(".")
    if row.verdict is Verdict.IMPOSSIBLE and reason:
        lowered = reason[:1].lower() + reason[1:] if reason[1:2].islower() or reason[1:2] == " " else reason
        return f"{row.verdict} because {lowered}"
    return row.verdict.value


def _cells(row: Row) -> tuple[str, ...]:
    label, unit = _metric(row.figure.metric)
    return (
        row.figure.figure,
        label,
        _published(row.figure),
        _ours(row.measured, unit),
        _interval(row.measured, unit),
        verdict_text(row),
        "" if row.verdict is Verdict.IMPOSSIBLE else f"{'simulated' if row.measured.simulated else 'measured'}: "
        f"{row.measured.source}",
    )  # fmt: skip


def _metric(name: str) -> tuple[str, str]:
    found = _OF_MODELS.get(name) or METRICS.get(name)
    return (name, "") if found is None else (found.label, found.unit)


def _published(figure: Figure) -> str:
    change = published_change(figure)
    derived = change is not None and figure.change is None and figure.direction != "unchanged"
    return f"{figure.text} ({format_percent(change or 0.0, 'en')})" if derived else figure.text


def _ours(measured: Measured, unit: str) -> str:
    value = None if measured.value is None else format_amount(measured.value.value, unit, "en")
    change = None if measured.change is None else format_percent(measured.change.value, "en")
    text = f"{value} ({change})" if value and change else value or change or NONE
    if measured.cells is not None:
        text += f", direction in {measured.cells[0]} of {measured.cells[1]} cells"
    return text


def _interval(measured: Measured, unit: str) -> str:
    found = measured.change or measured.value
    if found is None or found.low == found.high:
        return NONE
    low, high = (
        format_amount(end, unit, "en") if measured.change is None else format_percent(end, "en")
        for end in (found.low, found.high)
    )
    return f"[{low}, {high}]"


def _aligned(cells: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table whose columns are aligned for a terminal, too; the last ones are as long as they are."""
    escaped = [[cell.replace("|", "\\|").replace("\n", " ") for cell in line] for line in cells]
    widths = [max(len(line[at]) for line in escaped) for at in range(len(COLUMNS) - 2)] + [0, 0]
    head, *lines = [
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) + " |"
        for line in escaped
    ]
    return "\n".join([head, "|" + "|".join("---" for _ in COLUMNS) + "|", *lines])
