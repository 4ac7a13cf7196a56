"""How long a study takes: before it starts from the number of its messages, and while it runs from those done."""

from collections.abc import Sequence

from msgspec import Struct

from coresteer.localization.numbers import counted
from coresteer.simulation.jobs import TraceJob
from coresteer.simulation.study import StudySpec, expected_messages

MESSAGES_PER_S = 780_000
"""That a process simulates: the study of figures 4 and 5 in two processes on two virtual CPUs of an AMD EPYC."""
START_S = 3.0
"""Until the workers have loaded the compiled engine."""
_MIN, _H = 60.0, 3600.0


class Estimate(Struct, frozen=True):
    """What a study will take. messages, duration_s: about; without the first compilation of the engine."""

    runs: int
    messages: float
    duration_s: float
    cpus: int
    sentence: str


def estimate(spec: StudySpec, cpus: int, trace: Sequence[TraceJob] | None = None) -> Estimate:
    """Return what a study will take on a number of CPUs. trace: jobs of the file that it names. Raises TraceError."""
    of_run = expected_messages(spec, trace)
    runs, messages = spec.seeds * len(of_run), spec.seeds * sum(of_run.values())
    used = min(cpus, runs)
    duration_s = START_S + max(messages / used, *of_run.values()) / MESSAGES_PER_S
    sentence = f"{counted(runs, 'run')}, estimated to take about {_roughly(duration_s)} on {counted(used, 'CPU')}."
    return Estimate(runs, messages, duration_s, used, sentence)


def _roughly(duration_s: float) -> str:
    if duration_s < 1.5 * _MIN:
        return f"{duration_s:.0f} s"
    return f"{duration_s / _MIN:.0f} min" if duration_s < 1.5 * _H else f"{duration_s / _H:.1f} h"


def remaining_s(elapsed_s: float, done: float, total: float, estimated_s: float) -> float | None:
    """Return about how long a study still takes: from its estimate until 2 % are done, then from what is done.

    done, total: messages. estimated_s: of the whole study. None where it takes longer than that with too little done.
    """
    if done >= 0.02 * total:
        return elapsed_s * (total - done) / done
    return estimated_s - elapsed_s if elapsed_s < estimated_s else None
