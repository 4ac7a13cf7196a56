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
    sizes = 2 ** random.integers(1, _powers(parameters) + 1, parameters.jobs)
    submits = np.cumsum(random.exponential(1.0, parameters.jobs))
    return [TraceJob(*row) for row in zip(submits.tolist(), run_s.tolist(), sizes.tolist(), strict=True)]


def _powers(parameters: Parameters) -> int:
    """Return the largest power of two that is the size of a generated job."""
    return int(np.log2(min(16, parameters.nodes)))


def typical(parameters: Parameters) -> list[TraceJob]:
    """Return a job of every size of generated jobs, which are all equally frequent."""
    return [TraceJob(0.0, 1.0, 2**power) for power in range(1, _powers(parameters) + 1)]


def phase_of(parameters: Parameters, job_type: JobType) -> tuple[float, float, float]:
    """Return how long computation, I/O and communication of a loop take without imbalance."""
    compute, io, communicate = SHARES[job_type]
    exchange_s = parameters.exchange_s
    return exchange_s * compute / communicate, exchange_s * io / communicate, exchange_s


def _peers(size: NDArray[np.int64], pattern: Pattern) -> NDArray[np.int64]:
    """Return how many messages a process sends in a loop, by size of the job."""
    others: NDArray[np.int64] = size - 1
    return np.minimum(2, others) if pattern is Pattern.NEAREST_NEIGHBOR else others


def messages_in_loop(trace: Sequence[TraceJob], pattern: Pattern) -> float:
    """Return how many messages a job sends in a loop, the mean over the loops of all jobs."""
    run_s, size = _run_times(trace), np.array([job.size for job in trace], np.int64)
    return float((run_s * size * _peers(size, pattern)).mean() / run_s.mean())


def _run_times(trace: Sequence[TraceJob]) -> NDArray[np.float64]:
    run_s = np.array([job.run_s for job in trace])
    clipped: NDArray[np.float64] = np.minimum(run_s, np.percentile(run_s, CLIP))
    return clipped


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
    run_s = _run_times(trace)
    run_s *= parameters.mean_run_s / run_s.mean()
    size = np.array([job.size for job in trace], np.int64)
    compute_s, io_s, exchange_s = phase_of(parameters, job_type)
    phase_s = compute_s + io_s + exchange_s
    loops = np.maximum(1, np.rint(run_s / phase_s)).astype(np.int64)
    peers = _peers(size, pattern)
    wire_s = np.maximum(exchange_s - 2 * peers * parameters.host_s, parameters.latency_s)
    submit_s = np.array([job.submit_s for job in trace])
    submit_s -= submit_s.min()
    ideal_s = np.asarray(loops * phase_s, np.float64)
    needed_s = float((ideal_s * size).sum()) / (parameters.offered * parameters.nodes)
    span_s = submit_s.max() or 1.0
    random = np.random.default_rng([seed, 1])
    return Jobs(
        submit_s * needed_s / span_s, size, loops, peers, wire_s, ideal_s,
        random.integers(0, FACTORS, (len(trace), int(size.max()))), _factors(random, parameters, imbalance),
        0 if parameters.imbalance == "per_process" else 2, compute_s, io_s, pattern is Pattern.NEAREST_NEIGHBOR,
    )  # fmt: skip


def _factors(random: np.random.Generator, parameters: Parameters, v: float) -> NDArray[np.float64]:
    if parameters.imbalance == "gamma":
        return random.gamma(1.0 / v, v, FACTORS) if v else np.ones(FACTORS)
    return 1.0 + v * (random.random(FACTORS) - 0.5)
