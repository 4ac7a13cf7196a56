"""The search of a tune on made-up surfaces, its schedule from recorded runs, and its result."""

import math
from collections.abc import Callable, Sequence
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from scipy import optimize

from coresteer.experiments import schedule
from coresteer.experiments.spec import Arm, Factor, Level, PlannedRun, RecordedRun, Spec, Tune
from coresteer.experiments.tune import surrogate
from coresteer.experiments.tune.plan import plan_tune, tune_result
from coresteer.experiments.tune.result import Candidate
from coresteer.experiments.tune.search import BLOCK_RUNS, Goal, Measured, Search
from coresteer.experiments.tune.space import Space
from coresteer_core.experiments.model import TcpRequest

Surface = Callable[[Arm], tuple[float, float]]


def values(name: str, *found: float | None) -> Factor:
    return Factor(name, [Level(f"{name} {at}", value=value) for at, value in enumerate(found)])


WAITS = values("rx-usecs", 0, 5, 10, 20, 40, 80, 160, 320)
FRAMES = values("rx-frames", 1, 4, 16, 64, 256)
PLACES = values("placement", None, None, None)


def bowl(arm: Arm) -> tuple[float, float]:
    """CPU time falls with the first level and is least at the fourth level of the second; response times rise."""
    return 10 * math.exp(-0.2 * arm[0] + 0.1 * (arm[1] - 3) ** 2), 100 * math.exp(0.3 * arm[0])


def spec_of(*factors: Factor, limit: float | None = 500.0, max_runs: int = 60) -> Spec:
    return Spec(
        name="tune",
        kind="tune",
        node_id=1,
        workload=TcpRequest(),
        primary="cpu_s_per_gbit",
        factors=list(factors),
        tune=Tune(limit=limit, max_runs=max_runs),
    )


def searched(space: Space, surface: Surface, goal: Goal, *, seed: int = 1, noise: float = 0.0) -> tuple[Search, int]:
    """Search until it has converged; return its last state and the number of blocks."""
    random = Random(seed)  # noqa: S311 - no secret
    runs: list[Measured] = []
    for block in range(20):
        search = Search(space, goal, runs, [], blocks=block, seed=seed)
        arms = search.next_block()
        if not arms:
            return search, block
        for arm in arms:
            cost, latency = (value * math.exp(random.gauss(0, noise)) for value in surface(arm))
            runs.append(Measured(block, arm, cost, latency))
    raise AssertionError("It does not converge.")


@pytest.mark.parametrize("noise", [0.0, 0.03])
@pytest.mark.parametrize(
    ("goal", "best"),
    [(Goal(1, None), (7, 3)), (Goal(1, 500.0), (5, 3)), (Goal(1, 150.0), (1, 3)), (Goal(-1, 300.0), (0, 0))],
)
def test_it_finds_the_best_candidate_that_keeps_the_limit(goal: Goal, best: Arm, noise: float) -> None:
    space = Space([WAITS, FRAMES])
    search, _ = searched(space, bowl, goal, noise=noise)
    assert search.best is not None
    found, wanted = (bowl(arm)[0] for arm in (space.arms[search.best], best))
    assert abs(math.log(found / wanted)) < 0.06
    assert goal.limit is None or bowl(space.arms[search.best])[1] <= goal.limit


def test_the_last_candidates_are_eliminated_before_all_are_measured() -> None:
    space = Space([WAITS, FRAMES, PLACES])
    search, blocks = searched(space, lambda arm: bowl(arm[:2]), Goal(1, 500.0))
    assert blocks * BLOCK_RUNS < 0.5 * len(space)
    assert search.open.sum() < 0.5 * len(space)


def test_a_limit_that_nothing_keeps_ends_the_search() -> None:
    search, blocks = searched(Space([WAITS, FRAMES]), bowl, Goal(1, 10.0))
    assert (search.best, blocks <= 4) == (None, True)


