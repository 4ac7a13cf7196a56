"""Values of papers next to an experiment's, matched by the roles of arms, and the predictor of a template."""

from typing import Any

import pytest
from msgspec.structs import replace
from tests.backend.simulated_experiments import Effect, ab_spec, simulated
from tests.backend.test_experiment_templates import THIS, TWO_SOCKET, card, cpus, facts, spec_of

from coresteer.experiments.analysis import analyse
from coresteer.experiments.findings import findings
from coresteer.experiments.predictor import prediction_of
from coresteer.experiments.published import published_results
from coresteer.experiments.schemas import Experiment, PublishedRow
from coresteer.experiments.spec import Factor, Level, RecordedRun, Spec
from coresteer.experiments.templates import NodeFacts, published_by, unmeasured_by
from coresteer.reports.experiment import experiment_report
from coresteer.reports.model import Lines, Table
from coresteer_core.experiments.model import Memory

METRIC = "throughput_bit_per_s"
NS = ab_spec(
    kind="sweep",
    primary=METRIC,
    factors=[
        Factor(
            "CPU of the process",
            [
                Level("⟨0-0⟩", role="n/same"),
                Level("⟨0-1⟩", role="n/cache"),
                Level("⟨0-2⟩", role="n/none"),
                Level("⟨0-3⟩", role="n/none"),
            ],
        )
    ],
)


def published_row(arm: str, *, role: str = "", against: str = "", direction: str = "") -> PublishedRow:
    return PublishedRow(
        id=arm, arm=arm, metric=METRIC, text="", value=None, role=role, against=against, direction=direction
    )


@pytest.mark.parametrize(
    ("row", "arms"),
    [
        (published_row("any n", role="n/*"), [0, 1, 2, 3]),
        (published_row("an n that shares no cache", role="n/none"), [2, 3]),
        (published_row("the same", role="n/same"), [0]),
        (published_row("⟨0-1⟩"), []),
        (published_row("⟨0-1⟩", role="m"), []),
        (published_row("of the paper only"), []),
    ],
    ids=lambda value: value.arm if isinstance(value, PublishedRow) else "",
)
def test_a_published_value_belongs_to_the_arms_of_its_role(row: PublishedRow, arms: list[int]) -> None:
    (found,) = published_results(NS, simulated(NS).analysis, [row])
    assert (found.arms, found.effect) == (arms, None)


def test_the_arms_of_two_factors_have_the_roles_of_both_levels() -> None:
    spec = replace(
        NS,
        factors=[
            Factor("time", [Level("a", role="short"), Level("b", role="long")]),
            Factor("frames", [Level("c", role="few"), Level("d")]),
        ],
    )
    rows = [published_row("", role=role) for role in ("short, few", "short", "long*", "long, few")]
    assert [found.arms for found in published_results(spec, simulated(spec).analysis, rows)] == [[0], [1], [2, 3], [2]]


def unas(effect: Effect) -> Experiment:
    spec = replace(spec_of(TWO_SOCKET, "unas"), primary=METRIC)
    return simulated(spec, effect=effect, noise=0.002)


def test_a_relative_value_is_compared_with_the_arm_in_its_role() -> None:
    found = unas(lambda _, arm: (1.0, 0.9, 1.25, 0.75)[arm[0]] if arm else 1.0)
    rows = [published_row("UNAS", role="policy", against=role) for role in ("kernel", "automatic", "pins", "none")]
    effects = [each.effect for each in published_results(found.spec, found.analysis, rows)]
    assert [None if effect is None else pytest.approx(effect.value, abs=0.01) for effect in effects] == [
        -0.25, -1 / 6, -0.4, None
    ]  # fmt: skip
    assert all(effect is None or effect.low < effect.value < effect.high for effect in effects)


@pytest.mark.parametrize(("direction", "expected"), [("lower", -0.25), ("higher", 0.25), ("unchanged", -1 / 6)])
def test_of_several_arms_the_largest_effect_in_the_published_direction_is_compared(
    direction: str, expected: float
) -> None:
    against = "pins" if direction == "unchanged" else "kernel"
    found = unas(lambda _, arm: (1.0, 0.9, 1.25 if direction == "higher" else 0.9, 0.75)[arm[0]] if arm else 1.0)
    row = published_row("any", role="*", against=against, direction=direction)
    (result,) = published_results(found.spec, found.analysis, [row])
    assert result.arms == [0, 1, 2, 3]
    assert result.effect is not None and result.effect.value == pytest.approx(expected, abs=0.01)


