"""Shared counters of a workload's processes, and percentiles of their histograms."""

import random
from array import array

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coresteer_agent.workloads.shared_counters import (
    COUNT_INDEX,
    ROW_LENGTH,
    SharedCounters,
    bucket_of,
    count_between,
    histogram,
    open_row,
    quantiles_us,
)


@given(ns=st.integers(0, 50_000_000_000))
def test_a_time_is_estimated_within_3_percent(ns: int) -> None:
    before, after = array("Q", bytes(8 * ROW_LENGTH)), array("Q", bytes(8 * ROW_LENGTH))
    after[bucket_of(ns)] = 1
    [found] = quantiles_us(histogram(before, after), [0.5]) or []
    assert found == pytest.approx(ns / 1000, rel=0.032, abs=0.001)


def test_percentiles_of_many_times_are_near_the_true_ones() -> None:
    random_ = random.Random(1)  # noqa: S311 - no secret
    times = sorted(int(random_.lognormvariate(11, 0.7)) for _ in range(20_000))
    before, after = array("Q", bytes(8 * ROW_LENGTH)), array("Q", bytes(8 * ROW_LENGTH))
    for ns in times:
        after[bucket_of(ns)] += 1
    found = quantiles_us(histogram(before, after), [0.5, 0.95, 0.99])
    true = [times[int(share * len(times))] / 1000 for share in (0.5, 0.95, 0.99)]
    assert found == pytest.approx(true, rel=0.01)


def test_hours_are_in_the_last_bucket_and_an_empty_histogram_has_no_percentiles() -> None:
    assert bucket_of(10**14) == ROW_LENGTH - 1
    assert quantiles_us([0] * ROW_LENGTH, [0.5]) is None


def test_counts_are_differences_of_two_readings_over_all_processes() -> None:
    counters = SharedCounters(2)
    rows = [open_row(counters.fd, number) for number in (0, 1)]
    rows[0][COUNT_INDEX] += 5
    rows[0][bucket_of(1000)] += 1
    before = counters.read()
    rows[0][COUNT_INDEX] += 3
    rows[1][COUNT_INDEX] += 4
    rows[1][bucket_of(2000)] += 1
    after = counters.read()
    counters.close()
    assert count_between(before, after) == 7
    assert quantiles_us(histogram(before, after), [0.99]) == pytest.approx([2.0], rel=0.05)
