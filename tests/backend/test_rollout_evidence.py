"""Figures of a rollout's stages: before, after, and next to the nodes that wait."""

from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import numpy as np
import pytest

from coresteer.policies.proof_settings import ProofSettings
from coresteer.policies.rollout_schemas import EvidenceBasis, StageVerdict
from coresteer.policies.stage_evidence import ALPHA, NodeFigures, StageOfRollout, stage_evidence, worsened
from coresteer.policies.stage_windows import _WindowReader
from coresteer.telemetry.block_figures import BlockFigures, Sums
from coresteer_core.metrics import MetricLabel

AT = datetime(2026, 11, 22, 12, 0, tzinfo=UTC)
MIN_BIT_PER_S = 1e6
ONLY = StageOfRollout(0, 1, AT, 60, 0, MIN_BIT_PER_S)
COST, BUSY = "cpu_s_per_gbit", "cpu_busy_percent"


def block(cost: float, gbit: float = 60.0, duration_s: float = 60.0) -> BlockFigures:
    """A block with this CPU time per gigabit."""
    sums = {
        COST: Sums(cost * gbit, gbit),
        "rx_bit_per_s": Sums(gbit * 1e9, duration_s),
        "tx_bit_per_s": Sums(0.0, duration_s),
    }
    return BlockFigures(duration_s, sums)


def nodes(*changes: float, cost: float = 0.1) -> list[NodeFigures]:
    """Nodes whose CPU time per gigabit is multiplied by these factors."""
    return [NodeFigures(block(cost), block(cost * change)) for change in changes]


WAITING = nodes(1.19, 1.2, 1.21, 1.2, 1.19, 1.21)
"""A busy hour began for all nodes alike."""


@pytest.mark.parametrize(
    ("changed", "waiting", "verdict"),
    [
        ([1.2, 1.21], WAITING, StageVerdict.NONE_FOUND),
        ([1.08, 1.09], WAITING, StageVerdict.IMPROVES),
        ([1.38, 1.4], WAITING, StageVerdict.WORSENS),
        ([1.4], WAITING, StageVerdict.WORSENS),
        ([1.2], WAITING, StageVerdict.NONE_FOUND),
        ([1.4, 1.4], [], StageVerdict.NOT_COMPARED),
        ([1.4], nodes(1.2), StageVerdict.TOO_FEW),
    ],
)
def test_a_stage_is_compared_with_the_nodes_that_wait(
    changed: list[float], waiting: list[NodeFigures], verdict: StageVerdict
) -> None:
    evidence = stage_evidence(
        StageOfRollout(0, 2, AT, 60, len(waiting), MIN_BIT_PER_S), [COST], nodes(*changed), waiting
    )
    (figure,) = evidence.figures
    assert figure.verdict is verdict
    assert figure.change == pytest.approx(np.expm1(np.log(changed).mean()))
    assert (worsened(evidence) is not None) == (verdict is StageVerdict.WORSENS)
    assert (evidence.basis is EvidenceBasis.COMPARED) == (figure.low is not None)
    assert ("may have other causes" in figure.sentence) == (not waiting)
    if waiting:
        assert figure.effect == pytest.approx(
            np.exp(np.log(changed).mean() - np.mean([np.log(w.after.sums[COST].value / 0.1) for w in waiting])) - 1
        )


def test_figures_of_several_nodes_are_ratios_of_sums() -> None:
    busy, idle = NodeFigures(block(0.1, 90), block(0.1, 90)), NodeFigures(block(0.5, 10), block(0.5, 10))
    (figure,) = stage_evidence(ONLY, [COST], [busy, idle], []).figures
    assert figure.before == pytest.approx((0.1 * 90 + 0.5 * 10) / 100)


def test_without_figures_the_evidence_says_so() -> None:
    evidence = stage_evidence(ONLY, [COST, BUSY], [], WAITING)
    assert (evidence.figures, evidence.sentence.startswith("No figures: ")) == ([], True)
    assert evidence.basis is EvidenceBasis.NONE


@pytest.mark.parametrize(
    ("figures", "usable"),
    [
        (NodeFigures(block(0.1), block(0.1)), True),
        (NodeFigures(block(0.1, duration_s=10), block(0.1)), False),
        (NodeFigures(block(0.1), block(0.1, duration_s=10)), False),
        (NodeFigures(block(0.1, gbit=0.01), block(0.1)), False),
        (NodeFigures(block(0.1), block(0.1, gbit=0.01)), True),
        (NodeFigures(BlockFigures(60, {}), block(0.1)), False),
    ],
)
def test_a_node_needs_samples_in_both_windows_and_traffic_in_the_first(figures: NodeFigures, usable: bool) -> None:
    assert figures.is_usable(60, min_bit_per_s=MIN_BIT_PER_S) is usable


