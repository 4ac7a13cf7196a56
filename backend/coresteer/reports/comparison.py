"""The report that compares the results of two experiments. Pure."""

from collections.abc import Mapping, Sequence

import msgspec

from coresteer.experiments import findings
from coresteer.experiments.findings import Phrases
from coresteer.experiments.published import ratio_of
from coresteer.experiments.schemas import Experiment
from coresteer.experiments.spec import Comparison, Interval
from coresteer.localization.language import Language
from coresteer.localization.numbers import format_effect, format_percent, format_time
from coresteer.localization.text import text
from coresteer.reports import experiment
from coresteer.reports.model import Block, Dot, Dots, Facts, Origin, Paragraph, Report, Section, Table

_MAX_ROWS = 400
_LISTED = 3
_MAX_DOTS = 24


def comparison_report(a: Experiment, b: Experiment, language: Language) -> Report:
    """Return the report of two experiments: whether their results agree, and how the experiments differ."""
    first, second = Phrases(a, language), Phrases(b, language)
    pairs = _pairs(a, b)
    limits = ["compare.limit"] + (["limit.untranslated"] if language != "en" else [])
    sections: list[tuple[str, list[Block]]] = [
        ("compare.section.effects", _effects(first, pairs)),
        ("compare.section.differ", [_differences(first, second)]),
        (
            "compare.section.a",
            [*_paragraphs(findings.findings(a, language)), Facts(experiment.experiment_facts(first))],
        ),
        (
            "compare.section.b",
            [*_paragraphs(findings.findings(b, language)), Facts(experiment.experiment_facts(second))],
        ),
        ("section.method", [Paragraph(text(language, "compare.method"))]),
        ("section.limits", [Paragraph(text(language, key)) for key in limits]),
    ]
    return Report(
        slug=f"experiments-{a.id}-{b.id}",
        language=language,
        origin=_origin(a, b),
        title=text(language, "compare.title", a=first.translated(a.name), b=second.translated(b.name)),
        kind=text(language, "compare.kind"),
        findings=_findings(first, second, pairs),
        facts=[(text(language, f"compare.section.{key}"), f"{one.id}, {one.node_name}") for key, one in _both(a, b)],
        sections=[Section(text(language, key), blocks) for key, blocks in sections if blocks],
        columns=experiment.csv_columns(language),
        records=experiment.csv_rows(first) + (experiment.csv_rows(second) if b.id != a.id else []),
        source={"a": experiment.json_source(a), "b": experiment.json_source(b)},
    )


def _origin(a: Experiment, b: Experiment) -> Origin:
    """Return the origin of the first experiment that is not measured."""
    origins = [experiment.origin_of(one) for one in (a, b)]
    return next((origin for origin in origins if origin != "measured"), "measured")


def _both(a: Experiment, b: Experiment) -> list[tuple[str, Experiment]]:
    return [("a", a), ("b", b)]


def _paragraphs(texts: Sequence[str]) -> list[Paragraph]:
    return [Paragraph(text) for text in texts]


def _pairs(a: Experiment, b: Experiment) -> list[tuple[Comparison, Comparison, Interval]]:
    """Return the comparisons of both with the same metric and arm name, a's primary metric first."""
    others = {(one.metric, _name(b, one)): one for one in b.analysis.comparisons}
    found = []
    for one in a.analysis.comparisons:
        other = others.get((one.metric, _name(a, one)))
        if other and one.effect and other.effect and (ratio := ratio_of(one.effect, other.effect)):
            found.append((one, other, ratio))
    return sorted(found, key=lambda pair: pair[0].metric != a.primary)


def _name(of: Experiment, found: Comparison) -> str:
    return dict(zip(of.analysis.arms, of.arms, strict=False)).get(found.arm, "")


def _differs(ratio: Interval) -> bool:
    return ratio.low > 0 or ratio.high < 0


def _findings(first: Phrases, second: Phrases, pairs: Sequence[tuple[Comparison, Comparison, Interval]]) -> list[str]:
    primary = [pair for pair in pairs if pair[0].metric == first.primary]
    metric = findings.label_in_sentence(first.label(first.primary))
    noises = [one.experiment.analysis.noise.get(first.primary) for one in (first, second)]
    effects = [format_effect(noise.effect, first.language) for noise in noises if noise and noise.effect]
    sentences = []
    if primary:
        differing = [pair for pair in primary if _differs(pair[2])]
        if len(primary) > 1:
            counts = {"differ": len(differing), "count": len(primary)}
            sentences.append(first.text("compare.differ_count", metric=metric, **counts))
        sentences += [_sentence(first, metric, pair) for pair in (differing or primary)[:_LISTED]]
        if first.experiment.arms[0] != second.experiment.arms[0]:
            sentences[0] += " " + first.text("compare.baselines", a=first.baseline, b=second.baseline)
    elif not (first.experiment.kind == second.experiment.kind == "aa"):
        sentences.append(first.text("compare.nothing"))
    if len(effects) == 2:
        sentences.append(first.text("compare.noise", metric=metric, a=effects[0], b=effects[1]))
    return sentences or [first.text("compare.nothing")]


