"""A study: every combination of schemes, patterns, job types and imbalance, with several seeds, on all CPUs.

All schemes of a combination and seed have the same jobs and random numbers, so their differences are paired.
"""

import multiprocessing
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from itertools import product
from typing import Annotated

from msgspec import Meta, Struct

from coresteer.simulation.jobs import TraceJob, generated, prepare
from coresteer.simulation.parameters import JobType, Parameters, Pattern
from coresteer.simulation.run import Result, run
from coresteer.simulation.schemes import SCHEMES
from coresteer.simulation.swf import sampled, scaled

GENERATED = "generated"
"""Name of the built-in workload: hyper-exponential run times, sizes of powers of two, exponential arrivals."""


Imbalance = Annotated[float, Meta(ge=0, le=2)]


class StudySpec(Struct, frozen=True):
    """What a study simulates. trace: GENERATED, or the name of a file in Standard Workload Format."""

    schemes: Annotated[tuple[str, ...], Meta(min_length=1, max_length=24)] = ("SB", "SB+RO", "PB", "PB+RO")
    patterns: Annotated[tuple[Pattern, ...], Meta(min_length=1, max_length=2)] = tuple(Pattern)
    job_types: Annotated[tuple[JobType, ...], Meta(min_length=1, max_length=3)] = tuple(JobType)
    imbalances: Annotated[tuple[Imbalance, ...], Meta(min_length=1, max_length=4)] = (0.5, 1.5)
    seeds: Annotated[int, Meta(ge=1, le=100)] = 10
    parameters: Parameters = Parameters()
    trace: str = GENERATED


class Cell(Struct, frozen=True):
    """A combination whose runs differ by their seed only."""

    scheme: str
    pattern: Pattern
    job_type: JobType
    imbalance: float


class Run(Struct, frozen=True):
    """A finished run. seed: from 1."""

    cell: Cell
    seed: int
    result: Result


def cells_of(spec: StudySpec) -> list[Cell]:
    """Return the cells of a study, in the order of its tables."""
    return [
        Cell(scheme, pattern, job_type, imbalance)
        for pattern, job_type, imbalance, scheme in product(
            spec.patterns, spec.job_types, spec.imbalances, spec.schemes
        )
    ]


def simulate_cell(parameters: Parameters, cell: Cell, seed: int, trace: Sequence[TraceJob] | None) -> Run:
    """Run one cell with one seed. trace: jobs scaled to the machine, None for generated ones."""
    jobs = sampled(list(trace), parameters, seed) if trace is not None else generated(parameters, seed)
    prepared = prepare(
        jobs, parameters, pattern=cell.pattern, job_type=cell.job_type, imbalance=cell.imbalance, seed=seed
    )
    return Run(cell, seed, run(parameters, SCHEMES[cell.scheme], prepared))


def run_study(spec: StudySpec, trace: list[TraceJob] | None = None, workers: int | None = None) -> Iterator[Run]:
    """Yield the runs of a study as they finish. Closing the iterator cancels the rest. Raises TraceError.

    trace: the jobs of the file that the specification names. workers: processes, as many as CPUs by default.
    """
    jobs = scaled(trace, spec.parameters) if trace is not None else None
    context = multiprocessing.get_context("spawn")  # the caller may have threads
    with ProcessPoolExecutor(workers or os.cpu_count(), context) as pool:
        runs: list[Future[Run]] = [
            pool.submit(simulate_cell, spec.parameters, cell, seed, jobs)
            for cell in sorted(cells_of(spec), key=lambda cell: cell.pattern)  # all-to-all, the longest, first
            for seed in range(1, spec.seeds + 1)
        ]
        try:
            for done in as_completed(runs):
                yield done.result()
        finally:
            pool.shutdown(wait=True, cancel_futures=True)