def test_the_drift_of_whole_blocks_does_not_decide() -> None:
    space = Space([WAITS, FRAMES])
    calm, slow = (
        [
            Measured(block, arm, bowl(arm)[0] * (drift if block == 1 else 1), bowl(arm)[1])
            for block, arms in enumerate([[(0, 0), (3, 1), (4, 2), (2, 3)], [(0, 0), (6, 3), (7, 3), (1, 1)]] * 2)
            for arm in arms
        ]
        for drift in (1.0, 1.5)
    )
    one, other = (Search(space, Goal(1, None), runs, [], blocks=4, seed=1) for runs in (calm, slow))
    assert one.best == other.best
    assert other.cost.mean[space.index[7, 3]] < other.cost.mean[space.index[4, 2]]


def test_levels_of_the_same_value_are_one_point_and_zero_and_nameless_levels_are_apart() -> None:
    space = Space([values("rx-usecs", 20, 0, 10, 20, 40, None)])
    near = space.squared_distances(range(6)).sum(axis=0)
    assert near[0, 3] == 0
    assert near[1, 2] > near[2, 3]
    assert (near[5, :5] > 0).all()
    assert Space([PLACES]).squared_distances([0]).sum(axis=0)[0, 1] == pytest.approx(0.5)


def test_the_gradient_of_the_model_is_that_of_its_loss(monkeypatch: pytest.MonkeyPatch) -> None:
    errors = []
    minimize = optimize.minimize

    def checked(loss, start, **options):  # type: ignore[no-untyped-def]
        point = start + 0.1
        slopes = [(loss(point + step)[0] - loss(point - step)[0]) / 2e-5 for step in 1e-5 * np.eye(len(point))]
        errors.append(float(np.abs(np.array(slopes) - loss(point)[1]).max()))
        return minimize(loss, start, **options)

    monkeypatch.setattr(optimize, "minimize", checked)
    space = Space([WAITS, PLACES])
    points = [0, 3, 7, 9, 14, 0, 20, 22]
    surrogate.Surrogate(space, points, [0, 0, 0, 0, 1, 1, 1, 1], [1.0, 2.0, 2.5, 1.5, 0.5, 1.2, 3.0, 2.0])
    assert max(errors) < 1e-5


surfaces = st.tuples(st.floats(-1, 1), st.floats(-1, 1), st.floats(0, 0.3)).map(
    lambda by: lambda arm: (math.exp(by[0] * arm[0] + by[2] * arm[1] ** 2), math.exp(by[1] * arm[0] + arm[1] / 5))
)


@settings(max_examples=5, deadline=None)
@given(surface=surfaces, limit=st.floats(0.1, 10), seed=st.integers(0, 2**31 - 1), failed=st.integers(1, 39))
def test_a_block_has_the_baseline_once_and_no_candidate_twice_and_none_that_failed(
    surface: Surface, limit: float, seed: int, failed: int
) -> None:
    space = Space([WAITS, FRAMES])
    runs: list[Measured] = []
    for block in range(4):
        hopeless = [space.arms[failed]] if block > 1 else []
        search = Search(space, Goal(1, limit), runs, hopeless, blocks=block, seed=seed)
        arms = search.next_block()
        if not arms:
            break
        assert (arms.count((0, 0)), len(set(arms))) == (1, len(arms))
        assert 1 < len(arms) <= BLOCK_RUNS
        assert not set(hopeless) & set(arms)
        runs += [Measured(block, arm, *surface(arm)) for arm in arms if arm not in hopeless]


# -- the schedule, from recorded runs


def recorded(
    planned: PlannedRun, *, discarded: str | None = None, violated: bool = False, attempt: int = 0
) -> RecordedRun:
    cost, latency = bowl(planned.arm)
    return RecordedRun(
        planned=planned,
        attempt=attempt,
        started_ms=planned.number,
        duration_s=10.0,
        figures={} if discarded else {"cpu_s_per_gbit": cost, "rtt_p99_us": latency},
        cpus={},
        load_before=0.0,
        steal_percent=0.0,
        discarded=discarded,
        violated=violated,
    )


