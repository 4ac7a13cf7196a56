"""Report section on how well a template's predictor ranks the arms of an experiment. Pure."""

from coresteer.experiments.findings import Phrases, prediction_sentences
from coresteer.experiments.predictor import prediction_of
from coresteer.experiments.spec import Interval
from coresteer.localization.numbers import format_effect, format_estimate
from coresteer.reports.model import Block, Line, Lines, Paragraph, Table


def predictor_blocks(phrases: Phrases) -> list[Block]:
    """Return sentence, scatter and table of measured effects over the predictor; none for a template without one."""
    found = prediction_of(phrases.experiment)
    if found is None:
        return []
    label, effect = phrases.label(found.metric), phrases.text("predictor.effect", metric=phrases.label(phrases.primary))
    points = [(each.arm, each.predicted, each.effect) for each in found.arms if each.predicted and each.effect]
    lines = [
        Line(phrases.name(arm), [(x.value, Interval(*(100 * share for share in (y.value, y.low, y.high))))])
        for arm, x, y in points
    ]
    title = phrases.text("predictor.figure", predictor=label, metric=phrases.label(phrases.primary))
    chart = [Lines(title, phrases.text("predictor.figure_note"), lines, label, "%")] if len(lines) > 1 else []
    rows = [
        [
            phrases.name(each.arm),
            format_effect(each.effect, phrases.language),
            format_estimate(each.predicted, phrases.unit(found.metric), phrases.language),
        ]
        for each in found.arms
    ]
    table = Table("", [phrases.text("column.arm"), effect, label], rows, numeric=[1, 2])
    return [*map(Paragraph, prediction_sentences(phrases)), *chart, table]
