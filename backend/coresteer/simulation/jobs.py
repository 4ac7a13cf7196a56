"""The jobs of a run: sizes, ideal run times and arrivals, generated or read from a trace, and their random numbers."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from coresteer.simulation.parameters import SHARES, JobType, Parameters, Pattern

FACTORS = 1 << 20
"""Of computation and I/O in a run, for its imbalance; each process reads them from an offset of its own."""
CLIP = 95.0
"""Percentile at which run times are cut off."""


class TraceJob(NamedTuple):
    """A job of a trace. submit_s: relative to any origin. size: processes."""

    submit_s: float
    run_s: float
    size: int


class Jobs(NamedTuple):
    """Jobs in order of arrival. compute_s, io_s: of a phase of each process. delay_s: of a message, by size of the job.

    peers: messages that a process sends in a phase, by job. offset: of each process's factors, by job and rank; stride:
    from those of one phase to those of the next. ideal_s: response time alone on the machine, without imbalance and
    overhead.
    """

    arrival_s: NDArray[np.float64]
    size: NDArray[np.int64]
    loops: NDArray[np.int64]
    peers: NDArray[np.int64]
    delay_s: NDArray[np.float64]
    ideal_s: NDArray[np.float64]
    offset: NDArray[np.int64]
    factors: NDArray[np.float64]
    stride: int
    compute_s: float
    io_s: float
    ring: bool


def generated(parameters: Parameters, seed: int) -> list[TraceJob]:
    """Return jobs with hyper-exponential run times, sizes of powers of two and exponential times between arrivals."""
    random = np.random.default_rng(seed)
    long = random.random(parameters.jobs) < 0.3
    run_s = random.exponential(np.where(long, 2.4, 0.4))  # mean 1, squared coefficient of variation about 2.7
    powers = int(np.log2(min(16, parameters.nodes)))
    sizes = 2 ** random.integers(1, powers + 1, parameters.jobs)
    submits = np.cumsum(random.exponential(1.0, parameters.jobs))
    return [TraceJob(*row) for row in zip(submits.tolist(), run_s.tolist(), sizes.tolist(), strict=True)]


def prepare(
    trace: Sequence[TraceJob],
    parameters: Parameters,
    *,
    pattern: Pattern,
    job_type: JobType,
    imbalance: float,
    seed: int,
) -> Jobs:
    """Return a run's jobs: run times scaled to their mean, arrivals to the offered load. imbalance: v, 0 to 2."""
    run_s = np.array([job.run_s for job in trace])
    run_s = np.minimum(run_s, np.percentile(run_s, CLIP))
    run_s *= parameters.mean_run_s / run_s.mean()
    size = np.array([job.size for job in trace], np.int64)
    compute, io, communicate = SHARES[job_type]
    exchange_s = parameters.exchange_s
    compute_s, io_s = exchange_s * compute / communicate, exchange_s * io / communicate
    phase_s = compute_s + io_s + exchange_s
    loops = np.maximum(1, np.rint(run_s / phase_s)).astype(np.int64)
    ring = pattern is Pattern.NEAREST_NEIGHBOR
    peers = np.minimum(2, size - 1) if ring else size - 1
    wire_s = np.maximum(exchange_s - 2 * peers * parameters.host_s, parameters.latency_s)
    submit_s = np.array([job.submit_s for job in trace])
    submit_s -= submit_s.min()
    ideal_s = loops * phase_s
    needed_s = float((ideal_s * size).sum()) / (parameters.offered * parameters.nodes)
    span_s = submit_s.max() or 1.0
    random = np.random.default_rng([seed, 1])
    return Jobs(
        submit_s * needed_s / span_s, size, loops, peers, wire_s, ideal_s,
        random.integers(0, FACTORS, (len(trace), int(size.max()))), _factors(random, parameters, imbalance),
        0 if parameters.imbalance == "per_process" else 2, compute_s, io_s, ring,
    )  # fmt: skip


def _factors(random: np.random.Generator, parameters: Parameters, v: float) -> NDArray[np.float64]:
    if parameters.imbalance == "gamma":
        return random.gamma(1.0 / v, v, FACTORS) if v else np.ones(FACTORS)
    return 1.0 + v * (random.random(FACTORS) - 0.5)
