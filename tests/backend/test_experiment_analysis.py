import math
from collections.abc import Callable, Sequence
from random import Random

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coresteer.experiments.analysis import analyse
from coresteer.experiments.schedule import plan_runs
from coresteer.experiments.spec import (
    Analysis,
    Comparison,
    Factor,
    Interval,
    Kind,
    Level,
    PlannedRun,
    RecordedRun,
    Spec,
)
from coresteer_core.experiments.model import Observe
from coresteer_core.metrics import EXPERIMENT_METRICS

FIGURE = "throughput_bit_per_s"
Figure = Callable[[PlannedRun, Random], float]


def spec_of(kind: Kind, *levels: int, blocks: int = 6) -> Spec:
    return Spec(
        name="one",
        kind=kind,
        node_id=1,
        workload=Observe(),
        primary=FIGURE,
        factors=[
            Factor(f"f{place}", [Level(f"{number}", value=float(number)) for number in range(count)])
            for place, count in enumerate(levels)
        ],
        blocks=blocks,
    )


def kept(planned: PlannedRun, figures: dict[str, float], discarded: str | None = None) -> RecordedRun:
    return RecordedRun(
        planned=planned,
        attempt=0,
        started_ms=0,
        duration_s=10.0,
        figures=figures,
        cpus={},
        load_before=0.0,
        steal_percent=None,
        discarded=discarded,
    )


def seeded_random(seed: int) -> Random:
    return Random(seed)  # noqa: S311  noise has to be reproducible, not secret


def runs_of(spec: Spec, figure: Figure, seed: int = 1, metrics: Sequence[str] = (FIGURE,)) -> list[RecordedRun]:
    random = seeded_random(seed)
    return [kept(run, {metric: figure(run, random) for metric in metrics}) for run in plan_runs(spec, seed)]


def planted(effect: float, deviation: float = 0.02, drift: float = 0.005) -> Figure:
    """Return a metric with noise and drift; the first level of the first factor has the effect."""

    def figure(run: PlannedRun, random: Random) -> float:
        more = 1 + effect if run.arm and run.arm[0] == 1 else 1.0
        return 1e9 * more * math.exp(random.gauss(0, deviation) + drift * run.number)

    return figure


def the_one(analysis: Analysis, metric: str = FIGURE) -> Comparison:
    (comparison,) = [each for each in analysis.comparisons if each.metric == metric]
    return comparison


def effect_of(comparison: Comparison) -> tuple[float, float, float]:
    assert comparison.effect is not None
    return comparison.effect.value, comparison.effect.low, comparison.effect.high


@pytest.mark.parametrize(("effect", "verdict"), [(0.1, "higher"), (-0.1, "lower"), (0.0, "no-difference")])
def test_an_effect_is_estimated_despite_a_larger_drift(effect: float, verdict: str) -> None:
    spec = spec_of("ab", 2)
    found = the_one(analyse(spec, 1, runs_of(spec, planted(effect))))
    value, low, high = effect_of(found)
    assert found.verdict == verdict
    assert low <= effect <= high
    assert value == pytest.approx(effect, abs=0.02)
    assert found.minimum_detectable is not None
    assert 0.01 < found.minimum_detectable < 0.08
    assert found.blocks == 6