def carried_out(spec: Spec, outcome: Callable[[PlannedRun], list[RecordedRun]], most: int = 500) -> list[RecordedRun]:
    """Carry out a tune run by run, its schedule computed again after each, as after a restart of the backend."""
    runs: list[RecordedRun] = []
    done: set[int] = set()
    for _ in range(most):
        following = [run for run in plan_tune(spec, 7, runs) if run.number not in done]
        if not following:
            return runs
        done.add(following[0].number)
        runs += outcome(following[0])
    return runs


def by_arm(candidates: Sequence[Candidate]) -> dict[Arm, Candidate]:
    return {each.arm: each for each in candidates}


def test_a_restart_within_a_block_continues_it() -> None:
    spec = spec_of(WAITS, FRAMES)
    runs = carried_out(spec, lambda planned: [recorded(planned)], most=15)
    for place in range(len(runs)):
        whole = plan_tune(spec, 7, runs[:place])
        assert whole[place] == runs[place].planned
        assert len(whole) % BLOCK_RUNS == 0
    assert [run.planned.number for run in runs] == list(range(15))


def test_a_tune_ends_when_it_has_converged_and_says_what_is_best() -> None:
    spec = spec_of(WAITS, FRAMES)
    runs = carried_out(spec, lambda planned: [recorded(planned)])
    found = tune_result(spec, 7, runs, has_ended=True)
    assert (found.best, found.stopped, found.combinations) == ((5, 3), "converged", 40)
    assert len(runs) < spec.tune.max_runs
    arms = by_arm(found.candidates)
    assert next(iter(arms)) == (0, 0)
    best = arms[5, 3]
    assert best.effect is not None
    assert best.effect.high < -0.5
    assert (best.state, best.why, best.front) == ("best", "", True)
    assert {each.state for each in found.candidates} <= {"baseline", "best", "worse", "limit", "open"}
    over = [each for each in found.candidates if each.state == "limit"]
    assert over
    assert all(bowl(each.arm)[1] > 500 for each in over)
    assert "sure to be above the limit" in over[0].why
    assert found.eliminated > len(found.candidates)
    assert found == tune_result(spec, 7, runs, has_ended=True)


def test_a_tune_takes_no_more_runs_than_it_may() -> None:
    spec = spec_of(WAITS, FRAMES, max_runs=14)
    runs = carried_out(spec, lambda planned: [recorded(planned)])
    assert len(runs) == 14
    assert tune_result(spec, 7, runs, has_ended=True).stopped == "runs"
    assert tune_result(spec, 7, runs[:-1], has_ended=False).stopped is None


def test_a_tune_goes_on_without_a_candidate_that_violated_a_guardrail_or_failed_three_times() -> None:
    spec = spec_of(WAITS, FRAMES)
    designed = [run.arm for run in plan_tune(spec, 7, []) if any(run.arm)]
    violating, failing = designed[:2]

    def outcome(planned: PlannedRun) -> list[RecordedRun]:
        if planned.arm == violating:
            return [recorded(planned, discarded="The TCP round-trip time was too long.", violated=True)]
        if planned.arm == failing:
            return [recorded(planned, discarded="The driver refused it.", attempt=attempt) for attempt in range(3)]
        return [recorded(planned)]

    runs = carried_out(spec, outcome)
    arms = by_arm(tune_result(spec, 7, runs, has_ended=True).candidates)
    assert (arms[violating].state, arms[violating].why) == ("failed", "The TCP round-trip time was too long.")
    assert (arms[failing].state, arms[failing].runs, arms[failing].cost) == ("failed", 0, None)
    assert sum(run.planned.arm in (violating, failing) for run in runs) == 4
    assert arms[5, 3].state == "best"


