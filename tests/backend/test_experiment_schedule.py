from collections import Counter

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coresteer.experiments.arm_config import measure_s, warmup_s
from coresteer.experiments.schedule import (
    MAX_RUNS,
    RUN_OVERHEAD_S,
    all_arms,
    arm_name,
    check_spec,
    discard_reason,
    estimate_duration_s,
    estimate_run_s,
    plan_runs,
    run_count,
)
from coresteer.experiments.spec import Factor, Kind, Level, PolicyLevel, Spec
from coresteer_core.experiments.model import Classes, Command, Memory, Observe, RunResult
from coresteer_core.experiments.parallel_jobs import Bsp


def factor(name: str, levels: int) -> Factor:
    return Factor(name, [Level(f"{name} {number}") for number in range(levels)])


def spec_of(kind: Kind, *levels: int, blocks: int = 6, aa_blocks: int = 6) -> Spec:
    factors = [factor(f"f{place}", count) for place, count in enumerate(levels)]
    return Spec(
        name="one",
        kind=kind,
        node_id=1,
        workload=Observe(),
        primary="cpu_busy_percent",
        factors=factors,
        blocks=blocks,
        aa_blocks=aa_blocks,
    )


shapes = st.one_of(
    st.just(("aa", ())),
    st.just(("ab", (2,))),
    st.lists(st.integers(2, 5), min_size=1, max_size=2).map(lambda levels: ("sweep", tuple(levels))),
)


@settings(max_examples=40)
@given(shape=shapes, blocks=st.integers(3, 8), aa_blocks=st.integers(3, 8), seed=st.integers(0, 2**31 - 1))
def test_every_block_is_complete_and_balanced_and_the_seed_alone_decides_the_order(
    shape: tuple[Kind, tuple[int, ...]], blocks: int, aa_blocks: int, seed: int
) -> None:
    kind, levels = shape
    spec = spec_of(kind, *levels, blocks=blocks, aa_blocks=aa_blocks)
    runs = plan_runs(spec, seed)
    assert runs == plan_runs(spec, seed)
    assert [run.number for run in runs] == list(range(run_count(spec)))
    combinations = all_arms(spec)
    for stage, count in [("aa", blocks if kind == "aa" else aa_blocks), ("main", 0 if kind == "aa" else blocks)]:
        of_stage = [run for run in runs if run.stage == stage]
        assert sorted({run.block for run in of_stage}) == list(range(count))
        for block in range(count):
            labels = [run.label for run in of_stage if run.block == block]
            if stage == "main" and kind == "sweep":
                assert sorted(labels) == list(range(len(combinations)))
            else:
                assert labels in ([0, 1, 1, 0], [1, 0, 0, 1])
    assert all(run.arm == combinations[run.label if run.stage == "main" else 0] for run in runs)


def test_each_order_of_a_block_is_as_likely_as_another() -> None:
    first = Counter(plan_runs(spec_of("ab", 2), seed)[24].label for seed in range(400))
    assert all(160 <= count <= 240 for count in first.values())
    places = Counter(plan_runs(spec_of("sweep", 4), seed)[24].label for seed in range(400))
    assert all(70 <= places[label] <= 130 for label in range(4))


def test_arms_are_all_combinations_with_the_baseline_first() -> None:
    spec = spec_of("sweep", 2, 3)
    assert all_arms(spec) == [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2)]
    assert arm_name(spec, (1, 2)) == "f0 1, f1 2"
    assert all_arms(spec_of("aa")) == [()]
    assert arm_name(spec_of("aa"), ()) == "current settings"


@pytest.mark.parametrize(
    ("spec", "part"),
    [
        (spec_of("aa", 2), "must not have factors"),
        (spec_of("ab"), "one factor with two levels"),
        (spec_of("ab", 3), "use a sweep"),
        (spec_of("ab", 2, 2), "use a sweep"),
        (spec_of("sweep"), "at least three levels"),
        (spec_of("sweep", 2), "use A/B"),
        (spec_of("sweep", 16, 16, blocks=10), "2584 runs; the maximum is 2000"),
        (msgspec.structs.replace(spec_of("aa"), primary="speed"), "no metric speed"),
        (msgspec.structs.replace(spec_of("aa"), primary="command.total"), "the workload is not a command"),
        (
            msgspec.structs.replace(spec_of("ab", 2), factors=[Factor("f", [Level("x"), Level("x")])]),
            "Two of the levels of f have the same name",
        ),
        (
            msgspec.structs.replace(spec_of("sweep", 2, 2), factors=[factor("f", 2), factor("f", 2)]),
            "Two of factors have the same name",
        ),
    ],
)
def test_an_experiment_that_cannot_be_scheduled_or_decided_is_refused_with_the_reason(spec: Spec, part: str) -> None:
    assert part in (check_spec(spec) or "")


@pytest.mark.parametrize(
    "spec",
    [
        spec_of("aa"),
        spec_of("ab", 2),
        spec_of("sweep", 3),
        spec_of("sweep", 2, 2),
        msgspec.structs.replace(spec_of("aa"), workload=Command(name="job"), primary="command.total"),
    ],
)
def test_an_experiment_that_can_be_scheduled_is_not_refused(spec: Spec) -> None:
    assert check_spec(spec) is None
    assert run_count(spec) <= MAX_RUNS


