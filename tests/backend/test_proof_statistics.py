"""Confidence sequences, wash-out and verdicts of policies' proofs; the bench bench_proof calibrates them."""

import math
from datetime import UTC, datetime, timedelta
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coresteer.proof.confidence_sequence import (
    ALPHA,
    Evidence,
    detectable,
    effect,
    episodes_to_detect,
    half_width,
    rho_for,
)
from coresteer.proof.exclusion import is_biased
from coresteer.proof.verdict import Finding, alphas, judge, percent
from coresteer.proof.washout import Switch, measured_decay, washout

NOW = datetime(2026, 3, 3, 12, tzinfo=UTC)
_sizes = st.lists(st.floats(1e-6, 3.0), min_size=1, max_size=9)
_differences = st.lists(st.floats(-2.0, 2.0), min_size=12, max_size=60)
_rhos = st.floats(1e-4, 10.0)


def evidence_of(differences: list[float]) -> Evidence:
    values = np.array(differences)
    return Evidence.of(len(values), float(values.sum()), float((values**2).sum()))


def bound(squares: float, rho: float, alpha: float) -> float:
    return math.sqrt((squares + rho) * math.log((squares + rho) / (rho * alpha**2)))


@given(_sizes, _rhos)
def test_whatever_the_blocks_are_the_coin_alone_makes_a_supermartingale(sizes: list[float], rho: float) -> None:
    # the mean over every outcome of the coins; by Ville's inequality it exceeds 1/α with a probability below α
    squares = sum(size**2 for size in sizes)
    total = 0.0
    for signs in product((-1, 1), repeat=len(sizes)):
        shift = sum(sign * size for sign, size in zip(signs, sizes, strict=True))
        total += math.sqrt(rho / (squares + rho)) * math.exp(shift**2 / (2 * (squares + rho)))
    assert total / 2 ** len(sizes) <= 1 + 1e-9


@given(_differences, _rhos, st.sampled_from((0.05, 0.01)))
def test_the_interval_ends_where_the_inequality_of_the_sequence_is_an_equality(
    differences: list[float], rho: float, alpha: float
) -> None:
    evidence = evidence_of(differences)
    half = float(half_width(evidence, rho, alpha))
    if not math.isfinite(half):
        return
    values = np.array(differences)
    for side in (-1, 1):
        for scale, inside in ((0.999, True), (1.001, False)):
            deviations = values - (values.mean() + side * scale * half)
            within = bool(abs(deviations.sum()) <= bound(float((deviations**2).sum()), rho, alpha))
            assert within is inside


@given(_differences, _rhos)
def test_the_interval_of_the_reciprocal_is_the_reciprocal_of_the_interval(differences: list[float], rho: float) -> None:
    there, back = (effect(evidence_of([sign * one for one in differences]), rho) for sign in (1, -1))
    assert there is not None and back is not None
    if there.low is None or there.high is None:
        assert back.low is None
    else:
        assert back.low is not None
        assert math.isclose(math.log1p(there.high), -math.log1p(back.low), abs_tol=1e-9)


@pytest.mark.parametrize("episodes", range(1, 8))
def test_few_episodes_have_an_estimate_but_no_interval(episodes: int) -> None:
    found = effect(evidence_of([0.1] * episodes), rho_for(1000))
    assert found is not None
    assert (found.low, found.high, found.direction) == (None, None, 0)
    assert found.estimate == pytest.approx(math.expm1(0.1))


def test_an_interval_that_is_wider_than_what_is_assumed_is_none() -> None:
    wide = Evidence.of(20, 24, 20 * (1.2**2 + 2**2))  # +232 %, from −91 % to +12,007 %
    found = effect(wide, rho_for(100))
    assert found is not None
    assert (found.low, found.high, detectable(wide, rho_for(100))) == (None, None, None)
    verdict = judge("softnet_dropped_per_s", wide, rho_for(100), alpha=ALPHA, per_s=0, now=NOW)
    assert verdict.sentence.endswith("detected yet; too few blocks for an interval.")


