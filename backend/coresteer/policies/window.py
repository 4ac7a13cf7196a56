"""Change windows: times of the week, by the clock of a time zone, at which policies may write. Pure."""

from collections.abc import Collection, Sequence
from datetime import UTC, datetime, time, timedelta, tzinfo
from itertools import pairwise

from msgspec import Struct

DAY_MINUTES = 24 * 60
_AHEAD = timedelta(days=8)
_GRID = timedelta(minutes=30)
"""Offsets of time zones change at full or half hours of UTC."""


class Window(Struct, frozen=True):
    """A time of the week. weekdays: on which it begins, 0 is Monday. start_min, end_min: minutes since midnight.

    It ends on the next day if end_min ≤ start_min, after 24 h by the clock if they are equal. An hour that the clock
    skips does not count; one that it repeats counts twice.
    """

    weekdays: frozenset[int]
    start_min: int
    end_min: int
    zone: tzinfo

    def is_open(self, at: datetime) -> bool:
        """Return whether a moment (with a time zone) is in the window."""
        local = at.astimezone(self.zone)
        minute, weekday = local.hour * 60 + local.minute, local.weekday()
        if self.start_min < self.end_min:
            return weekday in self.weekdays and self.start_min <= minute < self.end_min
        began_today = weekday in self.weekdays and minute >= self.start_min
        return began_today or ((weekday - 1) % 7 in self.weekdays and minute < self.end_min)


def is_open(windows: Collection[Window], at: datetime) -> bool:
    """Return whether any of the windows is open; without windows every time is open."""
    return not windows or any(window.is_open(at) for window in windows)


def next_change(windows: Sequence[Window], at: datetime) -> datetime | None:
    """Return when the windows together close, if one is open, or when one opens; None if not within 8 days."""
    if not windows:
        return None
    now_open = is_open(windows, at)
    return next((each for each in _moments(windows, at) if is_open(windows, each) is not now_open), None)


def longest_opening(schedules: Collection[Sequence[Window]], at: datetime) -> timedelta:
    """Return the longest time within 8 days from at during which all schedules are open.

    schedules: the windows of one node each, of which one has to be open; without windows it always is.
    """
    ends = at + _AHEAD
    moments = {at, ends, *(each for windows in schedules for each in _moments(windows, at) if each < ends)}
    longest = so_far = timedelta()
    for begins, changes in pairwise(sorted(moments)):
        so_far = so_far + (changes - begins) if all(is_open(each, begins) for each in schedules) else timedelta()
        longest = max(longest, so_far)
    return longest


def _moments(windows: Sequence[Window], at: datetime) -> list[datetime]:
    """Return the moments after at when a window may open or close, in order."""
    first = at.astimezone(UTC).replace(minute=0, second=0, microsecond=0)
    moments = {first + place * _GRID for place in range(int(_AHEAD / _GRID))}
    for window in windows:
        today = at.astimezone(window.zone).date()
        for day in (today + timedelta(days=place) for place in range(-1, _AHEAD.days + 1)):
            for minute in (window.start_min, window.end_min % DAY_MINUTES):
                local = datetime.combine(day, time(minute // 60, minute % 60), window.zone)
                moments |= {local.replace(fold=fold).astimezone(UTC) for fold in (0, 1)}
    return sorted(each for each in moments if each > at)
