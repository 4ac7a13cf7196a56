"""The time-sharing class of Solaris: its dispatch table (System Administration Guide, “Timesharing Parameter Table”).

Levels 0 to 59; the higher one runs. Each has a time quantum, and three levels that a process continues with: after its
quantum expired, after it slept, and after it waited for longer than maxwait (counted once a second) in the ready queue.
"""

import numpy as np
from numpy.typing import NDArray

LEVELS = 60
HIGHEST = LEVELS - 1
FIRST_LEVEL = 29
"""Of a new process."""
TICK_S = 1.0
"""Waiting is counted once in this time."""


def _by_level(*groups: tuple[int, int]) -> NDArray[np.int64]:
    """Return one value for each level from (last level, value) pairs."""
    found, begin = np.zeros(LEVELS, np.int64), 0
    for last, value in groups:
        found[begin : last + 1] = value
        begin = last + 1
    return found


QUANTUM_S = _by_level((9, 200), (19, 160), (29, 120), (39, 80), (58, 40), (59, 20)) / 1000.0
EXPIRED = np.maximum(0, np.arange(LEVELS) - 10)
SLEPT = _by_level((9, 50), (19, 51), (29, 52), (34, 53), (39, 54), (44, 55), (45, 56), (46, 57), (58, 58), (59, 59))
WAITED = _by_level((9, 50), (19, 51), (29, 52), (34, 53), (39, 54), (44, 55), (45, 56), (46, 57), (48, 58), (59, 59))
MAX_WAIT = _by_level((58, 0), (59, 32_000))