def test_runs_that_were_left_out_are_among_the_most_that_a_tune_may_take() -> None:
    spec = spec_of(WAITS, FRAMES, max_runs=14)
    failing = next(run.arm for run in plan_tune(spec, 7, []) if any(run.arm))

    def outcome(planned: PlannedRun) -> list[RecordedRun]:
        discarded = "The driver refused it." if planned.arm == failing else None
        return [recorded(planned, discarded=discarded, attempt=attempt) for attempt in range(3 if discarded else 1)]

    assert tune_result(spec, 7, carried_out(spec, outcome), has_ended=True).stopped == "runs"


def test_a_candidate_whose_run_is_attempted_again_is_open() -> None:
    spec = spec_of(WAITS, FRAMES)
    measured, lost = plan_tune(spec, 7, [])[:2]
    runs = [recorded(measured), recorded(lost, discarded="It got lost.")]
    arms = by_arm(tune_result(spec, 7, runs, has_ended=False).candidates)
    assert (arms[lost.arm].state, arms[lost.arm].why, arms[lost.arm].runs) == ("open", "", 0)
    assert arms[0, 0].state == "baseline"


def test_labels_are_the_positions_of_arms_in_the_order_of_their_first_run() -> None:
    spec = spec_of(WAITS, FRAMES)
    plans = [run.planned for run in carried_out(spec, lambda planned: [recorded(planned)], most=20)]
    arms = schedule.arms_in_order(spec, plans)
    assert all(arms[planned.label] == planned.arm for planned in plans)
    assert arms[0] == (0, 0)


def test_without_the_second_metric_no_limit_is_known_to_be_kept() -> None:
    spec = spec_of(WAITS, FRAMES)

    def without(planned: PlannedRun) -> list[RecordedRun]:
        return [replace(recorded(planned), figures={"cpu_s_per_gbit": bowl(planned.arm)[0]})]

    found = tune_result(spec, 7, carried_out(spec, without), has_ended=True)
    assert (found.best, found.stopped) == (None, "infeasible")
    assert "was not measured" in found.candidates[1].why
    free = spec_of(WAITS, FRAMES, limit=None)
    assert tune_result(free, 7, carried_out(free, without), has_ended=True).best == (7, 3)


def test_without_the_primary_metric_a_tune_ends_without_a_result() -> None:
    spec = spec_of(WAITS, FRAMES)
    runs = carried_out(spec, lambda planned: [replace(recorded(planned), figures={})])
    found = tune_result(spec, 7, runs, has_ended=True)
    assert (found.best, found.candidates) == (None, [])
    assert len(runs) < spec.tune.max_runs


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        (spec_of(WAITS), None),
        (spec_of(values("one", 1, 2)), "4 to 4,096 combinations"),
        (spec_of(*[replace(WAITS, name=str(place)) for place in range(5)]), "this spec has 32,768"),
        (replace(spec_of(WAITS), primary="context_switches_per_s"), "better when it is lower"),
        (replace(spec_of(WAITS), primary="rtt_p99_us"), "must differ"),
        (spec_of(WAITS, WAITS), "Two of factors have the same name"),
        (replace(spec_of(WAITS, FRAMES, PLACES), kind="sweep"), "for more factors use a tune"),
    ],
)
def test_a_spec_that_cannot_be_searched_is_refused(spec: Spec, problem: str | None) -> None:
    found = schedule.check_spec(spec)
    assert (found is None) if problem is None else (problem in (found or "")), found


def test_the_most_that_a_tune_may_take_bounds_its_duration() -> None:
    spec = spec_of(WAITS, max_runs=24)
    assert schedule.run_count(spec) == 24
    assert schedule.estimate_duration_s(spec) == 24 * (3 + 2 + 10)
    assert schedule.estimate_duration_s(replace(spec, tune=Tune(max_minutes=2))) == 120