def _sentence(phrases: Phrases, metric: str, pair: tuple[Comparison, Comparison, Interval]) -> str:
    one, other, ratio = pair
    names = {"arm": phrases.name(one.arm), "metric": metric, "change": format_percent(ratio.value, phrases.language)}
    names |= {"bound": phrases.largest_difference(ratio)}
    key = "differ" if _differs(ratio) else "agree" if findings.reach(ratio) <= findings.WIDE else "same"
    both = {"a": format_effect(one.effect, phrases.language), "b": format_effect(other.effect, phrases.language)}
    sentences = phrases.text(f"compare.{key}", **names, **both, **phrases.interval_ends(ratio))
    unsteady = [which for which, each in zip("AB", pair[:2], strict=True) if each.verdict == "unsteady"]
    if unsteady:
        key = "unsteady" if len(unsteady) == 1 else "unsteady_both"
        sentences += " " + phrases.text(f"compare.{key}", which=unsteady[0])
    return sentences


def _effect(phrases: Phrases, found: Comparison) -> str:
    """Return an effect as text, marked where its own report calls it inconclusive."""
    effect = format_effect(found.effect, phrases.language)
    return f"{effect}, {phrases.verdict(found)}" if found.verdict == "unsteady" else effect


def _effects(phrases: Phrases, pairs: Sequence[tuple[Comparison, Comparison, Interval]]) -> list[Block]:
    if not pairs:
        return []
    language = phrases.language
    blocks: list[Block] = []
    drawn = [pair for pair in pairs if pair[0].metric == phrases.primary][:_MAX_DOTS]
    dots = [
        Dot(f"{key}: {phrases.name(one.arm)}", _effect(phrases, one), one.effect, phrases.tone(one))
        for pair in drawn
        for key, one in zip("AB", pair[:2], strict=True)
    ]
    if dots:
        title = phrases.text("compare.figure", metric=phrases.label(phrases.primary))
        blocks.append(Dots(title, phrases.text("figure.effects_note_plain"), dots, phrases.text("compare.axis"), None))
    columns = [phrases.text("column.figure"), phrases.text("column.arm"), "A", "B"]
    columns.append(phrases.text("compare.column.difference"))
    rows = [
        [
            phrases.label(one.metric),
            phrases.name(one.arm),
            *(_effect(phrases, each) for each in (one, other)),
            format_effect(ratio, language),
        ]
        for one, other, ratio in pairs[:_MAX_ROWS]
    ]
    return [*blocks, Table(phrases.text("compare.table"), columns, rows, numeric=[2, 3, 4])]


def _differences(first: Phrases, second: Phrases) -> Block:
    """Return the fields of specification and machine that differ, with both values."""
    a, b = (_flat("", _described(phrases)) for phrases in (first, second))
    rows = [[key, a.get(key, "–"), b.get(key, "–")] for key in sorted(a.keys() | b.keys()) if a.get(key) != b.get(key)]
    if not rows:
        return Paragraph(first.text("compare.all_equal"))
    return Table("", ["", "A", "B"], rows)


def _described(phrases: Phrases) -> dict[str, object]:
    of = phrases.experiment
    spec = msgspec.to_builtins(of.spec)
    spec["factors"] = {
        factor.name: {level.name: "; ".join(experiment.level_effects(phrases, level)) or "–" for level in factor.levels}
        for factor in of.spec.factors
    }
    return {"node": of.node_name, "seed": of.seed, **spec, "machine": of.machine, "started": format_time(of.started_at)}


def _flat(name: str, value: object) -> dict[str, str]:
    if isinstance(value, Mapping):
        return {k: v for key in value for k, v in _flat(f"{name}.{key}".lstrip("."), value[key]).items()}
    if isinstance(value, list | tuple):
        return {k: v for place, item in enumerate(value) for k, v in _flat(f"{name}[{place}]", item).items()}
    return {name: "–" if value is None else str(value)}
