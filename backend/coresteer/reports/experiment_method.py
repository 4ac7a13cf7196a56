"""Report sections on the method of an experiment, its limits, and how to repeat it. Pure."""

import re
from collections.abc import Mapping

from coresteer.experiments.arm_config import changes_nothing, measure_s
from coresteer.experiments.findings import (
    Phrases,
    is_preliminary,
    label_in_sentence,
    left_out_runs,
    unrestored_settings,
)
from coresteer.experiments.schedule import MAX_ATTEMPTS, MIN_DURATION_S, all_arms
from coresteer.localization.numbers import format_amount, format_duration
from coresteer.localization.text import SENTENCES, translate
from coresteer.reports.model import Block, Code, Facts, Paragraph, Table
from coresteer_core.experiments.model import Finite, Observe, has_client

_MAX_DISCARDED = 40


def method_sentences(phrases: Phrases) -> list[str]:
    """Return the report's sentences about the method of the experiment."""
    spec, text = phrases.experiment.spec, phrases.text
    measure = format_duration(max(measure_s(spec, arm) for arm in all_arms(spec)), phrases.language)
    if isinstance(spec.workload, Finite):
        run = text("method.run_whole", measure=measure)
        time = text("method.discard_short", shortest=format_duration(MIN_DURATION_S, phrases.language))
    else:
        run = text("method.run", warmup=format_duration(spec.warmup_s, phrases.language), measure=measure)
        time = text("method.discard_off")
    sentences = [text("method.primary", metric=phrases.label(phrases.primary)), run]
    if spec.kind == "tune":
        sentences.append(text("method.tune"))
    else:
        sentences += _of_comparison(phrases)
    sentences += [text("method.discard", time=time), text("method.attempts", times=MAX_ATTEMPTS)]
    sentences.append(text("method.seed", seed=phrases.experiment.seed))
    if spec.guardrails:
        rails = ", ".join(
            f"{phrases.label(rail.metric)} > {format_amount(rail.max, phrases.unit(rail.metric), phrases.language)}"
            for rail in spec.guardrails
        )
        sentences.append(text("method.guardrails", guardrails=rails))
    return sentences


def _of_comparison(phrases: Phrases) -> list[str]:
    spec, text = phrases.experiment.spec, phrases.text
    sentences = [text("method.blocks" if spec.kind == "sweep" else "method.abba", blocks=spec.blocks)]
    if spec.kind != "aa":
        sentences.append(text("method.aa", blocks=spec.aa_blocks))
    sentences.append(text("method.test"))
    return [*sentences, text("method.many")] if spec.kind == "sweep" else sentences


def machine_table(phrases: Phrases) -> Block:
    """Return the report's table of facts about the machine under test."""
    rows = [row for key, value in phrases.experiment.machine.items() for row in _of_machine(phrases, key, value)]
    return Facts(rows) if rows else Paragraph(phrases.text("machine.none"))


def _of_machine(phrases: Phrases, key: str, value: object) -> list[tuple[str, str]]:
    """Return the table rows of one fact about the machine: one for each item of a list, else one."""
    name = _fact_name(phrases, key)
    if isinstance(value, list) and any(isinstance(item, Mapping) for item in value):
        return [(name if place == 0 else "", format_fact(phrases, item)) for place, item in enumerate(value)]
    text = format_fact(phrases, value)
    return [(name, translate(phrases.language, text))] if text else []


def _fact_name(phrases: Phrases, key: str, *, in_sentence: bool = False) -> str:
    known = f"machine.{key}"
    name = phrases.text(known) if known in SENTENCES else key.replace("_", " ")
    return label_in_sentence(name) if in_sentence else name


def format_fact(phrases: Phrases, value: object) -> str:
    """Return a fact about a machine as a text, empty where it is unknown."""
    match value:
        case None:
            return ""
        case bool():
            return phrases.text("yes" if value else "no")
        case Mapping():
            parts = [(key, format_fact(phrases, item)) for key, item in value.items() if key != "speed_bits_per_s"]
            if speed := value.get("speed_bits_per_s"):
                parts.append(("", format_amount(speed, "bit/s", phrases.language)))
            return ", ".join(
                f"{_fact_name(phrases, key, in_sentence=True)} {text}" if key not in ("", "name") else text
                for key, text in parts
                if text
            )
        case list():
            return ", ".join(format_fact(phrases, item) for item in value)
    return str(value)


