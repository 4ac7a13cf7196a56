"""Observation of a change: figures in the 2 minutes before and after it, next to how much they usually differ. Pure.

An observation is no proof: anything else may have changed in the same minutes.
"""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from msgspec import Struct

from coresteer.telemetry.byte_columns import F64

WINDOW_S = 120
"""Length of the windows before and after a change."""
HISTORY_S = 3600
"""Length of the time before a change whose differences are the usual ones."""
MIN_AFTER_S = 20
"""A shorter time after the change is not compared."""
MIN_HISTORY_S = 1800
"""With less of the hour on record, the usual range is unknown."""
USUAL_PERCENT = 95
_BIN_S = 10
_MIN_COVERED = 0.8
_ROUNDING = 1e-9


class Subject(NamedTuple):
    """A figure: a metric of the node (subject ""), or of ``cpu:3``, ``irq:41`` or ``nic:eth0`` as in a page's URL."""

    metric: str
    subject: str = ""


class Lines(NamedTuple):
    """Figures of a node's samples: middles of the intervals (Unix ms), their lengths, and values, NaN where unknown."""

    middles_ms: F64
    seconds: F64
    values: Mapping[Subject, F64]


class ObservedFigure(Struct, frozen=True):
    """Means of one figure before and after a change; None where unknown.

    metric: of coresteer_core.metrics. subject: "" for the whole node, else ``cpu:3``, ``irq:41`` or ``nic:eth0``.
    usual_least, usual_most: the range of 95 % of the differences in the hour before; None where too little of it is on
    record. has_moved: whether the difference lies beyond it.
    """

    metric: str
    subject: str
    before: float | None
    after: float | None
    usual_least: float | None
    usual_most: float | None
    has_moved: bool | None


class Observation(Struct, frozen=True):
    """Comparison of a node's figures before and after a change; an observation, not proof.

    before_s, after_s: how much of the windows is on record, at most 120 s each. is_complete: the window after the
    change is over, and its samples have arrived or are not waited for any longer. other_changes: how many others were
    applied on the node in the same minutes. missing: why there is no comparison or no usual range, as a sentence; empty
    where nothing is missing.
    """

    before_s: float
    after_s: float
    is_complete: bool
    other_changes: int
    missing: str
    figures: list[ObservedFigure]


class Moments(NamedTuple):
    """When a change happened, in Unix ms of the node's clock. began: before its first write; applied: after the last.

    end: of the window after it, at most 2 minutes after applied.
    """

    began_ms: float
    applied_ms: float
    end_ms: float


def nothing_observed(missing: str, *, is_complete: bool) -> Observation:
    """Return the observation of a change without a comparison, with the reason."""
    return Observation(0.0, 0.0, is_complete, 0, missing, [])


def observe(lines: Lines, at: Moments, *, is_complete: bool, other_changes: int) -> Observation:
    """Return the comparison of the 2 minutes before a change with those after it, from samples of the hour before on.

    While the window after the change is shorter than 2 minutes, its mean is compared with the usual differences
    between 2 minutes and as short a time that follows them. It ends at the newest sample, which may be as old as a
    block lasts.
    """
    if not is_complete and lines.middles_ms.size:
        newest_ms = float((lines.middles_ms + 500 * lines.seconds).max())
        at = at._replace(end_ms=max(at.applied_ms, min(at.end_ms, newest_ms)))
    length_s = (at.end_ms - at.applied_ms) / 1000
    before = _within(lines, at.began_ms - WINDOW_S * 1000, at.began_ms)
    after = _within(lines, at.applied_ms, at.end_ms)
    before_s, after_s = (min(float(lines.seconds[window].sum()), float(WINDOW_S)) for window in (before, after))
    missing = _missing(length_s, before_s, after_s, is_complete=is_complete)
    if missing:
        return Observation(before_s, after_s, is_complete, other_changes, missing, [])
    bins = _Bins(lines, at.began_ms, round(length_s / _BIN_S))
    figures = []
    for subject, values in lines.values.items():
        means = [_mean(values[window], lines.seconds[window]) for window in (before, after)]
        if means != [None, None]:
            figures.append(_figure(subject, means[0], means[1], bins.usual_range(values)))
    missing = "" if bins.history_s >= MIN_HISTORY_S else _short_history(bins.history_s)
    return Observation(before_s, after_s, is_complete, other_changes, missing, figures)