def test_a_wide_interval_that_excludes_0_is_kept() -> None:
    found = effect(Evidence.of(60, 60 * 2.2, 60 * (2.2**2 + 0.5**2)), rho_for(100))
    assert found is not None and found.low is not None and found.high is not None
    assert found.direction == 1


def test_no_episode_is_no_estimate() -> None:
    assert effect(Evidence.of(0, 0, 0), 1.0) is None


@pytest.mark.parametrize("episodes", [100, 10_000, 1_000_000, 10_000_000])
def test_the_interval_narrows_without_end(episodes: int) -> None:
    rho = rho_for(2000)
    wide, narrow = (float(half_width(Evidence.of(n, 0, n * 0.01), rho)) for n in (episodes, 4 * episodes))
    assert 0.3 * wide < narrow < 0.7 * wide


@given(_differences)
def test_running_evidence_ends_with_that_of_all_episodes(differences: list[float]) -> None:
    running = Evidence.running(np.array([*differences, np.nan]))
    all_of_them = evidence_of(differences)
    assert running.episodes[-1] == running.episodes[-2] == all_of_them.episodes
    assert math.isclose(running.squares[-1], all_of_them.squares, rel_tol=1e-9)


def test_an_effect_is_detected_after_the_predicted_number_of_episodes() -> None:
    rho, spread, size = rho_for(2000), 0.08, 0.02
    so_far = Evidence.of(100, 0.0, 100 * spread**2)
    needed = episodes_to_detect(so_far, size, rho)
    assert needed is not None
    for episodes, excluded in ((needed, True), (needed - 2, False)):
        shift = episodes * math.log1p(size)
        later = Evidence.of(episodes, shift, episodes * (spread**2 + math.log1p(size) ** 2))
        found = effect(later, rho)
        assert found is not None and (found.direction == 1) is excluded


def test_what_would_have_been_detected_is_the_half_width_of_the_interval() -> None:
    evidence = Evidence.of(500, 0.0, 500 * 0.01)
    assert detectable(evidence, 0.5) == pytest.approx(math.expm1(float(half_width(evidence, 0.5))))


def switches(constant_s: float, *, effect_log: float, count: int, noise: float, drift: float = 0.0) -> list[Switch]:
    """Blocks of ten minutes after a switch, in minutes, of a metric that follows with this time constant."""
    rng = np.random.default_rng(20260303)
    edges = np.arange(11) * 60.0
    course = np.diff(-constant_s * np.exp(-edges / constant_s)) / 60 if constant_s else np.zeros(10)
    found = []
    for to_enforced in rng.random(count) < 0.5:
        sign = 1 if to_enforced else -1
        parts = -sign * effect_log * course + noise * rng.standard_normal(10) + drift * np.arange(10)
        found.append(Switch(bool(to_enforced), parts.tolist()))
    return found


@pytest.mark.parametrize(("constant_s", "at_least", "at_most"), [(20, 60, 120), (45, 120, 240), (60, 180, 300)])
def test_the_washout_covers_the_decay_that_past_episodes_show(constant_s: float, at_least: int, at_most: int) -> None:
    past = switches(constant_s, effect_log=0.1, count=400, noise=0.03)
    assert at_least <= washout(past, 60.0, 10) <= at_most


@pytest.mark.parametrize(
    "past",
    [
        pytest.param(switches(0, effect_log=0.0, count=500, noise=0.1), id="no effect"),
        pytest.param(switches(0, effect_log=0.0, count=500, noise=0.05, drift=0.02), id="drift alone"),
    ],
)
def test_without_a_visible_decay_one_part_of_the_block_is_left_out(past: list[Switch]) -> None:
    assert measured_decay(past, 60.0) is None
    assert washout(past, 60.0, 10) == 60.0


@pytest.mark.parametrize(
    "past",
    [
        pytest.param([], id="no episode"),
        pytest.param(switches(5, effect_log=0.5, count=20, noise=0.01), id="too few"),
        pytest.param([Switch(True, [math.nan] * 10)] * 40, id="nothing known"),
        pytest.param(switches(300, effect_log=0.5, count=400, noise=0.01), id="slow"),
    ],
)
def test_the_washout_is_half_of_a_block_at_most_and_until_enough_is_known(past: list[Switch]) -> None:
    assert washout(past, 60.0, 10) == 300.0