def test_a_node_compared_with_itself_has_noise_and_no_comparison() -> None:
    spec = spec_of("aa")
    analysis = analyse(spec, 1, runs_of(spec, planted(0)))
    assert analysis.noise[FIGURE].verdict == "no-difference"
    assert analysis.comparisons == []
    assert analysis.arms == [()]
    (mean,) = analysis.means[FIGURE]
    assert mean is not None
    assert mean.low < 1e9 * math.exp(0.005 * 12) < mean.high


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10_000), power=st.integers(-6, 6), kind=st.sampled_from(["ab", "sweep"]))
def test_effects_do_not_depend_on_the_unit_of_the_metric(seed: int, power: int, kind: Kind) -> None:
    spec = spec_of(kind, 2 if kind == "ab" else 3)
    runs = runs_of(spec, planted(0.05), seed)
    scaled = [msgspec.structs.replace(run, figures={FIGURE: run.figures[FIGURE] * 10.0**power}) for run in runs]
    for one, other in zip(analyse(spec, seed, runs).comparisons, analyse(spec, seed, scaled).comparisons, strict=True):
        assert effect_of(other) == pytest.approx(effect_of(one), abs=1e-9)
        assert (other.verdict, other.p) == (one.verdict, one.p)


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10_000), effect=st.floats(-0.2, 0.2))
def test_swapping_the_arms_inverts_the_ratio(seed: int, effect: float) -> None:
    spec = spec_of("ab", 2)
    runs = runs_of(spec, planted(effect), seed)
    swapped = []
    for run in runs:
        label = 1 - run.planned.label
        planned = msgspec.structs.replace(run.planned, label=label, arm=(label,))
        swapped.append(msgspec.structs.replace(run, planned=planned) if run.planned.stage == "main" else run)
    one, other = (the_one(analyse(spec, seed, each)) for each in (runs, swapped))
    value, low, high = (1 / (1 + each) - 1 for each in effect_of(one))
    assert effect_of(other) == pytest.approx((value, high, low))
    assert other.p == one.p
    if one.verdict in {"higher", "lower"}:
        assert {one.verdict, other.verdict} == {"higher", "lower"}
    assert other.baseline == one.level


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 10_000), effect=st.floats(-0.1, 0.1), shape=st.sampled_from([(2,), (4,), (2, 3)]))
def test_verdicts_agree_with_their_intervals_and_do_not_depend_on_the_order_of_runs(
    seed: int, effect: float, shape: tuple[int, ...]
) -> None:
    spec = spec_of("ab" if shape == (2,) else "sweep", *shape)
    runs = runs_of(spec, planted(effect), seed)
    analysis = analyse(spec, seed, runs)
    for comparison in analysis.comparisons:
        _, low, high = effect_of(comparison)
        assert comparison.p is not None
        if comparison.verdict != "unsteady":
            assert (comparison.verdict == "higher") == (low > 0)
            assert (comparison.verdict == "lower") == (high < 0)
            assert (comparison.verdict == "no-difference") == (comparison.p > 0.05)
    seeded_random(seed).shuffle(runs)
    assert analyse(spec, seed, runs) == analysis


def in_step(run: PlannedRun, random: Random) -> float:
    """Return a value with an external period in step with the runs: the second label is 3 % higher."""
    return 100 * math.exp(random.gauss(0, 0.002)) * (1.03 if run.label == 1 else 1)


def test_a_difference_no_larger_than_the_nodes_own_is_unsteady_but_a_larger_one_counts() -> None:
    spec = spec_of("ab", 2)
    analysis = analyse(spec, 1, runs_of(spec, in_step))
    assert analysis.noise[FIGURE].verdict == "higher"
    assert the_one(analysis).verdict == "unsteady"
    larger = runs_of(spec, lambda run, random: in_step(run, random) * (1.5 if run.arm == (1,) else 1))
    assert the_one(analyse(spec, 1, larger)).verdict == "higher"


def test_a_metric_that_is_sometimes_zero_is_compared_by_differences() -> None:
    spec = spec_of("ab", 2)
    found = the_one(analyse(spec, 1, runs_of(spec, lambda run, _: (run.number % 2) + (2.0 if run.arm == (1,) else 0))))
    assert found.verdict == "higher"
    value, low, high = effect_of(found)
    assert low <= value <= high
    assert value == pytest.approx(4)


def test_where_the_baseline_is_zero_there_is_a_verdict_but_no_relative_effect() -> None:
    spec = spec_of("ab", 2)
    found = the_one(analyse(spec, 1, runs_of(spec, lambda run, _: 5.0 if run.arm == (1,) else 0.0)))
    assert (found.verdict, found.effect, found.minimum_detectable, found.p) == ("higher", None, None, 2 / 64)
    nowhere = the_one(analyse(spec, 1, runs_of(spec, lambda _run, _random: 0.0)))
    assert (nowhere.verdict, nowhere.effect, nowhere.p) == ("no-difference", None, 1)


@pytest.mark.parametrize("done", [0, 1, 23, 24, 30, 43])
def test_with_missing_runs_there_is_no_result(done: int) -> None:
    spec = spec_of("ab", 2)
    analysis = analyse(spec, 1, runs_of(spec, planted(0.5))[:done])
    assert analysis.counted == done
    assert all(each.verdict == "too-few" and each.p is None for each in analysis.comparisons)
    assert [each.verdict for each in analysis.noise.values()] == (
        [] if done == 0 else ["no-difference" if done >= 24 else "too-few"]
    )


def test_discarded_runs_are_counted_and_change_nothing_else() -> None:
    spec = spec_of("ab", 2)
    runs = runs_of(spec, planted(0.1))
    wrong = [kept(run.planned, {FIGURE: 1.0}, discarded="A CPU went offline.") for run in runs[::5]]
    analysis = analyse(spec, 1, [*wrong, *runs])
    assert (analysis.counted, analysis.discarded) == (len(runs), len(wrong))
    assert msgspec.structs.replace(analysis, discarded=0) == analyse(spec, 1, runs)


