"""Process reordering: expected run times, and which process runs first (PROC, figures 2 and 3)."""

import math

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from coresteer_core.policies.coscheduling.reorder import (
    AS_PRINTED,
    MINUS,
    SAME_S,
    expected_processes,
    expected_run_time,
    first_to_run,
    rebase,
)

SECONDS = st.floats(0.0, 10.0)
SLICES = st.floats(1e-3, 0.2)


def figure_2(sign: float) -> tuple[float, float]:
    """Return the ERTs of two processes with a message of node h and one of node l, at t = 100 ms.

    Node h: slices of 20 ms, 3 processes before the sender, message at 70 ms. Node l: 10 ms, 4 processes, at 90 ms.
    """
    return expected_run_time(3.0, 0.070, 0.020, 0.100, sign), expected_run_time(4.0, 0.090, 0.010, 0.100, sign)


def test_the_process_whose_sender_runs_sooner_is_first() -> None:
    assert figure_2(MINUS) == pytest.approx((0.030, 0.030))
    assert figure_2(AS_PRINTED) == pytest.approx((0.090, 0.050))
    earlier = expected_run_time(3.0, 0.060, 0.020, 0.100, MINUS)
    erts = [earlier, figure_2(MINUS)[1]]
    assert earlier == pytest.approx(0.020)
    assert first_to_run(erts, [50, 50], [0.06, 0.09], [1, 2], 2) == 0
    as_printed = [expected_run_time(3.0, 0.060, 0.020, 0.100, AS_PRINTED), figure_2(AS_PRINTED)[1]]
    assert as_printed[0] == pytest.approx(0.100)
    assert first_to_run(as_printed, [50, 50], [0.06, 0.09], [1, 2], 2) == 1


@given(st.floats(0, 20), SECONDS, SECONDS, SLICES, SECONDS)
def test_with_the_minus_sign_a_later_message_of_the_node_does_not_change_the_expected_run_time(
    enp: float, heard_s: float, later_s: float, ts_s: float, now_s: float
) -> None:
    assume(later_s >= heard_s)
    rebased = rebase(enp, heard_s, later_s, ts_s)
    before = expected_run_time(enp, heard_s, ts_s, now_s, MINUS)
    assert expected_run_time(*rebased, ts_s, now_s, MINUS) == pytest.approx(before, abs=1e-9)


@given(st.floats(0, 20), SECONDS, SLICES, SECONDS, SECONDS)
def test_an_older_message_makes_a_process_more_urgent_with_minus_and_less_as_printed(
    enp: float, heard_s: float, ts_s: float, now_s: float, wait_s: float
) -> None:
    assume(wait_s > 1e-6)
    for sign, order in ((MINUS, -1), (AS_PRINTED, 1)):
        change = expected_run_time(enp, heard_s, ts_s, now_s + wait_s, sign) - expected_run_time(
            enp, heard_s, ts_s, now_s, sign
        )
        assert math.copysign(1, change) == order


@given(st.lists(st.tuples(st.one_of(st.just(math.inf), st.floats(-5, 5)), st.integers(0, 59), SECONDS), max_size=8))
def test_the_first_process_has_pending_messages_and_the_least_expected_run_time(
    processes: list[tuple[float, int, float]],
) -> None:
    erts = [ert for ert, _, _ in processes]
    found = first_to_run(
        erts, [level for _, level, _ in processes], [old for _, _, old in processes], range(len(erts)), len(erts)
    )
    pending = [k for k, ert in enumerate(erts) if ert < math.inf]
    if not pending:
        assert found == -1
    else:
        assert found in pending
        assert erts[found] <= min(erts) + SAME_S * len(erts)


@pytest.mark.parametrize(
    ("level", "oldest_s", "order", "first"),
    [([50, 59], [0.1, 0.2], [1, 2], 1), ([50, 50], [0.2, 0.1], [1, 2], 1), ([50, 50], [0.1, 0.1], [2, 1], 1)],
    ids=["the higher level", "the older message", "the place in the queue"],
)
def test_equal_expected_run_times_are_ordered_by(
    level: list[int], oldest_s: list[float], order: list[int], first: int
) -> None:
    assert first_to_run([0.01, 0.01 + SAME_S / 2], level, oldest_s, order, 2) == first


@pytest.mark.parametrize(("is_sum", "enp"), [(False, 2.5), (True, 3.5)], ids=["union", "sum"])
def test_a_process_that_is_pending_and_in_the_highest_level_counts(is_sum: bool, enp: float) -> None:
    assert expected_processes([True, True, False], [True, False, False], 3, 0.5, is_sum) == enp