LOST = NodeFigures(block(0.1), block(90.0, gbit=0.0006))
"""A node that has a few packets left, and CPU time as before."""
SLIGHTLY_LESS = NodeFigures(block(0.1, gbit=0.061), block(0.1, gbit=0.059))
"""A node whose traffic falls below the minimum, but not by much."""
A_200TH = NodeFigures(block(0.1, gbit=60), block(0.1, gbit=0.3))
"""A node that keeps more than the minimum, but next to nothing of what it had."""


@pytest.mark.parametrize(
    ("changed", "waiting", "worse", "told"),
    [
        (
            [LOST],
            WAITING,
            True,
            "1 of 1 node with traffic lost nearly all of it; 0 of 6 waiting nodes with traffic did.",
        ),
        (
            [LOST, LOST],
            WAITING[:4],
            False,
            "2 of 2 nodes with traffic lost nearly all of it; 0 of 4 waiting nodes with traffic did.",
        ),
        ([LOST, *nodes(1.2)], WAITING, False, "1 of 2 nodes with traffic lost nearly all of it; 0 of 6"),
        (
            [LOST],
            [LOST, LOST],
            False,
            "1 of 1 node with traffic lost nearly all of it; 2 of 2 waiting nodes with traffic did.",
        ),
        ([LOST], [LOST, *WAITING], False, "; 1 of 7 waiting nodes with traffic did."),
        ([LOST], [], False, "1 of 1 node with traffic lost nearly all of it; no node waits."),
        ([SLIGHTLY_LESS], WAITING, False, None),
        ([A_200TH], WAITING, True, "1 of 1 node with traffic lost nearly all of it"),
        ([], WAITING, False, None),
        (nodes(1.2), WAITING, False, None),
    ],
)
def test_a_stage_is_worse_if_all_its_nodes_lost_their_traffic_and_no_waiting_node_did(
    changed: list[NodeFigures], waiting: list[NodeFigures], worse: bool, told: str | None
) -> None:
    evidence = stage_evidence(StageOfRollout(0, 2, AT, 60, len(waiting), MIN_BIT_PER_S), [COST], changed, waiting)
    assert (worsened(evidence) is not None) is worse
    assert ("lost nearly all of it" in evidence.sentence) == (told is not None)
    if told is not None:
        assert told in (worsened(evidence) or evidence.sentence)


@pytest.mark.parametrize("gbit", [0.0, 0.0006])
def test_a_node_without_traffic_has_no_cpu_time_per_gigabit(gbit: float) -> None:
    lost = NodeFigures(block(0.1), block(90.0, gbit=gbit) if gbit else BlockFigures(60.0, {}))
    stage = StageOfRollout(0, 2, AT, 60, 8, MIN_BIT_PER_S)
    (figure,) = stage_evidence(stage, [COST], [lost, *nodes(1.2)], [lost, lost, *WAITING]).figures
    assert (figure.nodes, figure.waiting_nodes) == (1, 6)
    assert figure.change == pytest.approx(0.2)
    assert figure.sentence.endswith("Left out: 1 node of the stage without a value.")


@pytest.mark.parametrize(
    ("waits", "waiting", "why"),
    [
        (0, [], "no node waits"),
        (50, [], "of 50 waiting nodes, none that was read has enough samples and traffic"),
        (50, [NodeFigures(block(0.1), BlockFigures(60.0, {}))], "of 50 waiting nodes, none that was read has a value"),
    ],
)
def test_a_stage_that_is_not_compared_says_how_many_nodes_wait(
    waits: int, waiting: list[NodeFigures], why: str
) -> None:
    stage = StageOfRollout(0, 3, AT, 60, waits, MIN_BIT_PER_S)
    evidence = stage_evidence(stage, [COST], nodes(4.0), waiting)
    assert evidence.figures[0].verdict is StageVerdict.NOT_COMPARED
    assert f"CPU per gigabit: +300 % from before to after; {why}" in evidence.sentence


async def test_agents_send_the_newest_samples_of_a_stage_before_they_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    happened: list[tuple[str, int]] = []

    async def refresh(node_id: int) -> None:
        happened.append(("asked", node_id))

    async def window(_: _WindowReader, node_id: int, __: datetime, ___: datetime) -> BlockFigures:
        happened.append(("read", node_id))
        return block(0.1)

    monkeypatch.setattr(_WindowReader, "_window", window)
    context = SimpleNamespace(interest=SimpleNamespace(refresh=refresh))
    reader = _WindowReader(context, ProofSettings(), {}, {1: "a", 2: "b"})  # type: ignore[arg-type]  # has what is used
    minute = timedelta(minutes=1)
    assert len(await reader.read(reader.chosen([1, 2, 3]), (AT - 2 * minute, AT - minute), (AT - minute, AT))) == 2
    assert sorted(happened[:2]) == [("asked", 1), ("asked", 2)]
    assert {what for what, _ in happened[2:]} == {"read"}


