"""`coresteer papers`: repeat all measurements of the five papers that this machine can, and print one table."""

# Modules that need the database or the simulation are imported locally: every command loads this module for its help.
# ruff: noqa: PLC0415

import argparse
import json
import os
import platform
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from threading import Event, Timer
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from coresteer.cli.papers_experiments import Outcome, Plan
    from coresteer.config import Config
    from coresteer.papers import Figure
    from coresteer.papers.verdicts import Measured, Row
    from coresteer.simulation.study import Run, StudySpec

_FORMATS = (".md", ".json")
_SYSTEMS = ("network-process", "coscheduling", "numa", "coalescing", "service-class")
_STUDY_CPU_S = {"full": 900.0, "quick": 180.0, "none": 0.0}
"""CPU time of a study; of this machine's processor, so an estimate."""
_SILENT_S = 30.0
_SLACK, _STUDY_SLACK, _GRACE_S = 2.0, 4.0, 60.0
"""The experiments end after this many times their estimate and this time, the study after this many times its own."""


class PapersError(Exception):
    """The command cannot be carried out; the message says why and what to do."""


class Result(NamedTuple):
    """All rows, facts about the machine and the run, and how the experiments differ from the papers', as sentences."""

    rows: "list[Row]"
    facts: list[str]
    differs: list[str]


class Study(NamedTuple):
    """A simulated study with its runs; why_not: there are none."""

    spec: "StudySpec"
    runs: "Sequence[Run]"
    why_not: str = ""


