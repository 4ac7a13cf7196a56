"""Which steps of a time range the intervals of samples and roll-ups fill. Pure."""

from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from coresteer.telemetry.byte_columns import F64

Positions: TypeAlias = npt.NDArray[np.int64]


def filled_steps(starts: F64, ends: F64, count: int) -> tuple[Positions, Positions]:
    """Return pairs of a step and the position of an interval that fills it, ordered by step.

    starts, ends: of the intervals, in steps from the begin of the range; count: its steps. An interval fills the step
    of its middle and every step whose middle lies in it: consecutive intervals leave no gap, and no interval is lost.
    """
    middle = np.floor((starts + ends) / 2).astype(np.int64)
    first = np.minimum(np.ceil(starts - 0.5).astype(np.int64), middle)
    last = np.maximum(np.ceil(ends - 0.5).astype(np.int64) - 1, middle)
    first, last = np.maximum(first, 0), np.minimum(last, count - 1)
    repeats = np.maximum(last - first + 1, 0)
    interval = np.repeat(np.arange(len(starts)), repeats)
    offset = np.arange(len(interval)) - np.repeat(np.cumsum(repeats) - repeats, repeats)
    step = first[interval] + offset
    order = np.argsort(step, kind="stable")
    return step[order], interval[order]
