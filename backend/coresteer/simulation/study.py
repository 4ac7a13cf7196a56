"""A study: every combination of schemes, patterns, job types and imbalance, with several seeds, on all CPUs.

All schemes of a combination and seed have the same jobs and random numbers, so their differences are paired.
"""

import multiprocessing
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from itertools import product
from threading import Event
from typing import Annotated, NamedTuple

import msgspec
from msgspec import Meta, Struct
from msgspec.structs import replace

from coresteer.extras import SIMULATION
from coresteer.process import die_with_parent
from coresteer.simulation.jobs import TraceJob, generated, messages_in_loop, phase_of, prepare, typical
from coresteer.simulation.parameters import SENSITIVE, SHARES, JobType, Parameters, Pattern
from coresteer.simulation.results import Result
from coresteer.simulation.schemes import SCHEMES
from coresteer.simulation.swf import sampled, scaled
from coresteer_core.schema import labelled

GENERATED = "generated"
"""Name of the built-in workload: hyper-exponential run times, sizes of powers of two, exponential arrivals."""
_CHECK_STOP_S = 0.1
_PATTERN_LABELS = {"nn": "nearest neighbor (NN)", "aa": "all to all (AA)"}
_JOB_TYPE_LABELS = {
    each.value: f"{each.value.upper()}: {', '.join(f'{share:.0%}' for share in SHARES[each])}" for each in JobType
}

SchemeName = Annotated[str, Meta(extra_json_schema={"enum": list(SCHEMES)})]
Imbalance = Annotated[float, Meta(ge=0, le=2)]


class StudySpec(Struct, frozen=True):
    """What a study simulates. trace: GENERATED, or the name of a file in Standard Workload Format."""

    schemes: Annotated[tuple[SchemeName, ...], Meta(min_length=1, max_length=24), labelled("Schemes")] = (
        "SB", "SB+RO", "PB", "PB+RO",
    )  # fmt: skip
    patterns: Annotated[
        tuple[Pattern, ...],
        Meta(min_length=1, max_length=2),
        labelled("Communication patterns", "With whom a process exchanges messages.", options=_PATTERN_LABELS),
    ] = tuple(Pattern)
    job_types: Annotated[
        tuple[JobType, ...],
        Meta(min_length=1, max_length=3),
        labelled("Workloads", "Shares of computation, I/O, communication.", options=_JOB_TYPE_LABELS),
    ] = tuple(JobType)
    imbalances: Annotated[
        tuple[Imbalance, ...], Meta(min_length=1, max_length=4), labelled("Imbalance v", "0: phases of equal length.")
    ] = (0.5, 1.5)
    seeds: Annotated[
        int,
        Meta(ge=1, le=100),
        labelled("Seeds", "Runs of each cell. With fewer than the default, the paper's statements are not judged."),
    ] = 10
    parameters: Parameters = Parameters()
    trace: Annotated[str, Meta(min_length=1, max_length=100), labelled("Jobs", "Generated, or a trace.")] = GENERATED
    sensitivity: Annotated[
        bool, labelled("Sensitivity", "Also simulates everything with each of four constants halved and doubled.")
    ] = False


class Cell(Struct, frozen=True):
    """A combination whose runs differ by their seed only."""

    scheme: str
    pattern: Pattern
    job_type: JobType
    imbalance: float


class Variant(Struct, frozen=True):
    """A parameter multiplied by a factor, for the sensitivity analysis."""

    parameter: str
    factor: float


class Run(Struct, frozen=True):
    """A finished run. seed: from 1. variant: None with the study's own parameters."""

    cell: Cell
    seed: int
    result: Result
    variant: Variant | None = None


class Task(NamedTuple):
    """A run to make."""

    cell: Cell
    seed: int
    variant: Variant | None


def unavailable_because() -> str | None:
    """Return why no study can run here, None if it can."""
    return None if SIMULATION.is_installed else str(SIMULATION.missing())


def cells_of(spec: StudySpec) -> list[Cell]:
    """Return the cells of a study, in the order of its tables."""
    return [
        Cell(scheme, pattern, job_type, imbalance)
        for pattern, job_type, imbalance, scheme in product(
            spec.patterns, spec.job_types, spec.imbalances, spec.schemes
        )
    ]


def varied(parameters: Parameters, variant: Variant | None) -> Parameters | None:
    """Return the parameters with one of them multiplied, None if that is beyond its bounds."""
    if variant is None:
        return parameters
    value = getattr(parameters, variant.parameter)
    changed = {variant.parameter: type(value)(value * variant.factor)}
    try:
        return msgspec.convert(msgspec.to_builtins(replace(parameters, **changed)), Parameters)
    except msgspec.ValidationError:
        return None