@settings(max_examples=20)
@given(shape=shapes, blocks=st.integers(3, 6), irqbalance=st.booleans())
def test_the_duration_is_the_sum_of_its_runs(
    shape: tuple[Kind, tuple[int, ...]], blocks: int, irqbalance: bool
) -> None:
    spec = spec_of(shape[0], *shape[1], blocks=blocks)
    if spec.factors:
        spec.factors[0].levels[1] = Level("other", irqbalance=irqbalance)
    assert estimate_duration_s(spec) == pytest.approx(sum(estimate_run_s(spec, run.arm) for run in plan_runs(spec, 1)))


def test_only_runs_with_a_policy_or_irqbalance_settle() -> None:
    spec = spec_of("sweep", 3)
    spec.factors[0].levels[1:] = [Level("policy", policy=PolicyLevel(1, 1)), Level("irqbalance", irqbalance=True)]
    plain = estimate_run_s(spec, (0,))
    assert estimate_run_s(spec, (1,)) == estimate_run_s(spec, (2,)) == plain + spec.settle_s


def test_a_command_settles_and_has_no_warm_up() -> None:
    spec = spec_of("sweep", 3)
    spec.factors[0].levels[1] = Level("policy", policy=PolicyLevel(1, 1))
    command = msgspec.structs.replace(spec, workload=Command(name="job"))
    assert [warmup_s(command, (arm,)) for arm in (0, 1)] == [0.0, spec.settle_s]


def test_a_run_with_fixed_work_is_estimated_by_its_work_up_to_the_limit() -> None:
    spec = spec_of("sweep", 3)
    spec.factors[0].levels[1] = Level("policy", policy=PolicyLevel(1, 1))
    short = msgspec.structs.replace(spec, workload=Memory(work_s=4.0))
    assert [estimate_run_s(short, (arm,)) for arm in (0, 1)] == [RUN_OVERHEAD_S + 4.0] * 2
    jobs = msgspec.structs.replace(spec, workload=Bsp(jobs=2, loops=10, job_type="j1", exchange_ms=10))
    assert estimate_run_s(jobs, (0,)) == pytest.approx(RUN_OVERHEAD_S + 0.8)
    long = msgspec.structs.replace(spec, workload=Memory(work_s=200.0))
    assert estimate_run_s(long, (0,)) == RUN_OVERHEAD_S + spec.measure_s


def measured(
    duration_s: float = 10.0,
    steal_percent: float | None = None,
    disturbed: list[str] | None = None,
    figures: dict[str, float] | None = None,
) -> RunResult:
    return RunResult(
        started_ms=0,
        duration_s=duration_s,
        figures=figures or {},
        cpus={},
        load_before=1.0,
        steal_percent=steal_percent,
        disturbed=disturbed or [],
    )


classes = msgspec.structs.replace(spec_of("aa"), workload=Classes())
memory = msgspec.structs.replace(spec_of("aa"), workload=Memory())


@pytest.mark.parametrize(
    ("run", "spec", "part"),
    [
        (measured(), spec_of("aa"), None),
        (measured(10.4, 4.9), spec_of("aa"), None),
        (measured(7.9), spec_of("aa"), "7.90 s were measured instead of 10 s"),
        (measured(12.1), spec_of("aa"), "the tolerance is 2 s"),
        (measured(steal_percent=5.1), spec_of("aa"), "stole 5.1 % of the CPU time"),
        (measured(disturbed=["CPU 3 went offline.", "More."]), spec_of("aa"), "CPU 3 went offline."),
        (measured(2.0), classes, None),
        (measured(2.0), memory, None),
        (measured(0.4), classes, "ended after 0.40 s"),
    ],
)
def test_a_run_is_discarded_by_rule(run: RunResult, spec: Spec, part: str | None) -> None:
    reason = discard_reason(run, spec)
    assert reason is None if part is None else part in (reason or "")


@pytest.mark.parametrize(("requests", "limit_s"), [(50, 80.0), (100, 130.0), (1_000, 600.0)])
def test_the_time_limit_of_service_classes_follows_their_requests(requests: int, limit_s: float) -> None:
    spec = msgspec.structs.replace(classes, workload=Classes(requests=requests), measure_s=30.0)
    assert measure_s(spec, ()) == pytest.approx(limit_s, abs=0.1)
    assert measure_s(msgspec.structs.replace(spec, workload=Memory()), ()) == 30.0
    assert estimate_run_s(spec, ()) == pytest.approx(RUN_OVERHEAD_S + requests / 10)


def test_an_arm_with_more_requests_has_a_longer_limit() -> None:
    factor = Factor("requests", [Level("few"), Level("many", workload={"requests": 200})])
    spec = Spec(name="x", kind="ab", node_id=1, workload=Classes(requests=50), primary="c5_by_c1", factors=[factor])
    assert measure_s(spec, (0,)) < measure_s(spec, (1,))


@settings(max_examples=30)
@given(
    duration_s=st.floats(0, 20),
    steal_percent=st.none() | st.floats(0, 100),
    figures=st.dictionaries(st.sampled_from(["throughput_bit_per_s", "rtt_p99_us"]), st.floats()),
)
def test_discarding_a_run_does_not_depend_on_its_metrics(
    duration_s: float, steal_percent: float | None, figures: dict[str, float]
) -> None:
    with_figures = discard_reason(measured(duration_s, steal_percent, figures=figures), spec_of("ab", 2))
    assert with_figures == discard_reason(measured(duration_s, steal_percent), spec_of("ab", 2))
