"""Wash-out: how much of each block is left out because the metric still follows the switch before it. Pure.

After a switch a metric approaches its new level, often exponentially. The wash-out is chosen from the episodes of the
past alone, so that it is fixed before an episode begins. Without an effect there is nothing to decay and the sequence
is valid whatever the wash-out is; with one, a wash-out that is too short makes the effect look smaller.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from coresteer_core.policies.base import ROUND_PERIOD_S

F64 = npt.NDArray[np.float64]

MIN_SWITCHES = 30
"""Switches before which the decay is not estimated."""
DECAYS = 4.0
"""Length of the wash-out in time constants: what remains then is below 2 % of the effect."""
SWITCH_S = 2 * ROUND_PERIOD_S
"""Maximum time from the instruction to an agent to switch until it has switched."""
_SIGNIFICANT = 3.0
_LONGEST = 0.5  # of a block
_CONSTANTS = np.geomspace(0.2, 5.0, 33)  # in buckets


@dataclass(frozen=True)
class Switch:
    """A block after a switch: the logarithm of the metric in each of its parts (NaN where unknown), and to what."""

    to_enforced: bool
    parts: Sequence[float]


@dataclass(frozen=True)
class Decay:
    """Decay of a metric after a switch: its time constant, and the share of a block's parts to leave out."""

    constant_s: float
    washout_s: float


def measured_decay(switches: Sequence[Switch], bucket_s: float) -> Decay | None:
    """Return the decay that is visible after these switches; None with too few of them, or where none is visible.

    Least squares of an exponential curve on the mean course after switches, whose sign is that of the switch: drift
    and daily cycles cancel because a coin decided which switches there are.
    """
    signed = _signed_courses(switches)
    if len(signed) < MIN_SWITCHES:
        return None
    course = signed.mean(axis=0)
    curves = _curves(signed.shape[1])
    sizes = curves @ course / (curves**2).sum(axis=1)
    misfits = ((course - sizes[:, None] * curves) ** 2).sum(axis=1)
    best = int(misfits.argmin())
    of_each = signed @ curves[best]
    if abs(float(of_each.mean())) <= _SIGNIFICANT * float(of_each.std(ddof=1)) / math.sqrt(len(of_each)):
        return None
    constant_s = float(_CONSTANTS[best]) * bucket_s
    return Decay(constant_s, _whole_buckets(DECAYS * constant_s, bucket_s, signed.shape[1]))


def washout(switches: Sequence[Switch], bucket_s: float, buckets: int) -> float:
    """Return the wash-out in seconds for episodes to come: whole parts of a block, half of the block at most.

    Half of the block while there are too few switches.
    """
    if len(_signed_courses(switches)) < MIN_SWITCHES:
        return bucket_s * int(_LONGEST * buckets)
    decay = measured_decay(switches, bucket_s)
    return max(shortest_washout(bucket_s, buckets), 0.0 if decay is None else decay.washout_s)


def shortest_washout(bucket_s: float, buckets: int) -> float:
    """Return the wash-out in seconds where no decay is visible: one part of a block, and time for the agent to switch.

    At most half of the block.
    """
    return _whole_buckets(SWITCH_S, bucket_s, buckets)


def _signed_courses(switches: Sequence[Switch]) -> F64:
    """Return the course of the metric about its mean in each block, with the sign of the switch; switches × parts.

    Blocks of which a part is unknown are left out.
    """
    if not switches:
        return np.empty((0, 1))
    parts = np.array([switch.parts for switch in switches], np.float64)
    signs = np.array([1.0 if switch.to_enforced else -1.0 for switch in switches])
    signed: F64 = (parts - parts.mean(axis=1, keepdims=True)) * signs[:, None]
    known: F64 = signed[np.isfinite(signed).all(axis=1)]
    return known


def _whole_buckets(seconds: float, bucket_s: float, buckets: int) -> float:
    return bucket_s * min(max(1, math.ceil(seconds / bucket_s - 1e-9)), int(_LONGEST * buckets))


def _curves(buckets: int) -> F64:
    """Return for each time constant the mean of exp(−t / constant) in each bucket, about its mean."""
    edges = np.exp(-np.arange(buckets + 1)[None, :] / _CONSTANTS[:, None])
    means = _CONSTANTS[:, None] * (edges[:, :-1] - edges[:, 1:])
    curves: F64 = means - means.mean(axis=1, keepdims=True)
    return curves