@pytest.mark.parametrize(
    ("metric", "shift", "finding", "sentence"),
    [
        ("cpu_s_per_gbit", -0.05, Finding.IMPROVES, "Saves 4.9 % [4.2, 5.5] of CPU per gigabit."),
        ("rtt_p99_us", 0.09, Finding.WORSENS, "Worsens round-trip time, 99th percentile: +9.4 % [8.7, 10]."),
        ("packets_per_interrupt", 0.09, Finding.HIGHER, "Changes packets per interrupt: +9.4 % [8.7, 10]."),
    ],
)
def test_a_verdict_states_the_effect_with_its_interval(
    metric: str, shift: float, finding: Finding, sentence: str
) -> None:
    verdict = judge(
        metric, Evidence.of(500, 500 * shift, 500 * (shift**2 + 0.05**2)), rho_for(1000), alpha=ALPHA, per_s=1, now=NOW
    )
    assert verdict.finding is finding
    assert verdict.sentence == sentence
    assert verdict.expected is None


def test_without_an_effect_the_verdict_says_what_will_be_detected_and_when() -> None:
    verdict = judge(
        "cpu_s_per_gbit", Evidence.of(100, 0, 100 * 0.01), rho_for(1000), alpha=ALPHA, per_s=100 / 86_400, now=NOW
    )
    assert verdict.finding is Finding.NONE_YET
    assert verdict.expected is not None and verdict.detectable is not None
    assert verdict.expected.effect < verdict.detectable
    assert timedelta() < verdict.expected.at - NOW < timedelta(days=10)
    assert verdict.sentence.startswith("No effect on CPU per gigabit detected yet; an effect of ")


def test_nothing_is_expected_of_a_proof_that_does_not_go_on() -> None:
    verdict = judge("cpu_s_per_gbit", Evidence.of(100, 0, 1), rho_for(1000), alpha=ALPHA, per_s=0, now=NOW)
    assert verdict.finding is Finding.NONE_YET
    assert verdict.expected is None
    assert " will be by " not in verdict.sentence


@pytest.mark.parametrize(
    ("enforced", "holdout", "biased"), [(0, 0, False), (6, 0, False), (8, 0, True), (40, 20, False), (45, 15, True)]
)
def test_exclusions_of_one_block_are_told_once_chance_does_not_explain_them(
    enforced: int, holdout: int, biased: bool
) -> None:
    assert is_biased(enforced, holdout) is is_biased(holdout, enforced) is biased


def test_chance_alone_rarely_looks_like_a_bias_at_any_time() -> None:
    coins = np.random.default_rng(16).random((400, 300)) < 0.5
    ever = [any(is_biased(int(heads), at - int(heads)) for at, heads in enumerate(np.cumsum(run), 1)) for run in coins]
    assert sum(ever) <= 28  # 5 % of 400, and 1.96 standard deviations of that number


def test_without_episodes_the_verdict_says_that_there_is_no_evidence() -> None:
    verdict = judge("rtt_p99_us", Evidence.of(0, 0, 0), 1.0, alpha=ALPHA, per_s=0, now=NOW)
    assert (verdict.finding, verdict.effect, verdict.sentence) == (Finding.NO_EVIDENCE, None, "No evidence yet.")


def test_the_guardrails_share_one_error_probability() -> None:
    shares = alphas("cpu_s_per_gbit", ["rtt_p99_us", "cpu_s_per_gbit", "squeezed_per_s"])
    assert shares == {"cpu_s_per_gbit": ALPHA, "rtt_p99_us": ALPHA / 2, "squeezed_per_s": ALPHA / 2}


@pytest.mark.parametrize(
    ("share", "text"), [(0.0312, "3.1"), (0.15, "15"), (0.0042, "0.42"), (-0.031, "−3.1"), (0.0, "0.0")]
)
def test_percentages_have_two_digits(share: float, text: str) -> None:
    assert percent(share) == text
