"""Alerts: hysteresis never flaps inside its band, fires after its duration; pauses between attempts are bounded."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coresteer_core.alerts.hysteresis import IDLE, Limits, Watch, step
from coresteer_core.alerts.retry import MAX_ATTEMPTS, MAX_PAUSE_S, pause_s
from coresteer_core.alerts.signals import SIGNALS

LIMITS = Limits(threshold=90, clear=75, for_s=60, keep_s=30)


def states(values: list[float | None], watch: Watch = IDLE, every_s: float = 15) -> list[bool]:
    found = []
    for place, value in enumerate(values):
        watch = step(LIMITS, watch, value, place * every_s)
        found.append(watch.firing)
    return found


CASES: list[tuple[str, list[float | None], list[bool]]] = [
    ("fires after the duration", [90, 95, 90, 90, 90], [False] * 4 + [True]),
    ("a break begins the duration anew", [90, 90, 89, 90, 90, 90, 90], [False] * 7),
    ("stays until it is below clear for long", [*[99.0] * 5, 74, 80, 74, 74, 74], [False] * 4 + [True] * 5 + [False]),
    ("an unknown value begins the duration anew", [90, 90, None, 90, 90, 90], [False] * 6),
    ("an unknown value resolves nothing", [99] * 5 + [None] * 9, [False] * 4 + [True] * 10),
]  # fmt: skip


@pytest.mark.parametrize(("name", "values", "expected"), CASES)
def test_an_alert_fires_and_is_resolved_after_its_durations(
    name: str, values: list[float | None], expected: list[bool]
) -> None:
    assert states(values) == expected, name


limits = st.builds(
    lambda a, b, for_s, keep_s: Limits(max(a, b), min(a, b), for_s, keep_s),
    st.floats(0, 1e6),
    st.floats(0, 1e6),
    st.floats(0, 600),
    st.floats(0, 600),
)
times = st.lists(st.floats(0.1, 100), max_size=30)


@given(limits, st.booleans(), st.data())
def test_a_value_that_oscillates_inside_the_band_never_changes_the_state(
    of: Limits, firing: bool, data: st.DataObject
) -> None:
    watch, now_s = Watch(firing), 0.0
    for pause in data.draw(times):
        now_s += pause
        value = data.draw(st.none() | st.floats(of.clear, of.threshold, exclude_max=of.clear < of.threshold))
        if value is not None and not of.clear <= value < of.threshold:
            continue  # the band is empty
        watch = step(of, watch, value, now_s)
        assert watch == Watch(firing)


@given(limits, st.lists(st.tuples(st.floats(0.1, 100), st.none() | st.floats(0, 1e6)), max_size=40))
def test_a_state_lasts_at_least_as_long_as_what_demands_the_other(
    of: Limits, steps: list[tuple[float, float | None]]
) -> None:
    watch, now_s, demanded_s = IDLE, 0.0, None
    for pause, value in steps:
        now_s += pause
        before = watch
        watch = step(of, watch, value, now_s)
        demands = value is not None and (value < of.clear if before.firing else value >= of.threshold)
        demanded_s = (now_s if demanded_s is None else demanded_s) if demands else None
        if watch.firing is not before.firing:
            assert demanded_s is not None
            assert now_s - demanded_s >= (of.keep_s if before.firing else of.for_s)
            demanded_s = None


@given(st.integers(1, MAX_ATTEMPTS - 1), st.floats(0, 1))
def test_pauses_grow_are_bounded_and_end(attempts: int, jitter: float) -> None:
    pause, later = pause_s(attempts, jitter), pause_s(attempts + 1, jitter)
    assert pause is not None
    assert 2.5 <= pause <= MAX_PAUSE_S
    assert later is None or later >= pause
    assert pause_s(MAX_ATTEMPTS, jitter) is None


def test_every_signal_says_what_it_is() -> None:
    assert all(signal.label and signal.meaning for signal in SIGNALS.values())
