"""Change windows: what the calendar says in each time zone, overnight, and when the clock changes."""

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coresteer.policies.window import Window, is_open, longest_opening, next_change

BERLIN, NEW_YORK, LORD_HOWE = (ZoneInfo(name) for name in ("Europe/Berlin", "America/New_York", "Australia/Lord_Howe"))
WEEK = frozenset(range(7))
NIGHT = Window(WEEK, 22 * 60, 6 * 60, BERLIN)
FRIDAY_NIGHT = Window(frozenset({4}), 22 * 60, 6 * 60, BERLIN)

# 2026-03-29 02:00 and 2026-10-25 03:00 are when the clock changes in Berlin
CASES = [
    ("the evening of a Friday", FRIDAY_NIGHT, "2026-11-27T22:00+01:00", True),
    ("a minute before", FRIDAY_NIGHT, "2026-11-27T21:59+01:00", False),
    ("the morning after", FRIDAY_NIGHT, "2026-11-28T05:59+01:00", True),
    ("its end", FRIDAY_NIGHT, "2026-11-28T06:00+01:00", False),
    ("the morning of the same Friday", FRIDAY_NIGHT, "2026-11-27T05:00+01:00", False),
    ("in summer, by the clock there", NIGHT, "2026-07-01T20:00+00:00", True),
    ("in winter, by the clock there", NIGHT, "2026-12-01T20:00+00:00", False),
    ("the end after the skipped hour", NIGHT, "2026-03-29T03:59+00:00", True),
    ("the end of the shorter night", NIGHT, "2026-03-29T04:00+00:00", False),
    ("the end of the longer night", NIGHT, "2026-10-25T04:59+00:00", True),
    ("all day", Window(frozenset({0}), 0, 0, BERLIN), "2026-11-23T23:59+01:00", True),
    ("the day after all day", Window(frozenset({0}), 0, 0, BERLIN), "2026-11-24T00:00+01:00", False),
]


@pytest.mark.parametrize(("name", "window", "at", "expected"), CASES)
def test_a_window_is_open_when_the_calendar_says(name: str, window: Window, at: str, expected: bool) -> None:
    assert window.is_open(datetime.fromisoformat(at)) is expected, name


def test_without_windows_every_time_is_open() -> None:
    assert is_open([], datetime.now(UTC))
    assert next_change([], datetime.now(UTC)) is None


def test_a_night_lasts_as_long_as_the_clock_says_when_it_changes() -> None:
    lengths = []
    for day in ("2026-03-28", "2026-10-24", "2026-11-24"):
        opens = next_change([NIGHT], datetime.fromisoformat(f"{day}T12:00+01:00"))
        assert opens is not None
        closes = next_change([NIGHT], opens)
        assert closes is not None
        lengths.append((closes - opens) / timedelta(hours=1))
    assert lengths == [7, 9, 8]


MORNING = Window(WEEK, 5 * 60, 9 * 60, BERLIN)
NOON = Window(WEEK, 12 * 60, 13 * 60, BERLIN)


@pytest.mark.parametrize(
    ("schedules", "hours"),
    [
        ([], 192),
        ([[]], 192),
        ([[NIGHT]], 8),
        ([[NIGHT], [MORNING]], 1),
        ([[NIGHT, MORNING]], 11),
        ([[NIGHT], [NOON]], 0),
        ([[NIGHT], [NOON], []], 0),
        ([[NIGHT], [NOON, FRIDAY_NIGHT]], 8),
    ],
)
def test_nodes_are_open_together_as_long_as_their_windows_overlap(schedules: list[list[Window]], hours: float) -> None:
    assert longest_opening(schedules, datetime.fromisoformat("2026-11-24T12:00+01:00")) == timedelta(hours=hours)


minutes = st.integers(0, 24 * 60 - 1)
windows = st.builds(
    Window,
    st.frozensets(st.integers(0, 6), min_size=1),
    minutes,
    minutes,
    st.sampled_from([BERLIN, NEW_YORK, LORD_HOWE]),
)
_DAYS = ((3, 29), (10, 25), (3, 8), (11, 1), (4, 4), (10, 3))
CLOCK_CHANGES = [datetime(2026, month, day, tzinfo=UTC) for month, day in _DAYS]


@settings(max_examples=40, deadline=None)
@given(st.lists(windows, min_size=1, max_size=3), st.sampled_from(CLOCK_CHANGES), st.integers(-1500, 1500))
def test_nothing_changes_before_the_next_change_and_it_does_then(
    several: list[Window], around: datetime, offset: int
) -> None:
    at = around + timedelta(minutes=offset)
    change = next_change(several, at)
    end = at + timedelta(days=2) if change is None else min(change, at + timedelta(days=2))
    minute = at + timedelta(minutes=1)
    while minute < end:
        assert is_open(several, minute) is is_open(several, at)
        minute += timedelta(minutes=1)
    assert change is None or is_open(several, change) is not is_open(several, at)