def test_a_metric_that_says_nothing_about_the_load_has_the_reason_and_no_arm() -> None:
    spec = spec_of(THIS, "rx-usecs")
    unmeasured = unmeasured_by(spec)
    assert unmeasured.keys() == {"interrupts_per_s", "packets_per_interrupt"}
    made = simulated(spec)
    analysis = analyse(spec, made.seed, made.runs, unmeasured=unmeasured.keys())
    assert "interrupts_per_s" in made.analysis.metrics and "interrupts_per_s" not in analysis.metrics
    rows = {row.id: row for row in published_by(spec, analysis)}
    assert (rows["usecs-18"].arms, rows["usecs-18"].unmeasured_because) == (
        [], "The load passes a veth pair, which raises no interrupt."
    )  # fmt: skip
    assert rows["usecs-90-throughput"].arms and rows["usecs-90-throughput"].unmeasured_because is None
    report = experiment_report(made.model_copy(update={"analysis": analysis}), "ko")
    section = next(s for s in report.sections if s.title == "논문 결과와의 비교")
    (table,) = [block for block in section.blocks if isinstance(block, Table)]
    assert table.rows[0][-1] == "부하가 인터럽트를 발생시키지 않는 veth 쌍을 지난다."
    assert not any(isinstance(block, Lines) for block in section.blocks)


NIC = facts(cpus(4), card("eth0", "mlx5_core", rx_usecs="8", rx_frames="128"))
PEER = replace(TWO_SOCKET, peer_id=2)


@pytest.mark.parametrize(
    ("node", "slug"),
    [
        (PEER, "m-n"),
        (TWO_SOCKET, "few-interrupt-cores"),
        (PEER, "few-interrupt-cores-2s"),
        (PEER, "few-interrupt-cores-2n"),
        (PEER, "few-interrupt-cores-4s"),
        (NIC, "rx-usecs"),
        (NIC, "rx-frames"),
        (TWO_SOCKET, "service-classes"),
        (TWO_SOCKET, "unas"),
        (TWO_SOCKET, "contention-factor"),
        (TWO_SOCKET, "coscheduling"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_every_published_value_with_a_role_has_this_nodes_next_to_it(node: NodeFacts, slug: str) -> None:
    spec = spec_of(node, slug)
    made = simulated(spec)
    rows = published_by(spec, made.analysis)
    runs = [
        replace(run, figures=dict.fromkeys({row.metric for row in rows}, 1.0 + run.planned.arm[0])) for run in made.runs
    ]
    with_a_role = [row for row in published_by(spec, analyse(spec, made.seed, runs)) if row.role]
    assert with_a_role
    for row in with_a_role:
        assert row.arms, row.id
        assert (row.effect is not None) == bool(row.against), row.id


@pytest.mark.parametrize("spec", [spec_of(TWO_SOCKET, "rx-usecs"), spec_of(TWO_SOCKET, "m-n")], ids=["nic", "m-n"])
def test_existing_traffic_and_other_templates_measure_every_metric(spec: Spec) -> None:
    assert unmeasured_by(spec) == {}


def contention(*, factors: list[float] | None, slow: list[float], reason: str = "") -> Experiment:
    spec = spec_of(TWO_SOCKET, "contention-factor")
    assert isinstance(spec.workload, Memory)
    amounts = {"memory_run_s": slow, **({} if factors is None else {"contention_factor": factors})}

    def measured(run: RecordedRun) -> RecordedRun:
        at = run.planned.arm[0]
        noise = 1 + run.planned.number % 5 / 1000
        return replace(run, figures={name: values[at] * noise for name, values in amounts.items()})

    made = simulated(spec)
    runs = [measured(run) for run in made.runs]
    changes: dict[str, Any] = {"runs": runs, "analysis": analyse(spec, made.seed, runs)}
    machine = made.machine | ({"bandwidth_unknown": reason} if reason else {})
    return made.model_copy(update=changes | {"machine": machine})


def test_a_predictor_is_compared_by_ranks_and_drawn() -> None:
    found = contention(factors=[0.1, 0.2, 0.9], slow=[10.0, 11.0, 18.0])
    prediction = prediction_of(found)
    assert prediction is not None and prediction.rho == pytest.approx(1.0)
    assert any("Spearman's ρ 1.00 (goal: at least 0.70)" in sentence for sentence in findings(found, "en"))
    section = next(s for s in experiment_report(found, "en").sections if s.title == "Predicted and measured")
    chart = next(block for block in section.blocks if isinstance(block, Lines))
    assert [round(line.points[0][1].value) for line in chart.lines] == [0, 10, 80]
    missed = contention(factors=[0.1, 0.9, 0.2], slow=[10.0, 11.0, 18.0])
    assert any("under the goal of 0.70" in sentence for sentence in findings(missed, "en"))


def test_an_unknown_predictor_is_named_with_the_reason_and_no_number() -> None:
    reason = "This agent reads neither resctrl nor the CPU's performance counters."
    found = contention(factors=None, slow=[10.0, 11.0, 18.0], reason=reason)
    sentence = next(each for each in findings(found, "en") if each.startswith("Contention factor is unknown"))
    assert sentence.endswith(reason)
    section = next(s for s in experiment_report(found, "en").sections if s.title == "Predicted and measured")
    (table,) = [block for block in section.blocks if isinstance(block, Table)]
    assert [row[2] for row in table.rows] == ["–"] * 3
    assert not any(isinstance(block, Lines) for block in section.blocks)
