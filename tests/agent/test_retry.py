"""Which backend an agent tries, and when: the agents of a lost backend return soon, and not all at once."""

import random
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coresteer_agent.transport.retry import Backends, Backoff
from coresteer_agent.transport.websocket import ConnectionTiming
from coresteer_core.protocol import reason_with_delay, requested_delay_s

FLEET = 10_000
SPREAD_S = 20.0


def seeded(seed: int) -> random.Random:
    return random.Random(seed)  # noqa: S311 - repeatable, no secret


def backoffs(seed: int, spread_s: float = SPREAD_S) -> list[Backoff]:
    """Those of a fleet, each with its own source of randomness."""
    fleet = [Backoff(ConnectionTiming(), seeded(seed * FLEET + number)) for number in range(FLEET)]
    for backoff in fleet:
        backoff.spread_s = spread_s
    return fleet


def most_in_a_second(times_s: list[float]) -> int:
    return max(Counter(int(time_s) for time_s in times_s).values())


@settings(max_examples=5, deadline=None)
@given(st.integers(0, 2**31))
def test_ten_thousand_agents_of_a_lost_backend_return_within_the_spread_and_evenly(seed: int) -> None:
    delays = [backoff.after_failure() for backoff in backoffs(seed)]
    assert min(delays) >= 0 and max(delays) <= SPREAD_S
    # 500 a second on average, with a standard deviation of 22: 6 of these are exceeded once in 10^9 seconds
    assert most_in_a_second(delays) <= 500 + 6 * 22


@settings(max_examples=5, deadline=None)
@given(st.integers(0, 2**31), st.floats(0, 300))
def test_once_their_only_backend_is_back_all_agents_return_within_30_s_without_a_storm(
    seed: int, away_s: float
) -> None:
    returns = []
    for backoff in backoffs(seed):
        at_s = backoff.after_failure()
        while at_s < away_s:
            at_s += backoff.after_failure()
        returns.append(at_s - away_s)
    assert max(returns) <= 30
    # an agent whose delays are uniform in 0 to 20 s tries every 10 s: 1,000 a second at first
    assert most_in_a_second(returns) <= 1000 + 6 * 32


@given(st.integers(0, 2**31), st.floats(0, 60), st.integers(1, 40))
def test_a_delay_is_between_zero_and_a_bound_that_grows_to_30_s(seed: int, spread_s: float, failures: int) -> None:
    timing = ConnectionTiming()
    backoff = Backoff(timing, seeded(seed))
    backoff.spread_s = spread_s
    for failure in range(failures):
        bound = max(spread_s, min(timing.longest_retry_s, timing.first_retry_s * 2**failure))
        assert 0 <= backoff.after_failure() <= bound
    backoff.reset()
    assert backoff.after_failure() <= max(spread_s, timing.first_retry_s)


@given(st.integers(0, 2**31), st.floats(0, 300))
def test_a_requested_delay_is_never_shortened(seed: int, asked_s: float) -> None:
    delay_s = Backoff(ConnectionTiming(), seeded(seed)).requested(asked_s)
    assert asked_s <= delay_s <= 1.5 * asked_s


@given(st.integers(0, 2**31), st.integers(1, 8))
def test_every_backend_is_tried_once_in_a_round_and_the_present_one_is_kept(seed: int, count: int) -> None:
    addresses = [f"https://{number}.example" for number in range(count)]
    backends = Backends(addresses, seeded(seed))
    tried, ended = [], False
    while not ended:
        tried.append(backends.current)
        ended = backends.advance()
    assert sorted(tried) == addresses
    backends.advance()
    kept = backends.current
    backends.keep()
    assert backends.current == kept
    assert [backends.advance() for _ in range(count)] == [False] * (count - 1) + [True]


def test_the_first_backends_of_a_fleet_are_spread() -> None:
    addresses = ["https://a.example", "https://b.example", "https://c.example"]
    first = Counter(Backends(addresses, seeded(seed)).current for seed in range(3000))
    assert all(count == pytest.approx(1000, abs=160) for count in first.values())


@pytest.mark.parametrize(
    ("reason", "delay_s"),
    [
        (reason_with_delay(12, "Too many connect at once."), 12),
        ("Retry in 7 s.", 7),
        ("The database does not answer.", None),
        ("Retry in -1 s.", None),
        ("Retry in 12345678 s.", None),
        ("Please retry in 7 s.", None),
    ],
)
def test_the_delay_in_a_reason_is_read(reason: str, delay_s: int | None) -> None:
    assert requested_delay_s(reason) == delay_s
