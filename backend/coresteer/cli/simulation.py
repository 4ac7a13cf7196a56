"""`coresteer simulation run`: simulate a coscheduling study here, without a backend or a database."""

# Modules of the simulation are imported locally: every command of `coresteer` loads this module for its help.
# ruff: noqa: PLC0415

import argparse
import csv
import os
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from coresteer.simulation.study import Run, StudySpec
    from coresteer.simulation.swf import TraceFacts

_REORDER = ("both", "with", "without")
_FORMATS = (".json", ".csv")
_PARAMETERS = ("nodes", "mpl", "jobs", "enp", "ert_sign", "imbalance")
"""Options that are fields of Parameters, which has their defaults."""


class SimulationError(Exception):
    """The study cannot be simulated; the message says why and what to do."""


def add_commands(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add `simulation` and its action to the parser."""
    simulation = commands.add_parser("simulation", help="simulate coscheduling of parallel jobs")
    actions = simulation.add_subparsers(dest="action", required=True)
    run = actions.add_parser(
        "run",
        help="simulate a study and compare it with the paper",
        description="Simulate every combination of the given values and print the results next to the statements of "
        "the paper. Without options this is the study of its figures 4 and 5.",
    )
    run.add_argument("--schemes", default="SB,PB", metavar="LIST", help="such as SB,PB, or all (default SB,PB)")
    run.add_argument("--reorder", choices=_REORDER, default="both", help="process reordering (default both)")
    run.add_argument("--patterns", default="nn,aa", metavar="LIST", help="nn: nearest neighbor, aa: all to all")
    run.add_argument("--workloads", default="swl1,swl2,swl3", metavar="LIST", help="default swl1,swl2,swl3")
    run.add_argument("--v", default="0.5,1.5", metavar="LIST", help="imbalance, 0 to 2 (default 0.5,1.5)")
    run.add_argument("--seeds", type=int, default=10, help="runs of each cell (default 10; fewer give no verdict)")
    run.add_argument("--nodes", type=int, help="default 16")
    run.add_argument("--mpl", type=int, help="processes on a node at most (default 5)")
    run.add_argument("--jobs", type=int, help="default 200")
    run.add_argument("--enp", choices=("union", "sum"), help="of its two sets of processes (default union)")
    run.add_argument("--ert-sign", choices=("minus", "printed"), help="sign of elapsed time in ERT (default minus)")
    run.add_argument(
        "--imbalance",
        choices=("per_phase", "per_process", "gamma"),
        help="uniform in each phase (default), uniform once per process, or gamma in each phase",
    )
    run.add_argument("--quick", action="store_true", help="mean run time of 1 s instead of 5 s")
    run.add_argument("--trace", metavar="FILE", help="jobs in Standard Workload Format, plain or gzipped")
    run.add_argument("--sensitivity", action="store_true", help="also halve and double four constants (9 × the time)")
    run.add_argument("--workers", type=int, metavar="N", help="processes (default: the number of CPUs)")
    run.add_argument("--to", metavar="FILE", help="also write the results to a .json file, or the runs to a .csv file")


def run(arguments: argparse.Namespace) -> int:
    """Run `coresteer simulation run`; return its exit code. Raises SimulationError and OSError."""
    import msgspec
    from msgspec.structs import replace

    from coresteer.simulation.estimate import estimate
    from coresteer.simulation.study import run_study, unavailable_because, usable_jobs
    from coresteer.simulation.swf import TraceError, read_trace

    if (sentence := unavailable_because()) is not None:
        raise SimulationError(sentence)
    if arguments.to is not None and Path(arguments.to).suffix not in _FORMATS:
        raise SimulationError(f"--to {arguments.to}: the file's name must end in {' or '.join(_FORMATS)}.")
    if arguments.workers is not None and arguments.workers < 1:
        raise SimulationError("--workers must be at least 1.")
    try:
        spec = _spec(arguments)
        trace = None if arguments.trace is None else read_trace(Path(arguments.trace))
        jobs, facts = None, None
        if trace is not None:
            jobs, facts = trace.jobs, replace(trace.facts, usable=usable_jobs(spec, trace.jobs))
        expected = estimate(spec, arguments.workers or os.cpu_count() or 1, jobs)
        print(expected.sentence, file=sys.stderr)
        started = time.monotonic()
        runs = with_progress(spec, run_study(spec, jobs, arguments.workers), started, expected.duration_s)
    except (msgspec.ValidationError, TraceError) as error:
        raise SimulationError(str(error).replace("`", "")) from None
    wall_s = time.monotonic() - started
    print("\n".join(_lines(spec, facts, runs, wall_s)))
    if arguments.to is not None:
        _write(Path(arguments.to), spec, facts, runs, wall_s)
    return 0


def _spec(arguments: argparse.Namespace) -> "StudySpec":
    """Return the study that the options describe. Raises ValidationError and SimulationError."""
    import msgspec

    from coresteer.simulation.schemes import NAMES, SCHEMES
    from coresteer.simulation.study import GENERATED, StudySpec

    names = list(NAMES.values()) if arguments.schemes == "all" else _listed(arguments.schemes)
    endings = {"both": ("", "+RO"), "with": ("+RO",), "without": ("",)}[arguments.reorder]
    schemes = list(dict.fromkeys(name.removesuffix("+RO") + ending for name in names for ending in endings))
    for name in schemes:
        if name not in SCHEMES:
            known = ", ".join(NAMES.values())
            raise SimulationError(f"There is no scheme {name.removesuffix('+RO')}; choose from {known}.")
    given = {name: getattr(arguments, name) for name in _PARAMETERS}
    parameters = {name: value for name, value in given.items() if value is not None}
    try:
        imbalances = [float(value) for value in _listed(arguments.v)]
    except ValueError:
        raise SimulationError(f"--v {arguments.v}: give numbers from 0 to 2, such as 0.5,1.5.") from None
    return msgspec.convert(
        {
            "schemes": schemes,
            "patterns": _listed(arguments.patterns),
            "job_types": _listed(arguments.workloads),
            "imbalances": imbalances,
            "seeds": arguments.seeds,
            "parameters": parameters | ({"mean_run_s": 1.0} if arguments.quick else {}),
            "trace": GENERATED if arguments.trace is None else Path(arguments.trace).name,
            "sensitivity": arguments.sensitivity,
        },
        StudySpec,
    )


def _listed(text: str) -> list[str]:
    return list(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))


def with_progress(spec: "StudySpec", runs: "Iterator[Run]", started: float, estimated_s: float) -> "list[Run]":
    """Return all runs; write progress to stderr: over one line on a terminal, else a line every 10 s.

    estimated_s: of the whole study.
    """
    from coresteer.localization.numbers import counted
    from coresteer.simulation.estimate import remaining_s
    from coresteer.simulation.study import expected_messages

    messages = expected_messages(spec)
    planned, total, done = spec.seeds * len(messages), spec.seeds * sum(messages.values()), 0.0
    is_terminal, said = sys.stderr.isatty(), started
    finished = []
    for each in runs:
        finished.append(each)
        done += messages[each.cell, each.variant]
        now = time.monotonic()
        if now - said >= (0.2 if is_terminal else 10.0):
            said = now
            left = remaining_s(now - started, done, total, estimated_s)
            line = f"{len(finished)} of {counted(planned, 'run')}"
            line += "" if left is None else f", about {left:.0f} s left"
            print(f"\r{line}   " if is_terminal else line, end="" if is_terminal else "\n", file=sys.stderr, flush=True)
    if is_terminal:
        print(f"\r{counted(len(finished), 'run')}{' ' * 40}", file=sys.stderr)
    return finished


def _lines(spec: "StudySpec", facts: "TraceFacts | None", runs: "Sequence[Run]", wall_s: float) -> list[str]:
    from coresteer.localization.numbers import counted
    from coresteer.simulation.parameters import describe
    from coresteer.simulation.statements import judge, verdict_line
    from coresteer.simulation.summary import PARTS, sensitivities, sensitivity_sentence, summarize
    from coresteer.simulation.swf import trace_sentences

    lines = ["Parameters. The paper states none of the machine's constants: all are assumptions."]
    lines += [f"  {each.label:34} {each.text:24} {each.help}".rstrip() for each in describe(spec.parameters)]
    lines += [*trace_sentences(facts, spec.parameters), ""]
    seeds = counted(spec.seeds, "seed")
    lines.append(f"Every cell: means over {seeds}, 95 % interval; shares of system time in percent.")
    lines.append(
        f"{'pattern':7} {'jobs':4} {'v':>4} {'scheme':10} {'response time, s':>26} "
        + " ".join(f"{part:>8}" for part in PARTS)
    )
    for one in summarize(spec, runs):
        interval = "" if one.low_s is None else f" [{one.low_s:.3f}, {one.high_s:.3f}]"
        lines.append(
            f"{one.cell.pattern:7} {one.cell.job_type:4} {one.cell.imbalance:4g} {one.cell.scheme:10} "
            f"{f'{one.response_s:.3f}{interval}':>26} "
            + " ".join(f"{getattr(one.shares, part):8.2%}".replace("%", "") + " " for part in PARTS).rstrip()
        )
    lines += ["", "The paper's statements:"]
    for verdict in judge(spec, runs):
        lines.append(f"  {verdict.statement.text}\n    {verdict_line(verdict)}")
    if spec.sensitivity:
        lines += ["", "Sensitivity:", *(f"  {sensitivity_sentence(each)}" for each in sensitivities(spec, runs))]
    messages = sum(each.result.messages for each in runs)
    events = sum(each.result.events for each in runs)
    done = f"{counted(len(runs), 'run')}, {counted(messages, 'message')} and {counted(events, 'event')}"
    lines += ["", f"{done} in {wall_s:.1f} s."]
    return lines


def _write(path: Path, spec: "StudySpec", facts: "TraceFacts | None", runs: "Sequence[Run]", wall_s: float) -> None:
    import msgspec

    from coresteer.simulation.statements import judge
    from coresteer.simulation.summary import RUN_COLUMNS, run_rows, sensitivities, summarize
    from coresteer.simulation.swf import trace_sentences

    if path.suffix == ".csv":
        with path.open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(RUN_COLUMNS)
            writer.writerows(run_rows(runs))
        return
    found = {
        "spec": spec,
        "trace": facts,
        "jobs": trace_sentences(facts, spec.parameters),
        "cells": summarize(spec, runs),
        "verdicts": judge(spec, runs),
        "sensitivities": sensitivities(spec, runs),
        "wall_s": wall_s,
        "runs": runs,
    }
    path.write_bytes(msgspec.json.format(msgspec.json.encode(found), indent=1) + b"\n")
