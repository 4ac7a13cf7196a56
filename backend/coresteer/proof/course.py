"""The effect of a version over time, at a bounded number of times however long it is in force. Pure."""

from collections.abc import Sequence
from datetime import datetime

import numpy as np

from coresteer.proof.confidence_sequence import Evidence, half_width
from coresteer.proof.schemas import EffectAt
from coresteer.proof.sums_repository import Sum

POINTS = 200
"""Times at which an effect is reported; sums are stored for at most twice this number."""
_SHORTEST_STEP_S = 20


def course_step_s(age_s: float) -> int:
    """Return the distance of the times for which the sums of a version are stored, by the age of its proof.

    It is doubled whenever the age is, so that the sums of two adjacent times become one.
    """
    step_s = _SHORTEST_STEP_S
    while age_s > POINTS * step_s:
        step_s *= 2
    return step_s


def effects_at(course: Sequence[tuple[datetime, Sum]], rho: float, alpha: float, now: datetime) -> list[EffectAt]:
    """Return the effect as it was known at the ends of at most POINTS steps with the same number of sums."""
    if not course:
        return []
    running = [np.cumsum([float(one[field]) for _, one in course]) for field in range(3)]
    evidence = Evidence(*running)
    means, halves = evidence.total / evidence.episodes, half_width(evidence, rho, alpha)
    chosen = sorted({round(at) for at in np.linspace(0, len(course) - 1, min(POINTS, len(course)))})
    return [
        EffectAt(
            at=min(course[at][0], now),  # the last step has not ended yet
            estimate=float(np.expm1(means[at])),
            low=float(np.expm1(means[at] - halves[at])) if np.isfinite(halves[at]) else None,
            high=float(np.expm1(means[at] + halves[at])) if np.isfinite(halves[at]) else None,
            episodes=int(evidence.episodes[at]),
        )
        for at in chosen
    ]