def _within(lines: Lines, start_ms: float, end_ms: float) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    found: np.ndarray[tuple[int], np.dtype[np.bool_]] = (lines.middles_ms >= start_ms) & (lines.middles_ms < end_ms)
    return found


def _missing(length_s: float, before_s: float, after_s: float, *, is_complete: bool) -> str:
    if length_s < MIN_AFTER_S:
        if is_complete:
            return f"The change was in force for {length_s:.0f} s only; a comparison takes {MIN_AFTER_S} s."
        return f"The comparison begins {MIN_AFTER_S} s after the change was applied."
    if before_s < _MIN_COVERED * WINDOW_S:
        return f"Not enough data: only {before_s:.0f} s of the 2 minutes before the change are on record."
    if after_s < _MIN_COVERED * length_s:
        return f"Not enough data: only {after_s:.0f} s of the {length_s:.0f} s after the change are on record."
    return ""


def _short_history(history_s: float) -> str:
    return (
        f"Not enough data to tell what is usual: {history_s / 60:.0f} min of the hour before the change are on record, "
        f"and {MIN_HISTORY_S // 60} min are needed."
    )


def _mean(values: F64, seconds: F64) -> float | None:
    known = ~np.isnan(values)
    covered = float(seconds[known].sum())
    if not covered or covered < _MIN_COVERED * float(seconds.sum()):
        return None
    return float(values[known] @ seconds[known]) / covered


class _Bins:
    """The hour before a change in bins of 10 s, and the differences of adjacent windows in it.

    after_bins: length of the later window of each pair; the earlier one lasts 2 minutes.
    """

    def __init__(self, lines: Lines, end_ms: float, after_bins: int) -> None:
        self._lines = lines
        self._count = HISTORY_S // _BIN_S
        self._after_bins = after_bins
        place = np.floor((lines.middles_ms - end_ms) / (_BIN_S * 1000)).astype(np.int64) + self._count
        self._inside = (place >= 0) & (place < self._count)
        self._place = place[self._inside]
        self.history_s = float(lines.seconds[self._inside].sum())

    def usual_range(self, values: F64) -> tuple[float, float] | None:
        """Return the range of 95 % of a figure's differences, None with less than half an hour of it on record."""
        values, seconds = values[self._inside], self._lines.seconds[self._inside]
        known = ~np.isnan(values)
        place, seconds = self._place[known], seconds[known]
        if seconds.sum() < MIN_HISTORY_S:
            return None
        amounts = self._cumulative(place, values[known] * seconds)
        covered = self._cumulative(place, seconds)
        split = np.arange(WINDOW_S // _BIN_S, self._count - self._after_bins + 1)
        earlier = _means(amounts, covered, split - WINDOW_S // _BIN_S, split)
        later = _means(amounts, covered, split, split + self._after_bins)
        differences = later - earlier
        differences = differences[~np.isnan(differences)]
        if not differences.size:
            return None
        tail = (100 - USUAL_PERCENT) / 2
        least, most = np.percentile(differences, [tail, 100 - tail])
        return float(least), float(most)

    def _cumulative(self, place: np.ndarray[tuple[int], np.dtype[np.int64]], weights: F64) -> F64:
        return np.concatenate(([0.0], np.cumsum(np.bincount(place, weights, minlength=self._count))))


def _means(
    amounts: F64,
    covered: F64,
    start: np.ndarray[tuple[int], np.dtype[np.int64]],
    end: np.ndarray[tuple[int], np.dtype[np.int64]],
) -> F64:
    """Return the means of windows of bins; NaN where less than four fifths of one are on record."""
    seconds = covered[end] - covered[start]
    enough = seconds >= _MIN_COVERED * _BIN_S * (end - start)
    return np.where(enough, amounts[end] - amounts[start], np.nan) / np.where(enough, seconds, 1.0)


def _figure(
    subject: Subject, before: float | None, after: float | None, usual: tuple[float, float] | None
) -> ObservedFigure:
    has_moved = None
    if before is not None and after is not None and usual is not None:
        slack = _ROUNDING * max(abs(before), abs(after))
        has_moved = not usual[0] - slack <= after - before <= usual[1] + slack
    least, most = usual or (None, None)
    return ObservedFigure(subject.metric, subject.subject, before, after, least, most, has_moved)
