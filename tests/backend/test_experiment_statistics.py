from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coresteer.experiments.statistics import (
    MIN_BLOCKS_OF_TWO_ARMS,
    Estimates,
    Numbers,
    compare_many_arms,
    compare_two_arms,
    mean_interval,
    min_blocks_of_many_arms,
    trend,
)

differences = st.lists(st.floats(-100, 100).map(lambda value: round(value, 3)), min_size=6, max_size=9).map(np.array)


def brute_force_p(values: Numbers) -> float:
    """Return p of the randomization test by enumerating all outcomes of the coins."""
    signs = np.array(list(product([-1, 1], repeat=len(values))))
    return float((np.abs(signs @ values) >= abs(values.sum()) - 1e-9).mean())


def estimates(found: Estimates | None) -> Estimates:
    assert found is not None
    return found


@settings(max_examples=30)
@given(values=differences)
def test_the_p_of_two_arms_counts_every_outcome_of_the_coins(values: Numbers) -> None:
    found = estimates(compare_two_arms(values, 1))
    assert found.p[0] == pytest.approx(brute_force_p(values))


@settings(max_examples=30)
@given(values=differences)
def test_the_interval_of_two_arms_includes_its_estimate_and_what_the_test_does_not_reject(values: Numbers) -> None:
    found = estimates(compare_two_arms(values, 1))
    assert found.low[0] - 1e-9 <= found.value[0] <= found.high[0] + 1e-9
    assert (found.p[0] <= 0.05) == (found.low[0] > 0 or found.high[0] < 0)
    width = found.high[0] - found.low[0]
    if width > 1:
        for inside in (found.low[0] + 0.01, found.high[0] - 0.01):
            assert brute_force_p(values - inside) > 0.05
        for outside in (found.low[0] - 0.01, found.high[0] + 0.01):
            assert brute_force_p(values - outside) <= 0.05


@pytest.mark.parametrize("blocks", [6, 8, 12, 13, 20, 50])
def test_swapping_two_arms_negates_the_estimate(blocks: int) -> None:
    values = np.random.default_rng(blocks).normal(0.02, 0.03, blocks)
    one, other = estimates(compare_two_arms(values, 5)), estimates(compare_two_arms(-values, 5))
    assert other.value == pytest.approx(-one.value)
    assert other.low == pytest.approx(-one.high)
    assert other.high == pytest.approx(-one.low)
    assert other.p == one.p
    assert other.minimum_detectable == pytest.approx(one.minimum_detectable)


def test_six_consistent_blocks_are_the_minimum_for_a_difference() -> None:
    values = np.array([3.0, 1.0, 2.0, 5.0, 4.0, 6.0])
    found = estimates(compare_two_arms(values, 1))
    assert (found.low[0], found.value[0], found.high[0]) == (1.0, 3.5, 6.0)
    assert found.p[0] == 2 / 64
    assert compare_two_arms(values[:5], 1) is None
    assert compare_two_arms(values[:0], 1) is None


@pytest.mark.parametrize("blocks", [6, 8, 12])
def test_the_minimum_detectable_difference_has_80_percent_power(blocks: int) -> None:
    random = np.random.default_rng(1)
    noise = random.standard_normal((400, blocks))
    visible = np.mean([estimates(compare_two_arms(values, 1)).minimum_detectable[0] for values in noise])
    power = np.mean([estimates(compare_two_arms(values + visible, 1)).p[0] <= 0.05 for values in noise])
    assert 0.7 < power < 0.9


def many(random: np.random.Generator, blocks: int, arms: int, noisy: float = 1.0) -> Numbers:
    noise = random.standard_normal((blocks, arms))
    noise[:, -1] *= noisy
    return noise + 10 * random.standard_normal((blocks, 1))


@pytest.mark.parametrize(("blocks", "arms", "noisy"), [(6, 10, 1.0), (6, 10, 3.0), (6, 3, 1.0), (3, 10, 1.0)])
def test_a_sweep_without_effects_has_a_family_error_rate_of_5_percent(blocks: int, arms: int, noisy: float) -> None:
    random = np.random.default_rng(7)
    alarms = sum(
        (estimates(compare_many_arms(many(random, blocks, arms, noisy), 1)).p <= 0.05).any() for _ in range(200)
    )
    assert alarms <= 20, "more than 20 of 200 has a probability of 0.1 % at 5 %"


