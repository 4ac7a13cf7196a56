"""Job traces in the Standard Workload Format of the Parallel Workloads Archive, version 2.2."""

import gzip
from pathlib import Path

import numpy as np

from coresteer.simulation.jobs import TraceJob
from coresteer.simulation.parameters import Parameters

MAX_BYTES = 1 << 28


class TraceError(ValueError):
    """A file that is not a usable trace; the message names the file, the line and what to do."""


def read_trace(path: Path) -> list[TraceJob]:
    """Return the jobs of a trace that ran and have a size, in order of submission. The file may be gzipped.

    Raises TraceError for a file that is too large or malformed, OSError if it cannot be read.
    """
    with (gzip.open if path.suffix == ".gz" else open)(path, "rb") as file:
        data = file.read(MAX_BYTES + 1)
    if len(data) > MAX_BYTES:
        raise TraceError(f"{path.name} is larger than {MAX_BYTES >> 20} MiB. Cut it to the jobs that are needed.")
    return parse_trace(data, path.name)


def parse_trace(data: bytes, name: str) -> list[TraceJob]:
    """Return the jobs of a trace's text. Fields: 2 submit time, 4 run time, 5 allocated, 8 requested processors."""
    jobs = []
    for number, line in enumerate(data.decode("ascii", "replace").splitlines(), 1):
        fields = line.split()
        if not fields or fields[0].startswith(";"):
            continue
        try:
            submit_s, run_s = float(fields[1]), float(fields[3])
            size = int(fields[4]) if int(fields[4]) > 0 else int(fields[7])
        except (IndexError, ValueError):
            raise TraceError(f"Line {number} of {name} is not a job in Standard Workload Format.") from None
        if run_s > 0 and size > 0:
            jobs.append(TraceJob(submit_s, run_s, size))
    if not jobs:
        raise TraceError(f"{name} has no job with a run time and a size.")
    return sorted(jobs, key=lambda job: job.submit_s)


def scaled(trace: list[TraceJob], parameters: Parameters) -> list[TraceJob]:
    """Return the jobs of a trace as they fit the machine: sizes × nodes ÷ largest size, rounded to powers of two.

    Jobs of a single process are dropped, as they do not communicate. Raises TraceError if too few are left.
    """
    largest = max(job.size for job in trace)
    found = []
    for job in trace:
        size = 2 ** round(float(np.log2(job.size * parameters.nodes / largest)))
        if size >= 2:
            found.append(job._replace(size=min(size, parameters.nodes)))
    if len(found) < parameters.jobs:
        raise TraceError(
            f"The trace has {len(found)} jobs of several processes, fewer than the {parameters.jobs} needed."
        )
    return found


def sampled(jobs: list[TraceJob], parameters: Parameters, seed: int) -> list[TraceJob]:
    """Return consecutive jobs of a scaled trace, from a random one on."""
    random = np.random.default_rng([seed, 2])
    first = int(random.integers(0, len(jobs) - parameters.jobs + 1))
    return jobs[first : first + parameters.jobs]