def test_a_rollout_without_effect_is_seldom_stopped_and_a_harmful_one_is() -> None:
    random = np.random.default_rng(15)
    stages, metrics, runs = 4, [COST], 2000
    false_alarms = found = 0
    for _ in range(runs):
        worse = harmful = False
        drift = random.normal(0, 0.3)
        for stage in range(stages - 1):
            some = np.exp(drift + random.standard_t(4, 2) * 0.02)
            others = np.exp(drift + random.standard_t(4, 2 * (stages - 1 - stage)) * 0.02)
            now = StageOfRollout(stage, stages, AT, 60, len(others), MIN_BIT_PER_S)
            worse |= worsened(stage_evidence(now, metrics, nodes(*some), nodes(*others))) is not None
            harmful |= worsened(stage_evidence(now, metrics, nodes(*1.25 * some), nodes(*others))) is not None
        false_alarms += worse
        found += harmful
    assert false_alarms / runs < ALPHA / 2 + 0.015, "only harm ends a rollout: half of the errors"
    assert found / runs > 0.8


@pytest.mark.parametrize("stages", [2, 5, 20])
@pytest.mark.parametrize("events", [1, 1000, 10**9])
def test_three_nodes_of_which_one_differs_extremely_are_too_few_for_an_interval(stages: int, events: int) -> None:
    def counted(after: int) -> NodeFigures:
        drops = [{"softnet_dropped_per_s": Sums(count, 60.0, event=True)} for count in (0, after)]
        return NodeFigures(BlockFigures(60.0, drops[0]), BlockFigures(60.0, drops[1]))

    stage = StageOfRollout(0, stages, AT, 60, 2, MIN_BIT_PER_S)
    [figure] = stage_evidence(stage, ["softnet_dropped_per_s"], [counted(0)], [counted(0), counted(events)]).figures
    assert figure.verdict in (StageVerdict.NONE_FOUND, StageVerdict.TOO_FEW)


@pytest.mark.parametrize(
    ("events", "stopped"), [(1, False), (3, False), (1000, True)], ids=["one drop", "three drops", "a thousand drops"]
)
def test_a_count_that_is_zero_on_all_waiting_nodes_stops_a_rollout_only_where_it_is_large(
    events: int, stopped: bool
) -> None:
    def counted(before: int, after: int) -> NodeFigures:
        drops = [{"softnet_dropped_per_s": Sums(count, 60.0, event=True)} for count in (before, after)]
        return NodeFigures(BlockFigures(60.0, drops[0]), BlockFigures(60.0, drops[1]))

    waiting = [counted(0, 0) for _ in range(20)]
    evidence = stage_evidence(ONLY, ["softnet_dropped_per_s"], [counted(0, events)], waiting)
    assert (worsened(evidence) is not None) is stopped


@pytest.mark.parametrize(
    ("before", "after", "verdict"),
    [
        (0.0, 0.0101, StageVerdict.NONE_FOUND),
        (0.0, 1 / 45, StageVerdict.NONE_FOUND),
        (1 / 45, 0.0, StageVerdict.NONE_FOUND),
        (0.0, 20.0, StageVerdict.WORSENS),
        (20.0, 0.0, StageVerdict.IMPROVES),
    ],
)
def test_one_error_on_the_canary_ends_no_rollout_but_many_do(
    before: float, after: float, verdict: StageVerdict
) -> None:
    def served(*errors_per_s: float) -> NodeFigures:
        return NodeFigures(*[BlockFigures(45.0, {"app.errors": Sums(one, 1.0, floor=0.01)}) for one in errors_per_s])

    stage = StageOfRollout(0, 2, AT, 45, 10, MIN_BIT_PER_S)
    label = {"app.errors": MetricLabel("Errors", "1/s", "less")}
    waiting = [served(0.0, 0.0) for _ in range(10)]
    (figure,) = stage_evidence(stage, ["app.errors"], [served(before, after)], waiting, label).figures
    assert figure.verdict is verdict


@pytest.mark.parametrize("change", [1.0, 1.1, 1.7])
def test_nodes_that_do_not_vary_give_no_interval(change: float) -> None:
    stage = StageOfRollout(0, 2, AT, 60, 7, MIN_BIT_PER_S)
    (figure,) = stage_evidence(stage, [COST], nodes(1.5), nodes(*[change] * 7)).figures
    assert (figure.verdict, figure.low, figure.high) == (StageVerdict.TOO_FEW, None, None)
