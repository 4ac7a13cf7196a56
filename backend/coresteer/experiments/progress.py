"""What comes next in an experiment. Pure."""

_PRIOR_RUNS = 2
"""So many runs count as having taken as long as planned, before there are any."""


def remaining_s(*, planned_s: float, planned: int, done: int, elapsed_s: float) -> float:
    """How long it will still take, from what the runs so far took with all that was lost on the way."""
    each_s = (_PRIOR_RUNS * planned_s / planned + elapsed_s) / (_PRIOR_RUNS + done + 0.5)
    return max(0.0, each_s * (planned - done - 0.5))
