"""Job traces in the Standard Workload Format of the Parallel Workloads Archive, version 2.2."""

import gzip
import io
import math
import re
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from msgspec import Struct

from coresteer.localization.language import Language
from coresteer.localization.text import text
from coresteer.simulation.jobs import TraceJob
from coresteer.simulation.parameters import Parameters

MAX_BYTES = 1 << 25
"""Of a file, and of its text; the largest logs of the archive's first decade have 10 MB of text."""
_STARTS = re.compile(r"submit\s+times\s+are\s+(actually\s+)?start\s+times", re.IGNORECASE)
_GZIP = b"\x1f\x8b"


class TraceError(ValueError):
    """A file that is not a usable trace; the message names the file, the line and what to do."""


class TraceFacts(Struct, frozen=True):
    """What a report states about a trace. jobs: with a run time and a size. largest: processes of the largest job.

    is_submit_start: its header says that submit times are start times. usable: jobs of several processes after scaling
    to a study's machine, None for the trace itself.
    """

    name: str
    jobs: int
    largest: int
    is_submit_start: bool
    usable: int | None = None


class Trace(NamedTuple):
    """The jobs of a trace that ran and have a size, in order of submission."""

    facts: TraceFacts
    jobs: list[TraceJob]


def read_trace(path: Path) -> Trace:
    """Return a file's trace. Raises TraceError for one that is too large or malformed, OSError if it is unreadable."""
    with path.open("rb") as file:
        return parse_trace(unpacked(file.read(MAX_BYTES + 1), path.name), path.name)


def unpacked(data: bytes, name: str) -> bytes:
    """Return the text of a trace that may be gzipped. Raises TraceError if it is too large or damaged."""
    try:
        text = gzip.GzipFile(fileobj=io.BytesIO(data)).read(MAX_BYTES + 1) if data.startswith(_GZIP) else data
    except (OSError, EOFError, zlib.error):
        raise TraceError(f"{name} is a damaged gzip file.") from None
    if max(len(data), len(text)) > MAX_BYTES:
        raise TraceError(f"{name} is larger than {MAX_BYTES >> 20} MiB. Cut it to the jobs that are needed.")
    return text


def parse_trace(data: bytes, name: str) -> Trace:
    """Return the trace of a text. Fields: 2 submit time, 4 run time, 5 allocated, 8 requested processors."""
    jobs, comments = [], []
    for number, line in enumerate(data.decode("ascii", "replace").splitlines(), 1):
        fields = line.split()
        if not fields:
            continue
        if fields[0].startswith(";"):
            comments += [fields[0][1:], *fields[1:]]
            continue
        try:
            submit_s, run_s = float(fields[1]), float(fields[3])
            size = int(fields[4]) if int(fields[4]) > 0 else int(fields[7])
        except (IndexError, ValueError):
            raise TraceError(f"Line {number} of {name} is not a job in Standard Workload Format.") from None
        if run_s > 0 and size > 0 and math.isfinite(submit_s + run_s):
            jobs.append(TraceJob(submit_s, run_s, size))
    if not jobs:
        raise TraceError(f"{name} has no job with a run time and a size.")
    jobs.sort(key=lambda job: job.submit_s)
    is_submit_start = _STARTS.search(" ".join(comments)) is not None
    return Trace(TraceFacts(name, len(jobs), max(job.size for job in jobs), is_submit_start), jobs)


def scaled(trace: Sequence[TraceJob], parameters: Parameters) -> list[TraceJob]:
    """Return the jobs of a trace as they fit the machine: sizes × nodes ÷ largest size, rounded to powers of two.

    Jobs of a single process are dropped, as they do not communicate. Raises TraceError if too few are left.
    """
    largest = max(job.size for job in trace)
    found = []
    for job in trace:
        size = 2 ** round(math.log2(job.size * parameters.nodes / largest))
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


def trace_sentences(facts: TraceFacts | None, parameters: Parameters, language: Language = "en") -> list[str]:
    """Return which jobs a study had and how they were scaled. facts: None for generated jobs."""
    if facts is None:
        return [text(language, "study.jobs.generated", jobs=parameters.jobs)]
    fitted = {"nodes": parameters.nodes, "largest": facts.largest, "usable": facts.usable, "jobs": parameters.jobs}
    sentences = [
        text(language, "study.jobs.trace", name=facts.name, jobs=facts.jobs, largest=facts.largest),
        text(language, "study.jobs.sizes", **fitted),
        text(language, "study.jobs.times"),
    ]
    return [*sentences, text(language, "study.jobs.starts")] if facts.is_submit_start else sentences
