"""Report section on the combinations that a tune has measured. Pure."""

from coresteer.experiments.findings import Phrases
from coresteer.experiments.tune.result import Candidate
from coresteer.localization.numbers import format_effect, format_estimate
from coresteer.reports.model import Block, Line, Lines, Paragraph, Table

_MAX_POINTS = 40


def tune_blocks(phrases: Phrases) -> list[Block]:
    """Return scatter and table of the measured combinations of a tune; none for another kind of experiment."""
    found = phrases.experiment.tune
    if found is None or not found.candidates:
        return []
    latency = phrases.experiment.spec.tune.latency
    metrics = {"metric": phrases.label(phrases.primary), "latency": phrases.label(latency)}
    candidates = sorted(found.candidates, key=lambda each: not each.front)[:_MAX_POINTS]
    lines = [
        Line(_name(phrases, each), [(each.cost.value, each.latency)])
        for each in candidates
        if each.cost and each.latency
    ]
    title, note = phrases.text("tune.figure", **metrics), phrases.text("tune.front_note")
    chart = [Lines(title, note, lines, metrics["metric"], phrases.unit(latency))] if len(lines) > 1 else []
    columns = [
        *(phrases.text(f"column.{name}") for name in ("arm", "runs")),
        *metrics.values(),
        *(phrases.text(f"column.{name}") for name in ("effect", "verdict")),
    ]
    rows = [_row(phrases, each) for each in found.candidates]
    return [*chart, Paragraph(note), Table(phrases.text("tune.candidates"), columns, rows, numeric=[1, 2, 3, 4])]


def _name(phrases: Phrases, candidate: Candidate) -> str:
    return f"{'◆ ' if candidate.front else ''}{phrases.name(candidate.arm)}"


def _row(phrases: Phrases, candidate: Candidate) -> list[str]:
    latency = phrases.experiment.spec.tune.latency
    return [
        _name(phrases, candidate),
        str(candidate.runs),
        format_estimate(candidate.cost, phrases.unit(phrases.primary), phrases.language),
        format_estimate(candidate.latency, phrases.unit(latency), phrases.language),
        format_effect(candidate.effect, phrases.language),
        phrases.text(f"tune.state.{candidate.state}"),
    ]