@pytest.mark.parametrize("lost", [math.nan, math.inf, 1e40, None])
def test_a_block_with_a_missing_or_implausible_value_does_not_count(lost: float | None) -> None:
    spec = spec_of("ab", 2, blocks=8)
    runs = runs_of(spec, planted(0.1))
    runs[-1] = kept(runs[-1].planned, {} if lost is None else {FIGURE: lost})
    found = the_one(analyse(spec, 1, runs))
    assert (found.blocks, found.verdict) == (7, "higher")


def test_a_level_without_a_metric_does_not_prevent_comparing_the_others() -> None:
    spec = spec_of("sweep", 5)
    runs = runs_of(spec, planted(0.2), metrics=[FIGURE, "packets_per_interrupt"])
    for run in runs:
        if run.planned.arm == (3,):
            del run.figures["packets_per_interrupt"]
    analysis = analyse(spec, 1, runs)
    verdicts = [each.verdict for each in analysis.comparisons if each.metric == "packets_per_interrupt"]
    assert verdicts == ["higher", "no-difference", "too-few", "no-difference"]
    assert [interval is None for interval in analysis.means["packets_per_interrupt"]] == [False] * 3 + [True, False]


def test_a_sweep_over_two_factors_compares_every_combination_and_finds_the_factor_with_the_trend() -> None:
    spec = spec_of("sweep", 3, 4)
    runs = runs_of(spec, lambda run, random: (100 + 10 * sum(run.arm[1:])) * math.exp(random.gauss(0, 0.01)))
    analysis = analyse(spec, 1, runs)
    assert [each.arm for each in analysis.comparisons] == analysis.arms[1:]
    for comparison in analysis.comparisons:
        assert effect_of(comparison)[0] == pytest.approx(0.1 * comparison.arm[1], abs=0.03)
    none, strong = analysis.trends
    assert (none.factor, strong.factor) == (0, 1)
    assert none.p is not None
    assert none.p > 0.05
    assert strong.rho == pytest.approx(1)
    assert strong.p == 1 / 2000


def test_a_factor_without_numbers_has_no_trend() -> None:
    spec = spec_of("sweep", 4)
    spec.factors[0].levels[2:] = [Level("kernel default"), Level("irqbalance")]
    assert analyse(spec, 1, runs_of(spec, planted(0))).trends == []


def test_metrics_are_listed_in_declared_order_with_those_of_commands_last() -> None:
    spec = spec_of("aa")
    runs = runs_of(spec, planted(0), metrics=["command.total", "rtt_p99_us", "command.errors", FIGURE])
    assert analyse(spec, 1, runs).metrics == [FIGURE, "rtt_p99_us", "command.errors", "command.total"]


def test_an_analysis_can_be_stored_as_json() -> None:
    spec = spec_of("sweep", 3, 3)
    analysis = analyse(spec, 1, runs_of(spec, planted(0.1), metrics=list(EXPERIMENT_METRICS)))
    assert msgspec.json.decode(msgspec.json.encode(analysis), type=Analysis) == analysis


def test_kept_runs_have_means_even_without_a_complete_block() -> None:
    spec = spec_of("ab", 2)
    runs = [run for run in runs_of(spec, planted(0.1)) if run.planned.stage == "aa"][:20]
    first = next(run for run in plan_runs(spec, 1) if run.arm == (1,))
    found = analyse(spec, 1, [*runs, kept(first, {FIGURE: 7.0}), kept(first, {FIGURE: 9.0}, "It took too long.")])
    baseline, level = found.means[FIGURE]
    assert baseline is not None
    assert baseline.low < baseline.value < baseline.high, "from the A/A runs"
    assert level == Interval(7.0, 7.0, 7.0)
    (comparison,) = found.comparisons
    assert (comparison.verdict, comparison.effect) == ("too-few", None)
    assert (comparison.baseline, comparison.level) == (baseline, level)


def test_an_incomplete_block_counts_in_no_comparison() -> None:
    spec = spec_of("ab", 2, blocks=8)
    runs = runs_of(spec, planted(0.1))
    last = max(run.planned.number for run in runs)
    whole, part = analyse(spec, 1, runs), analyse(spec, 1, [run for run in runs if run.planned.number != last])
    assert [one.comparisons[0].blocks for one in (whole, part)] == [8, 7]