def settings_section(phrases: Phrases) -> list[Block]:
    """Return the report's section on the compared settings before and after the experiment."""
    known = phrases.experiment.settings
    if not known.before and not known.after:
        is_none = all(changes_nothing(phrases.experiment.spec, arm) for arm in phrases.experiment.analysis.arms)
        return [Paragraph(phrases.text("settings.none" if is_none else "settings.gone"))]
    if known.after is None:
        verdict = phrases.text("settings.unread")
    elif differing := unrestored_settings(phrases.experiment):
        verdict = phrases.text("settings.differ", keys=", ".join(differing))
    else:
        verdict = phrases.text("settings.restored")
    after = known.after or {}
    rows = [
        [key, known.before.get(key, "–"), after.get(key, "–")]
        for key in sorted(known.before.keys() | after.keys(), key=_natural)
    ]
    columns = [phrases.text(f"column.{name}") for name in ("key", "before", "after")]
    return [Paragraph(verdict), Table("", columns, rows)]


def _natural(key: str) -> list[tuple[int, str]]:
    """Return a sort key by which irq/9 precedes irq/10."""
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"(\d+)", key)]


def runs_section(phrases: Phrases) -> list[Block]:
    """Return the report's section on runs: their numbers, and the discarded ones with their reasons."""
    experiment = phrases.experiment
    counts = {"done": experiment.runs_done, "planned": experiment.runs_planned}
    kept, discarded = experiment.analysis.counted, experiment.analysis.discarded
    sentences: list[Block] = [Paragraph(phrases.text("runs.counts", kept=kept, discarded=discarded, **counts))]
    gone = sorted(
        (run for run in experiment.runs if run.discarded is not None), key=lambda r: (r.planned.number, r.attempt)
    )
    if not gone:
        return [*sentences, Paragraph(phrases.text("runs.none_discarded"))]
    if len(gone) > _MAX_DISCARDED:
        sentences.append(Paragraph(phrases.text("runs.discarded_listed", shown=_MAX_DISCARDED, count=len(gone))))
    rows = [
        [
            str(run.planned.number + 1),
            phrases.text(f"stage.{run.planned.stage}"),
            phrases.name(run.planned.arm),
            translate(phrases.language, run.discarded or ""),
        ]
        for run in gone[:_MAX_DISCARDED]
    ]
    columns = [phrases.text(f"column.{name}") for name in ("run", "stage", "arm", "reason")]
    return [*sentences, Table(phrases.text("table.discarded"), columns, rows, numeric=[0])]


def limit_sentences(phrases: Phrases) -> list[str]:
    """Return the report's sentences about the limits of the experiment."""
    experiment = phrases.experiment
    spec = experiment.spec
    sentences = [phrases.text("limit.one_node")]
    if experiment.machine.get("simulated"):
        sentences.append(phrases.text("limit.simulated"))
    if isinstance(spec.workload, Observe):
        sentences.append(phrases.text("limit.observe"))
    elif has_client(spec.workload) and spec.peer_node_id is None:
        sentences.append(phrases.text("limit.alone"))
    if experiment.state in ("running", "stopped", "cancelled", "failed"):
        sentences.append(phrases.text("limit.early"))
    if is_preliminary(experiment):
        sentences.append(phrases.text("ended.preliminary"))
    if left_out_runs(experiment) and isinstance(spec.workload, Finite):
        sentences.append(phrases.text("limit.left_out"))
    if len(experiment.analysis.metrics) > 1 and experiment.kind != "aa":
        sentences.append(phrases.text("limit.many", count=len(experiment.analysis.metrics)))
    if phrases.language != "en":
        sentences.append(phrases.text("limit.untranslated"))
    return sentences


def repeat_section(phrases: Phrases) -> list[Block]:
    """Return the report's section with the commands that repeat the experiment."""
    number = phrases.experiment.id
    commands = (
        f"coresteer reports export {number} --format json --to report.json\n"
        "jq '.experiment | .spec + {seed}' report.json | coresteer experiments run -"
    )
    return [Paragraph(phrases.text("repeat.command")), Code(commands), Paragraph(phrases.text("repeat.same"))]
