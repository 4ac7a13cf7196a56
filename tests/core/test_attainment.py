"""F of one class, how its window fades, and its response times."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coresteer_core.policies.service_class.attainment import WINDOW_BUCKETS, Attainment, ClassTarget

WINDOW_S = 10.0


@pytest.mark.parametrize(
    ("target", "done", "failed", "present", "expected"),
    [
        (90.0, 0, 0, 0, 0.0),
        (90.0, 0, 0, 3, 0.0),
        (90.0, 0, 4, 0, 0.0),
        (90.0, 9, 1, 0, 1.0),
        (50.0, 9, 1, 0, 1.8),
        (50.0, 1, 0, 1, 1.0),
        (100.0, 3, 0, 1, 0.75),
        (0.5, 1, 0, 0, 200.0),
    ],
)
def test_f_is_s_over_n_times_p_and_pending_requests_count_in_n(
    target: float, done: int, failed: int, present: int, expected: float
) -> None:
    attainment = Attainment(ClassTarget("gold", target), WINDOW_S)
    for _ in range(done + failed + present):
        attainment.record_arrival()
    for number in range(done + failed):
        attainment.record_end(1.0, 5000 if number < done else None)
    assert attainment.f(1.0) == pytest.approx(expected)
    figures = attainment.figures(1.0, "gate")
    assert (figures.requests, figures.satisfied) == (done + failed + present, done)


@pytest.mark.parametrize(("response_us", "satisfied"), [(0, 1), (2000, 1), (2001, 0), (None, 0)])
def test_with_a_deadline_only_a_request_within_it_is_satisfied(response_us: int | None, satisfied: int) -> None:
    attainment = Attainment(ClassTarget("gold", 50.0, 2000), WINDOW_S)
    attainment.record_arrival()
    attainment.record_end(0.0, response_us)
    assert attainment.figures(0.0, "gate").satisfied == satisfied


def test_requests_older_than_the_window_are_forgotten_but_not_waiting_ones() -> None:
    attainment = Attainment(ClassTarget("gold", 50.0), WINDOW_S)
    attainment.record_arrival()
    attainment.record_arrival()
    attainment.record_wait(0.0, 700)
    attainment.record_end(0.0, 1000)
    assert attainment.f(WINDOW_S - 0.01) == 1.0
    assert attainment.f(WINDOW_S) == 0.0
    figures = attainment.figures(WINDOW_S, "gate")
    assert (figures.requests, figures.satisfied) == (1, 0)
    assert (figures.p50_us, figures.longest_wait_us) == (None, None)


def test_another_target_keeps_the_history() -> None:
    attainment = Attainment(ClassTarget("gold", 50.0), WINDOW_S)
    attainment.record(0.0, 4, 2)
    attainment.set_target(ClassTarget("gold", 25.0))
    assert attainment.f(0.0) == 2.0


def test_a_time_before_the_last_one_counts_as_the_last_one() -> None:
    attainment = Attainment(ClassTarget("gold", 50.0), WINDOW_S)
    attainment.record(20.0, 1, 1)
    attainment.record(3.0, 1, 0)
    assert attainment.f(2.0) == 1.0
    assert attainment.f(20.0 + WINDOW_S) == 0.0


def test_the_longest_wait_is_of_admitted_and_waiting_requests() -> None:
    attainment = Attainment(ClassTarget("gold", 50.0), WINDOW_S)
    attainment.record_wait(0.0, 700)
    attainment.record_wait(1.0, 300)
    assert attainment.figures(1.0, "gate").longest_wait_us == 700
    assert attainment.figures(1.0, "gate", waits_us=900).longest_wait_us == 900
    assert attainment.figures(WINDOW_S, "gate").longest_wait_us == 300


def test_requests_counted_elsewhere_have_their_response_time() -> None:
    attainment = Attainment(ClassTarget("gold", 80.0), WINDOW_S)
    attainment.record(0.0, 99, 90, 1000)
    attainment.record(0.0, 1, 0, 50_000)
    figures = attainment.figures(0.0, "histogram")
    assert (figures.requests, figures.satisfied, figures.source) == (100, 90, "histogram")
    assert figures.p50_us == pytest.approx(1000, rel=0.032)
    assert figures.p99_us == pytest.approx(1000, rel=0.032)
    attainment.record(0.0, 1, 0, 50_000)
    assert attainment.figures(0.0, "histogram").p99_us == pytest.approx(50_000, rel=0.032)


@settings(deadline=None)
@given(st.lists(st.integers(0, 10**9), min_size=1, max_size=200))
def test_quantiles_are_within_three_percent_of_the_nearest_rank(responses_us: list[int]) -> None:
    attainment = Attainment(ClassTarget("gold", 50.0), WINDOW_S)
    for number, response_us in enumerate(responses_us):
        attainment.record(WINDOW_S * number / len(responses_us) / 2, 1, 1, response_us)
    figures = attainment.figures(WINDOW_S / 2, "gate")
    ordered = sorted(responses_us)
    for told, percent in ((figures.p50_us, 50), (figures.p95_us, 95), (figures.p99_us, 99)):
        exact = ordered[max(0, -(-percent * len(ordered) // 100) - 1)]
        assert told == pytest.approx(exact, rel=0.032, abs=0.5)


_Told = st.lists(st.tuples(st.integers(0, 64), st.integers(0, 5), st.integers(0, 5)), max_size=60)


@settings(deadline=None)
@given(_Told, st.integers(0, 2 * WINDOW_BUCKETS))
def test_the_window_holds_exactly_the_last_twenty_buckets(told: list[tuple[int, int, int]], later: int) -> None:
    window_s = WINDOW_BUCKETS / 8  # widths and times are exact in binary
    attainment = Attainment(ClassTarget("gold", 100.0), window_s)
    now, seen = 0.0, []
    for sixteenths, failed, done in told:
        now += sixteenths / 16
        attainment.record(now, failed + done, done)
        seen.append((int(now * 8), failed + done, done))
    now += later / 8
    fresh = [(requests, done) for bucket, requests, done in seen if bucket > int(now * 8) - WINDOW_BUCKETS]
    requests, done = sum(r for r, _ in fresh), sum(d for _, d in fresh)
    assert attainment.f(now) == (done / requests if requests else 0.0)
    figures = attainment.figures(now, "tcp")
    assert (figures.requests, figures.satisfied) == (requests, done)
