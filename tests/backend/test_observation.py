"""Figures before and after a change, next to how much they usually differ."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from numpy.typing import NDArray
from tests.backend.telemetry_data import machine

from coresteer.changes.observation import (
    HISTORY_S,
    WINDOW_S,
    Lines,
    Moments,
    Observation,
    ObservedFigure,
    Subject,
    observe,
)
from coresteer.changes.observed_samples import COLUMNS, Touched, figures_over_time
from coresteer.telemetry.chunks import encode
from coresteer_core.node.rates import ABSENT_SHARE, CPU_SHARES

APPLIED_MS = 1_800_000_000_000.0
BUSY = Subject("cpu_busy_percent", "cpu:3")
RECORDED_S = HISTORY_S + WINDOW_S


def lines(values: NDArray[np.float64], *, missing: slice | None = None) -> Lines:
    """One sample a second, the last HISTORY_S + WINDOW_S; missing: those that are not on record, by second."""
    seconds = np.arange(RECORDED_S)
    keep = np.ones(RECORDED_S, bool)
    if missing is not None:
        keep[missing] = False
    middles = APPLIED_MS + (seconds[keep] - HISTORY_S) * 1000 + 500.0
    return Lines(np.array(middles, np.float64), np.ones(keep.sum()), {BUSY: values[keep]})


def seen(found: Lines, *, after_s: int = WINDOW_S, is_complete: bool = True) -> Observation:
    at = Moments(APPLIED_MS, APPLIED_MS, APPLIED_MS + after_s * 1000)
    return observe(found, at, is_complete=is_complete, other_changes=0)


def figure(found: Lines, *, after_s: int = WINDOW_S) -> ObservedFigure:
    (one,) = seen(found, after_s=after_s).figures
    return one


def noise(seed: int, mean: float = 50.0) -> NDArray[np.float64]:
    return mean + np.random.default_rng(seed).normal(0, 5, RECORDED_S)


def test_a_drop_after_the_change_is_beyond_what_is_usual() -> None:
    values = noise(1)
    values[HISTORY_S:] -= 36
    one = figure(lines(values))
    assert one.before == pytest.approx(50, abs=2) and one.after == pytest.approx(14, abs=2)
    assert one.usual_least is not None and one.usual_most is not None
    assert -4 < one.usual_least < 0 < one.usual_most < 4
    assert one.has_moved


def test_differences_that_occurred_in_the_hour_before_are_usual() -> None:
    values = noise(2)
    values[:HISTORY_S:600] += 3000  # a burst every ten minutes
    values[HISTORY_S + 30] += 3000
    assert figure(lines(values)).has_moved is False


def test_about_one_in_twenty_figures_stands_out_by_chance() -> None:
    moved = sum(bool(figure(lines(noise(seed))).has_moved) for seed in range(300))
    assert 3 <= moved <= 45


def test_a_shorter_time_after_the_change_is_compared_with_as_short_ones() -> None:
    values = noise(3)
    short, whole = figure(lines(values), after_s=30), figure(lines(values))
    assert short.usual_least is not None and whole.usual_least is not None
    assert short.usual_least < whole.usual_least


def test_the_time_after_the_change_ends_at_the_newest_sample_until_it_is_complete() -> None:
    found = lines(noise(4), missing=slice(HISTORY_S + 30, None))
    so_far, whole = seen(found, after_s=59, is_complete=False), seen(found, after_s=59)
    assert (so_far.after_s, so_far.missing) == (30, "")
    assert so_far.figures == seen(found, after_s=30).figures
    assert whole.missing == "Not enough data: only 30 s of the 59 s after the change are on record."


@given(st.floats(-1e6, 1e6), st.integers(0, 2**32 - 1))
def test_a_constant_added_to_all_values_changes_no_difference(offset: float, seed: int) -> None:
    plain, moved = figure(lines(noise(seed))), figure(lines(noise(seed) + offset))
    assert plain.usual_least is not None and moved.usual_least is not None
    assert moved.usual_least == pytest.approx(plain.usual_least, abs=1e-6)
    assert moved.after is not None and plain.after is not None
    assert moved.after - plain.after == pytest.approx(offset, abs=1e-6)


@given(st.floats(0, 1e12), st.floats(0, 1e12))
def test_a_figure_that_never_differed_has_moved_if_it_differs_at_all(before: float, after: float) -> None:
    values = np.full(RECORDED_S, before)
    values[HISTORY_S:] = after
    one = figure(lines(values))
    assert one.usual_least == pytest.approx(0, abs=1e-6 * before) == one.usual_most
    assert one.has_moved is (abs(after - before) > 1e-8 * max(before, after)) or np.isclose(before, after, rtol=1e-7)


@given(st.integers(0, 2**32 - 1), st.integers(0, RECORDED_S), st.integers(0, RECORDED_S))
def test_what_is_not_on_record_is_unknown_and_never_zero(seed: int, start: int, length: int) -> None:
    found = seen(lines(noise(seed), missing=slice(start, start + length)))
    assert 0 <= found.before_s <= WINDOW_S and 0 <= found.after_s <= WINDOW_S
    assert bool(found.figures) is (min(found.before_s, found.after_s) >= 0.8 * WINDOW_S)
    assert found.figures or found.missing.startswith("Not enough data")
    for one in found.figures:
        assert all(value is None or value > 30 for value in (one.before, one.after))
        assert (one.usual_least is None) is (one.has_moved is None)


@pytest.mark.parametrize(
    ("missing", "after_s", "is_complete", "sentence"),
    [
        (None, 7, True, "The change was in force for 7 s only; a comparison takes 20 s."),
        (None, 7, False, "The comparison begins 20 s after the change was applied."),
        (slice(0, HISTORY_S - 40), WINDOW_S, True,
         "Not enough data: only 40 s of the 2 minutes before the change are on record."),
        (slice(HISTORY_S + 30, None), 90, True,
         "Not enough data: only 30 s of the 90 s after the change are on record."),
        (slice(0, HISTORY_S - 600), WINDOW_S, True,
         "Not enough data to tell what is usual: 10 min of the hour before the change are on record, "
         "and 30 min are needed."),
    ],
)  # fmt: skip
def test_the_reason_why_something_is_missing_is_stated(
    missing: slice | None, after_s: int, is_complete: bool, sentence: str
) -> None:
    found = seen(lines(noise(4), missing=missing), after_s=after_s, is_complete=is_complete)
    assert (found.missing, found.is_complete) == (sentence, is_complete)


def test_without_the_hour_before_the_means_are_shown_and_nothing_stands_out() -> None:
    one = figure(lines(noise(5), missing=slice(0, HISTORY_S - 600)))
    assert one.before is not None and one.after is not None
    assert (one.usual_least, one.usual_most, one.has_moved) == (None, None, None)


def test_a_figure_that_is_unknown_before_or_after_has_not_moved() -> None:
    values = noise(6)
    values[HISTORY_S:] = np.nan
    one = figure(lines(values))
    assert one.before is not None and (one.after, one.has_moved) == (None, None)
    values[:] = np.nan
    assert seen(lines(values)).figures == []


def test_the_cpu_time_of_the_node_is_without_steal_which_keeps_a_cpu_busy() -> None:
    shares = dict.fromkeys(CPU_SHARES, bytes(2)) | {"busy": bytes([100, 40]), "steal": bytes([60, ABSENT_SHARE])}
    chunk = encode([replace(one, shares=shares) for one in machine(3, cpus=2, irqs=1)])
    row = (chunk.samples, chunk.cpus, chunk.scalars, *(chunk.columns[name] for name in COLUMNS))
    found = figures_over_time([row], Touched(cpus=(0,)), Moments(APPLIED_MS, APPLIED_MS, APPLIED_MS)).values
    assert found[Subject("cpu_busy_percent", "cpu:0")].tolist() == [50.0] * 3
    assert found[Subject("cpu_busy_percent")].tolist() == [20.0 + 20.0] * 3
