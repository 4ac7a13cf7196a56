"""How an experiment was made: the second half of its report, and what is needed to repeat it. Pure."""

import re
from collections.abc import Mapping

from coresteer.experiments.arms import is_as_it_is
from coresteer.experiments.schedule import SHORTEST_S
from coresteer.reports.findings import Teller, unrestored
from coresteer.reports.model import Block, Code, Facts, Paragraph, Table
from coresteer.reports.numbers import amount, duration, plain
from coresteer.reports.text import WORDS, retold
from coresteer_core.experiments.model import Classes, Command, Observe

_MOST_DISCARDED = 40


def method(teller: Teller) -> list[str]:
    """What was done, in sentences."""
    spec, say = teller.experiment.spec, teller.say
    measure = duration(spec.measure_s, teller.language)
    if isinstance(spec.workload, Classes | Command):
        run = say("method.run_whole", measure=measure)
        time = say("method.discard_short", shortest=duration(SHORTEST_S, teller.language))
    else:
        run = say("method.run", warmup=duration(spec.warmup_s, teller.language), measure=measure)
        time = say("method.discard_off")
    told = [say("method.primary", metric=teller.label(teller.primary)), run]
    told.append(say("method.blocks" if spec.kind == "sweep" else "method.abba", blocks=spec.blocks))
    if spec.kind != "aa":
        told.append(say("method.aa", blocks=spec.aa_blocks))
    told.append(say("method.test"))
    if spec.kind == "sweep":
        told.append(say("method.many"))
    told += [say("method.discard", time=time), say("method.seed", seed=teller.experiment.seed)]
    if spec.guardrails:
        rails = ", ".join(f"{rail.metric} > {plain(rail.max)}" for rail in spec.guardrails)
        told.append(say("method.guardrails", guardrails=rails))
    return told


def machine(teller: Teller) -> Block:
    """What is known of the node, as it was told."""
    rows = [row for key, value in teller.experiment.machine.items() for row in _of_machine(teller, key, value)]
    return Facts(rows) if rows else Paragraph(teller.say("machine.none"))


def _of_machine(teller: Teller, key: str, value: object) -> list[tuple[str, str]]:
    """Rows of one fact: of a list of things a row each, of anything else one."""
    known = f"machine.{key}"
    name = teller.say(known) if known in WORDS else key.replace("_", " ")
    if isinstance(value, list) and any(isinstance(item, Mapping) for item in value):
        return [(name if place == 0 else "", spoken(teller, item)) for place, item in enumerate(value)]
    text = spoken(teller, value)
    return [(name, text)] if text else []


def spoken(teller: Teller, value: object) -> str:
    """A fact of a machine as a text, empty where there is none."""
    match value:
        case None:
            return ""
        case bool():
            return teller.say("yes" if value else "no")
        case Mapping():
            parts = [(key, spoken(teller, item)) for key, item in value.items() if key != "speed_bits_per_s"]
            if speed := value.get("speed_bits_per_s"):
                parts.append(("", amount(speed, "bit/s", teller.language)))
            return ", ".join(
                f"{key.replace('_', ' ')} {text}" if key not in ("", "name") else text for key, text in parts if text
            )
        case list():
            return ", ".join(spoken(teller, item) for item in value)
    return str(value)


def settings(teller: Teller) -> list[Block]:
    """Those that the experiment is about, before and after it."""
    known = teller.experiment.settings
    if not known.before and not known.after:
        is_none = all(is_as_it_is(teller.experiment.spec, arm) for arm in teller.experiment.analysis.arms)
        return [Paragraph(teller.say("settings.none" if is_none else "settings.gone"))]
    if known.after is None:
        verdict = teller.say("settings.unread")
    elif differing := unrestored(teller.experiment):
        verdict = teller.say("settings.differ", keys=", ".join(differing))
    else:
        verdict = teller.say("settings.restored")
    after = known.after or {}
    rows = [
        [key, known.before.get(key, "–"), after.get(key, "–")]
        for key in sorted(known.before.keys() | after.keys(), key=_natural)
    ]
    columns = [teller.say(f"column.{name}") for name in ("key", "before", "after")]
    return [Paragraph(verdict), Table("", columns, rows)]


def _natural(key: str) -> list[tuple[int, str]]:
    """So that irq/9 comes before irq/10."""
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"(\d+)", key)]


def runs(teller: Teller) -> list[Block]:
    """How many runs count, and why others do not."""
    experiment = teller.experiment
    counts = {"done": experiment.runs_done, "planned": experiment.runs_planned}
    kept, discarded = experiment.analysis.kept, experiment.analysis.discarded
    told: list[Block] = [Paragraph(teller.say("runs.counts", kept=kept, discarded=discarded, **counts))]
    gone = sorted(
        (run for run in experiment.runs if run.discarded is not None), key=lambda r: (r.planned.number, r.attempt)
    )
    if not gone:
        return [*told, Paragraph(teller.say("runs.none_discarded"))]
    if len(gone) > _MOST_DISCARDED:
        told.append(Paragraph(teller.say("runs.discarded_listed", shown=_MOST_DISCARDED, count=len(gone))))
    rows = [
        [
            str(run.planned.number + 1),
            teller.say(f"stage.{run.planned.stage}"),
            teller.name(run.planned.arm),
            retold(teller.language, run.discarded or ""),
        ]
        for run in gone[:_MOST_DISCARDED]
    ]
    columns = [teller.say(f"column.{name}") for name in ("run", "stage", "arm", "reason")]
    return [*told, Table(teller.say("table.discarded"), columns, rows, numeric=[0])]


def limits(teller: Teller) -> list[str]:
    """What this experiment cannot say."""
    experiment = teller.experiment
    spec = experiment.spec
    told = [teller.say("limit.one_node")]
    if experiment.machine.get("simulated"):
        told.append(teller.say("limit.simulated"))
    if isinstance(spec.workload, Observe):
        told.append(teller.say("limit.observe"))
    elif not isinstance(spec.workload, Classes | Command) and spec.peer_node_id is None:
        told.append(teller.say("limit.alone"))
    if experiment.state in ("stopped", "cancelled", "failed"):
        told.append(teller.say("limit.early"))
    if len(experiment.analysis.metrics) > 1 and experiment.kind != "aa":
        told.append(teller.say("limit.many", count=len(experiment.analysis.metrics)))
    if teller.language != "en":
        told.append(teller.say("limit.unsaid_language"))
    return told


def repeat(teller: Teller) -> list[Block]:
    """How to run it again."""
    number = teller.experiment.id
    commands = (
        f"coresteer report export {number} --format json --to report.json\n"
        "jq '.experiment | .spec + {seed}' report.json | coresteer experiment run -"
    )
    return [Paragraph(teller.say("repeat.command")), Code(commands), Paragraph(teller.say("repeat.same"))]