def variants_of(spec: StudySpec) -> list[Variant]:
    """Return the variants of the sensitivity analysis that are within the parameters' bounds."""
    variants = [Variant(name, factor) for name in SENSITIVE for factor in (0.5, 2.0)]
    return [each for each in variants if spec.sensitivity and varied(spec.parameters, each)]


def tasks_of(spec: StudySpec) -> list[Task]:
    """Return all runs of a study: those of the study itself before those of variants, the longest first."""
    messages = expected_messages(spec)
    return [
        Task(cell, seed, variant)
        for variant in (None, *variants_of(spec))
        for cell in sorted(cells_of(spec), key=lambda cell: messages[cell, variant], reverse=True)
        for seed in range(1, spec.seeds + 1)
    ]


def expected_messages(
    spec: StudySpec, trace: Sequence[TraceJob] | None = None
) -> dict[tuple[Cell, Variant | None], float]:
    """Return about how many messages each run of a cell and variant has; a run takes as long as they take.

    trace: jobs of a file, None for generated ones. Raises TraceError.
    """
    found = {}
    for variant in (None, *variants_of(spec)):
        parameters = varied(spec.parameters, variant) or spec.parameters
        jobs = typical(parameters) if trace is None else scaled(trace, parameters)
        in_loop = {pattern: messages_in_loop(jobs, pattern) for pattern in spec.patterns}
        loops = {each: parameters.mean_run_s / sum(phase_of(parameters, each)) for each in spec.job_types}
        for cell in cells_of(spec):
            found[cell, variant] = parameters.jobs * loops[cell.job_type] * in_loop[cell.pattern]
    return found


def simulate_task(parameters: Parameters, task: Task, trace: Sequence[TraceJob] | None) -> Run:
    """Make one run. trace: jobs of a file, None for generated ones. Raises TraceError."""
    from coresteer.simulation.run import run  # noqa: PLC0415 - loads numba, which is an extra

    cell, seed, variant = task
    changed = varied(parameters, variant) or parameters
    jobs = generated(changed, seed) if trace is None else sampled(scaled(trace, changed), changed, seed)
    prepared = prepare(jobs, changed, pattern=cell.pattern, job_type=cell.job_type, imbalance=cell.imbalance, seed=seed)
    return Run(cell, seed, run(changed, SCHEMES[cell.scheme], prepared), variant)


def usable_jobs(spec: StudySpec, trace: Sequence[TraceJob]) -> int:
    """Return how many jobs of a trace fit the study's machine. Raises TraceError if too few for it or a variant."""
    for variant in variants_of(spec):
        scaled(trace, varied(spec.parameters, variant) or spec.parameters)
    return len(scaled(trace, spec.parameters))


def run_study(
    spec: StudySpec,
    trace: Sequence[TraceJob] | None = None,
    workers: int | None = None,
    *,
    nice: int = 0,
    stop: Event | None = None,
) -> Iterator[Run]:
    """Yield the runs of a study as they finish. Closing the iterator, or setting stop, cancels the rest.

    trace: the jobs of the file that the specification names. workers: processes, as many as CPUs by default; nice: of
    these. They end with the thread that calls this. Raises TraceError.
    """
    if trace is not None:
        usable_jobs(spec, trace)
    context = multiprocessing.get_context("spawn")  # the caller may have threads
    others = set(multiprocessing.active_children())
    pool = ProcessPoolExecutor(workers or os.cpu_count(), context, _start_worker, (os.getpid(), nice, trace))
    pending: set[Future[Run]] = {pool.submit(_run_in_worker, spec.parameters, task) for task in tasks_of(spec)}
    try:
        while pending and not (stop is not None and stop.is_set()):
            done, pending = wait(pending, _CHECK_STOP_S, FIRST_COMPLETED)
            yield from (each.result() for each in done)
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
        if pending:  # a run takes up to a minute
            for worker in set(multiprocessing.active_children()) - others:
                worker.terminate()
        pool.shutdown(wait=True)


_worker_trace: list[Sequence[TraceJob] | None] = [None]
"""The trace in a worker process: too large to send with every run."""


def _start_worker(parent: int, nice: int, trace: Sequence[TraceJob] | None) -> None:
    die_with_parent(parent)
    os.nice(nice)
    _worker_trace[0] = trace


def _run_in_worker(parameters: Parameters, task: Task) -> Run:
    return simulate_task(parameters, task, _worker_trace[0])