def add_commands(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add `papers` to the parser."""
    command = commands.add_parser(
        "papers",
        help="repeat the papers' measurements on this machine and compare",
        description="Run everything from the five papers that can run on this machine, with a backend, a database and "
        "an agent of its own, and print each published figure next to this machine's. Every setting is restored at the "
        "end and after Ctrl-C. As an ordinary user only simulated figures are possible.",
    )
    command.add_argument("--quick", action="store_true", help="shorter runs, and the quick study")
    command.add_argument(
        "--study",
        default="",
        metavar="SCALE",
        help="scale of the simulated study: full (default), quick (with --quick), none; or the .json file of a "
        "finished one, which `coresteer simulation run --to` writes",
    )
    command.add_argument("--systems", default=",".join(_SYSTEMS), metavar="LIST", help=f"of {', '.join(_SYSTEMS)}")
    command.add_argument("--to", metavar="FILE", help="also write the table to a .md or .json file")


def run(arguments: argparse.Namespace, config: "Config") -> int:
    """Run `coresteer papers`; return its exit code. Raises PapersError and OSError."""
    from coresteer.cli.supervisor import running_address
    from coresteer.papers.table import table_json, table_markdown

    if arguments.to is not None and Path(arguments.to).suffix not in _FORMATS:
        raise PapersError(f"--to {arguments.to}: the file's name must end in {' or '.join(_FORMATS)}.")
    systems = [name.strip() for name in arguments.systems.split(",") if name.strip()]
    for name in systems:
        if name not in _SYSTEMS:
            raise PapersError(f"--systems: there is no system {name}; choose from {', '.join(_SYSTEMS)}.")
    if (address := running_address(config.state_dir)) is not None:
        raise PapersError(
            f"Coresteer runs here at {address}; its policies would act on the measurements. Stop it first."
        )
    study = arguments.study or ("quick" if arguments.quick else "full")
    if study not in _STUDY_CPU_S and not study.endswith(".json"):
        raise PapersError(f"--study {study}: choose from {', '.join(_STUDY_CPU_S)}, or name a .json file.")
    try:
        with _interruptible():
            found = _repeat(systems, study, quick=arguments.quick)
    except KeyboardInterrupt:
        print("Interrupted; every setting is restored.", file=sys.stderr)
        return 130
    text = table_markdown(found.rows, found.facts, found.differs)
    print(text)
    if arguments.to is not None:
        is_json = Path(arguments.to).suffix == ".json"
        parts = {"facts": found.facts, "rows": table_json(found.rows), "differs": found.differs}
        document = json.dumps(parts, indent=1, ensure_ascii=False)
        Path(arguments.to).write_text((document if is_json else f"# The papers' figures\n\n{text}") + "\n")
    return 0


@contextmanager
def _interruptible() -> Iterator[None]:
    """Raise KeyboardInterrupt for SIGTERM, too, and for SIGINT also where a shell started this in the background."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    before = {number: signal.signal(number, interrupt) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _repeat(systems: Sequence[str], study: str, *, quick: bool) -> Result:
    """Measure and simulate everything; return a row for each figure and each way in which it was obtained."""
    from coresteer.papers import figures

    started, load = time.monotonic(), os.getloadavg()[0]
    stored = _stored_study(Path(study)) if study.endswith(".json") else None
    plan, outcomes = _experiments(systems, study, quick=quick)
    wanted = [figure for figure in figures() if figure.system in systems]
    simulated = stored or _study(study if any(each.model == "study" for each in wanted) else "none")
    rows = [row for figure in wanted for row in _rows(figure, plan, outcomes, simulated)]
    differs = [f"{each.slug}: {sentence}" for each in plan.experiments for sentence in each.differs]
    count, minutes = len(outcomes), (time.monotonic() - started) / 60
    facts = [
        f"{platform.node()}, {os.cpu_count()} CPUs, Linux {platform.release()}; {datetime.now(UTC):%Y-%m-%d %H:%M} "
        f"UTC; load average {load:.1f} at the start, {os.getloadavg()[0]:.1f} at the end.",
        f"{count} experiment{'' if count == 1 else 's'} and {len(simulated.runs)} simulated runs"
        f"{f' of {study}' if stored else ''} in {minutes:.0f} min{', with --quick' if quick else ''}. "
        "Every setting was restored.",
        "Reproduced: the interval is in the paper's direction, and the printed number is in it, unless it is wider "
        "than the number, or within a fifth of the estimate. Direction only: the size differs. Simulated figures are "
        "of models, not of this machine.",
    ]
    return Result(rows, facts, differs)


def _experiments(systems: Sequence[str], study: str, *, quick: bool) -> "tuple[Plan, dict[str, Outcome]]":
    """Run all experiments that are possible here; print what they and the study take before the first one."""
    from coresteer.cli.api_client import ApiError, UnreachableError
    from coresteer.cli.local_backend import LocalBackendError, local_backend
    from coresteer.cli.papers_experiments import Plan, prepare, run, wanted_templates

    templates = wanted_templates(systems)
    if not templates:
        return Plan([], {}), {}
    if os.geteuid() != 0:
        reason = "it needs root: the agent of an ordinary user changes nothing"
        return Plan([], dict.fromkeys(templates, reason)), {}
    outcomes: dict[str, Outcome] = {}
    progress = _Progress()
    try:
        with local_backend() as client:
            plan = prepare(client, systems, quick=quick)
            total_s = sum(each.seconds for each in plan.experiments)
            _say_estimate(total_s, study if "coscheduling" in systems else "none", len(plan.experiments))
            until_s = time.monotonic() + _SLACK * total_s + _GRACE_S
            for planned in plan.experiments:
                outcomes[planned.slug] = run(client, planned, until_s, progress)
    except (LocalBackendError, ApiError, UnreachableError) as error:
        raise PapersError(str(error)) from None
    finally:
        progress.end()
    return plan, outcomes


def _say_estimate(experiments_s: float, study: str, count: int) -> None:
    study_s = _study_s(study)
    most_s = _SLACK * experiments_s + _GRACE_S + _STUDY_SLACK * study_s
    print(
        f"{count} experiment{'' if count == 1 else 's'} of about {experiments_s / 60:.0f} min together and a simulated "
        f"study of about {study_s / 60:.0f} min, at most {most_s / 60:.0f} min in all. Ctrl-C ends it and restores "
        "every setting.",
        file=sys.stderr,
        flush=True,
    )


def _study_s(scale: str) -> float:
    return _STUDY_CPU_S.get(scale, 0.0) / (os.cpu_count() or 1)


class _Progress:
    """Writes progress to stderr: over one line on a terminal, else a line every half minute."""

    def __init__(self) -> None:
        self._is_terminal = sys.stderr.isatty()
        self._next_s = 0.0

    def __call__(self, line: str) -> None:
        now = time.monotonic()
        if self._is_terminal:
            print(f"\r{line:100}", end="", file=sys.stderr, flush=True)
        elif now >= self._next_s:
            self._next_s = now + _SILENT_S
            print(line, file=sys.stderr, flush=True)

    def end(self) -> None:
        """Clear the line."""
        if self._is_terminal:
            print(f"\r{'':100}\r", end="", file=sys.stderr, flush=True)


def _study(scale: str) -> "Study":
    """Simulate the study of the coscheduling paper, or return why that is not possible."""
    from coresteer.cli.simulation import with_progress
    from coresteer.simulation.study import run_study, unavailable_because

    spec = study_spec(scale)
    why = "--study none omits it" if scale == "none" else unavailable_because()
    if why is not None:
        return Study(spec, [], why)
    stop = Event()
    limit = Timer(_STUDY_SLACK * _study_s(scale), stop.set)
    limit.daemon = True
    limit.start()
    runs = with_progress(spec, run_study(spec, stop=stop), time.monotonic(), _study_s(scale))
    limit.cancel()
    return Study(spec, [], "the time for the study had ended") if stop.is_set() else Study(spec, runs)


def _stored_study(path: Path) -> "Study":
    """Return the study that `coresteer simulation run --to` wrote. Raises PapersError and OSError."""
    import msgspec

    from coresteer.simulation.study import Run, StudySpec

    try:
        found = msgspec.json.decode(path.read_bytes(), type=dict[str, msgspec.Raw])
        return Study(
            msgspec.json.decode(found["spec"], type=StudySpec), msgspec.json.decode(found["runs"], type=list[Run])
        )
    except (msgspec.DecodeError, KeyError) as error:
        raise PapersError(f"--study {path} is not a study's file: {error}.") from None


def study_spec(scale: str) -> "StudySpec":
    """Return the study of the paper's figures 4 and 5: full, or quick with jobs of a fifth of the length."""
    from coresteer.simulation.parameters import QUICK
    from coresteer.simulation.study import StudySpec

    return StudySpec(parameters=QUICK) if scale == "quick" else StudySpec()


def _rows(figure: "Figure", plan: "Plan", outcomes: "dict[str, Outcome]", study: "Study") -> "Iterator[Row]":
    """Yield a row for each way in which a figure was obtained; one with the reason where it was not possible."""
    from coresteer.papers import nic_model
    from coresteer.papers.verdicts import Measured, judge

    possible = [slug for slug in figure.templates if slug in outcomes]
    for slug in possible:
        yield judge(figure, _of_experiment(figure, slug, outcomes[slug]))
    if figure.templates and not possible:
        reason = plan.impossible.get(figure.templates[0], "")
        yield judge(figure, Measured(source=f"experiment {figure.templates[0]}", reason=reason))
    if figure.model == "nic":
        yield judge(figure, nic_model.measure(figure))
    elif figure.model == "study":
        yield judge(figure, _of_study(figure, study))


def _of_experiment(figure: "Figure", slug: str, outcome: "Outcome") -> "Measured":
    from coresteer.cli.papers_experiments import measured
    from coresteer.papers.verdicts import Measured

    if outcome.experiment is None:
        return Measured(source=f"experiment {slug}", reason=outcome.reason)
    return measured(figure, slug, outcome.experiment)


def _of_study(figure: "Figure", study: "Study") -> "Measured":
    """Return the largest change of a study in the published direction, with the number of cells that have it."""
    from coresteer.papers.verdicts import Estimate, Measured
    from coresteer.simulation.statements import judge

    source = f"study, {len(study.runs)} runs"
    if not study.runs:
        return Measured(source="study", simulated=True, reason=study.why_not)
    found = next(verdict for verdict in judge(study.spec, study.runs) if verdict.statement.text == figure.text)
    best = next((effect for effect in found.effects if effect.change == found.best), None)
    if best is None or found.is_reproduced is None:
        return Measured(source=source, simulated=True, reason=found.sentence)
    change = Estimate(best.change, best.low, best.high)
    note = (
        "Study: the largest change of a cell is next to the paper's maximum; every constant is an assumption of ours."
    )
    return Measured(source=source, simulated=True, change=change, cells=(found.holds, found.of), note=note)