def test_a_sweep_of_ten_levels_detects_a_differing_one_with_six_blocks() -> None:
    random = np.random.default_rng(3)
    found = 0
    for _ in range(100):
        values = many(random, 6, 10)
        values[:, 4] += 3
        found += estimates(compare_many_arms(values, 1)).p[3] <= 0.05
    assert found >= 90


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10_000), arms=st.integers(3, 8), blocks=st.integers(5, 8), effect=st.floats(0, 4))
def test_the_intervals_of_a_sweep_agree_with_their_p(seed: int, arms: int, blocks: int, effect: float) -> None:
    values = many(np.random.default_rng(seed), blocks, arms)
    values[:, 1] += effect
    found = estimates(compare_many_arms(values, 1))
    assert ((found.p <= 0.05) == ((found.low > 0) | (found.high < 0))).all()
    assert (found.low <= found.value).all()
    assert (found.value <= found.high).all()
    again = estimates(compare_many_arms(values + 1000 * np.arange(blocks)[:, None], 1))
    assert again.value == pytest.approx(found.value), "a shift of a whole block is no difference between arms"
    assert again.p == pytest.approx(found.p, abs=0.002)


def test_constant_metrics_are_no_difference_and_no_error() -> None:
    found = estimates(compare_many_arms(np.zeros((6, 4)), 1))
    assert (found.value == 0).all()
    assert (found.p == 1).all()
    alike = estimates(compare_two_arms(np.zeros(6), 1))
    assert (alike.low[0], alike.high[0], alike.p[0]) == (0, 0, 1)


@pytest.mark.parametrize(("blocks", "arms"), [(2, 16), (3, 3), (4, 3), (8, 2)])
def test_a_sweep_with_too_few_blocks_has_no_result(blocks: int, arms: int) -> None:
    assert compare_many_arms(many(np.random.default_rng(1), blocks, arms), 1) is None


@pytest.mark.parametrize("arms", [3, 4, 9, 10])
def test_the_minimum_number_of_blocks_has_a_result(arms: int) -> None:
    random, fewest = np.random.default_rng(1), min_blocks_of_many_arms(arms)
    assert [compare_many_arms(many(random, fewest - less, arms), 1) is None for less in (0, 1)] == [False, True]
    assert [compare_two_arms(random.normal(size=MIN_BLOCKS_OF_TWO_ARMS - less), 1) is None for less in (0, 1)] == [
        False,
        True,
    ]


def test_a_trend_is_detected_despite_large_differences_between_blocks() -> None:
    levels = np.array([6.0, 18.0, 36.0, 54.0, 90.0])
    random = np.random.default_rng(2)
    values = np.exp(-levels / 30) + 0.01 * random.standard_normal((6, 5)) + 100 * np.arange(6)[:, None]
    rho, p = trend(levels, values, 1) or (0, 0)
    assert rho < -0.9
    assert p == 1 / 2000


@pytest.mark.parametrize(
    ("levels", "values"),
    [([1.0, 2.0], np.eye(6, 2)), ([1.0, 2.0, 3.0], np.ones((6, 3))), ([1.0, 2.0, 3.0], np.eye(2, 3))],
)
def test_two_levels_a_constant_or_two_blocks_have_no_trend(levels: list[float], values: Numbers) -> None:
    assert trend(np.array(levels), values, 1) is None


def test_without_a_trend_5_percent_are_false_positives() -> None:
    random = np.random.default_rng(4)
    found = [trend(np.arange(5.0), random.standard_normal((6, 5)), 1) or (0, 0) for _ in range(300)]
    assert 3 <= sum(p <= 0.05 for _, p in found) <= 29


def test_the_mean_of_blocks_has_students_interval() -> None:
    mean, low, high = mean_interval(np.array([1.0, 2.0, 3.0])) or (0, 0, 0)
    assert mean == 2
    assert [low, high] == pytest.approx([2 - 4.30265 / 3**0.5, 2 + 4.30265 / 3**0.5], rel=1e-4)
    assert mean_interval(np.array([1.0])) is None
