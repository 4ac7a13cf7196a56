"""A policy that is held out on a node: its settings are restored by one plan and written again by one, or neither."""

import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
from msgspec.structs import replace
from tests.agent.policy_node import IRQS, RAIL, SPREAD, Node, Start, affinity, enforced
from tests.support.kills import Operation, count_operations, kill_at

from coresteer_agent.runtime import holdouts, policies
from coresteer_agent.runtime.policies import CONFIRM_AFTER_S, PolicyRunner
from coresteer_agent.runtime.policy_changes import FIRST_PAUSE_S
from coresteer_agent.simulate.cache import SimulationCache
from coresteer_agent.simulate.changes import SimulatedChanges
from coresteer_agent.simulate.machine import Fault, make_machine
from coresteer_agent.simulate.node import SimulatedNode
from coresteer_core.changes.events import AgentStopping, Event, MetricsMeasured
from coresteer_core.changes.report import ChangeMessage, ChangeState
from coresteer_core.policies import engine
from coresteer_core.policies.base import ROUND_PERIOD_S, HoldoutReport, HoldoutState, Mode, Ownership
from coresteer_core.policies.engine_state import Holding, PolicyInForce
from coresteer_core.policies.irq_spread.policy import IrqSpread
from coresteer_core.protocol import DecisionMessage

ORIGINAL, IN_FORCE = ("0-7", "0-7"), ("2", "3")
SLOW = replace(SPREAD, damping=replace(SPREAD.damping, moves_per_step=1, dwell_s=3600.0, min_revert_s=3600.0))
HELD_OUT = replace(SLOW, holdout=True)


@pytest.fixture
def node(start: Start) -> Node:
    """A node whose policy has set both interrupts, one at a time."""
    node = enforced(start(), SLOW, {41: "2"})
    node.wants = {41: "2", 42: "3"}
    node.steps(ROUND_PERIOD_S + CONFIRM_AFTER_S + ROUND_PERIOD_S)
    assert values(node) == IN_FORCE
    return node


def values(node: Node) -> tuple[str, ...]:
    return tuple(affinity(node.root, irq) for irq in IRQS)


def report(node: Node) -> HoldoutReport | None:
    return node.decisions()[-1].holdout


def held_out(node: Node, policy: PolicyInForce = HELD_OUT, seconds: float = 600) -> Node:
    node.policies.set_policies([policy])
    node.steps(seconds)
    return node


def test_one_plan_restores_all_settings_and_one_writes_them_again_whatever_the_damping(node: Node) -> None:
    damping = [node.policies._state.memory.recent_values, node.policies._state.memory.flaps]
    for _ in range(4):
        before = len(node.ends())
        began = node.now
        held_out(node, seconds=ROUND_PERIOD_S)
        assert values(node) == ORIGINAL
        node.steps(600)
        assert (values(node), len(node.ends()) - before) == (ORIGINAL, 1)
        assert report(node) == HoldoutReport(HoldoutState.HELD_OUT, 1, int((began + ROUND_PERIOD_S) * 1000))
        assert node.decisions()[-1].evaluation.mode is Mode.RECOMMEND
        assert [policy.mode for policy in node.policies.in_force] == [Mode.RECOMMEND]
        ended = node.now
        node.policies.set_policies([SLOW])
        node.steps(ROUND_PERIOD_S)
        assert values(node) == IN_FORCE
        node.steps(CONFIRM_AFTER_S)
        assert report(node) == HoldoutReport(HoldoutState.IN_FORCE, 1, int((ended + ROUND_PERIOD_S) * 1000))
        assert (values(node), len(node.ends()) - before) == (IN_FORCE, 2)
        assert [each.state for each in node.ends()[-2:]] == [ChangeState.CONFIRMED] * 2
    assert damping == [node.policies._state.memory.recent_values, node.policies._state.memory.flaps]


def test_each_switch_is_reported_with_its_actions_before_the_state_is(node: Node) -> None:
    told = len(node.decisions())
    held_out(node, seconds=2 * ROUND_PERIOD_S)
    plan, state = node.decisions()[told:]
    assert [(action.was, action.becomes) for action in plan.evaluation.actions] == [("3", "0-7"), ("2", "0-7")]
    assert (plan.change_id, state.change_id) == (node.ends()[-1].change_id, None)
    assert "2 settings are restored" in plan.evaluation.sentence
    assert [(action.was, action.becomes) for action in state.evaluation.actions] == [("0-7", "2"), ("0-7", "3")]


def test_an_original_with_a_value_for_each_of_many_threads_is_reported_as_a_view_shows_it(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(node.policies, "_ended", lambda _: [])
    original = ";".join(["0-3", *(f"{thread}={thread % 8}" for thread in range(1000, 5000))])
    holdings = {"task/812/affinity": Holding(SLOW.policy_id, original, "2", 0.0)}
    node.policies._tracked.set_memory(replace(node.policies._state.memory, holdings=holdings))
    told = len(node.decisions())
    held_out(node, seconds=ROUND_PERIOD_S)
    (action,) = node.decisions()[told].evaluation.actions
    assert (action.was, action.becomes) == ("2", "0-7")


def test_a_policy_that_has_set_nothing_is_held_out_at_once(start: Start) -> None:
    node = held_out(start(), seconds=ROUND_PERIOD_S)
    assert (report(node), node.ends()) == (HoldoutReport(HoldoutState.HELD_OUT, 1, 1_005_000), [])


def test_a_holdout_waits_for_a_change_that_is_not_confirmed(start: Start) -> None:
    node = start()
    node.wants = {41: "2"}
    node.policies.set_policies([SPREAD])
    node.steps(ROUND_PERIOD_S)
    held_out(node, seconds=ROUND_PERIOD_S)
    assert (affinity(node.root, 41), report(node)) == ("2", None)
    node.steps(CONFIRM_AFTER_S)
    assert affinity(node.root, 41) == "0-7"


@pytest.mark.parametrize(("on_drift", "then"), [(Ownership.WARN, "5"), (Ownership.REASSERT, "2")])
def test_a_setting_changed_meanwhile_is_left_out_and_treated_as_drift(
    node: Node, on_drift: Ownership, then: str
) -> None:
    held_out(node, replace(HELD_OUT, on_drift=on_drift))
    (node.root / "proc/irq/41/smp_affinity_list").write_text("5\n")
    node.wants = {}
    node.policies.set_policies([replace(SLOW, on_drift=on_drift, damping=SPREAD.damping)])
    node.steps(ROUND_PERIOD_S)
    assert values(node) == ("5", "3")
    node.steps(ROUND_PERIOD_S)
    found = report(node)
    assert found is not None
    (skipped,) = found.excepted
    assert (skipped.subject, found.state) == ("irq/41/affinity", HoldoutState.IN_FORCE)
    assert "Something else changed it to 5" in skipped.why
    node.steps(600)
    assert values(node) == (then, "3")


def test_a_setting_that_no_longer_exists_is_left_out(node: Node) -> None:
    held_out(node)
    shutil.rmtree(node.root / "proc/irq/41")
    node.wants = {}
    node.steps(ROUND_PERIOD_S)
    node.policies.set_policies([SLOW])
    node.steps(2 * ROUND_PERIOD_S)
    assert affinity(node.root, 42) == "3"
    found = report(node)
    assert found is not None
    assert [(each.subject, each.why) for each in found.excepted] == [("irq/41/affinity", "It no longer exists.")]


def test_if_a_setting_cannot_be_restored_all_are_in_force_again(node: Node) -> None:
    path = node.root / "proc/irq/41/smp_affinity_list"
    path.chmod(0o444)
    held_out(node, seconds=ROUND_PERIOD_S)
    assert values(node) == IN_FORCE
    node.steps(ROUND_PERIOD_S)
    found = report(node)
    assert found is not None
    assert found.state is HoldoutState.REFUSED
    assert "Not every setting could be restored. " in found.why
    assert [policy.mode for policy in node.policies.in_force] == [Mode.ENFORCE]
    node.steps(2 * FIRST_PAUSE_S)
    assert values(node) == IN_FORCE, "it is not tried again until the next holdout"
    path.chmod(0o644)
    node.policies.set_policies([SLOW])
    node.steps(600)
    held_out(node)
    assert values(node) == ORIGINAL


def test_a_setting_that_cannot_be_written_again_is_left_out_and_the_others_are_not(node: Node) -> None:
    held_out(node)
    (node.root / "proc/irq/41/smp_affinity_list").chmod(0o444)
    node.policies.set_policies([SLOW])
    node.steps(2 * ROUND_PERIOD_S)
    found = report(node)
    assert found is not None
    assert (values(node), found.state) == (("0-7", "3"), HoldoutState.IN_FORCE)
    assert "read-only" in found.excepted[0].why


def test_a_guardrail_reverts_values_that_are_in_force_again(node: Node) -> None:
    held_out(node)
    node.policies.set_policies([replace(SLOW, guardrails=[RAIL])])
    node.steps(ROUND_PERIOD_S)
    for _ in range(2):
        node.changes.feed(MetricsMeasured({"busiest_cpu_percent": 99.0}, 1.0))
    node.steps(ROUND_PERIOD_S)
    assert (values(node), node.held()) == (ORIGINAL, {})


def test_another_version_starts_from_the_original_values(node: Node) -> None:
    held_out(node)
    node.wants = {}
    node.policies.set_policies([replace(SLOW, version=2)])
    node.steps(600)
    assert (values(node), node.held()) == (ORIGINAL, {})


@pytest.mark.parametrize("then", [[], [replace(SLOW, mode=Mode.RECOMMEND, leased=True, holdout=True)]])
def test_a_policy_that_ends_while_it_is_held_out_holds_nothing(node: Node, then: list[PolicyInForce]) -> None:
    held_out(node)
    node.policies.set_policies(then)
    node.steps(ROUND_PERIOD_S)
    assert (values(node), node.held()) == (ORIGINAL, {})
    assert node.policies._state.memory.holdouts == {}


def test_without_the_backend_the_policy_is_in_force_again(node: Node) -> None:
    held_out(node)
    node.policies.end_leases()
    node.steps(ROUND_PERIOD_S)
    assert (values(node), node.policies.in_force) == (IN_FORCE, [SLOW])


def test_a_restarted_agent_puts_the_policy_in_force_again(node: Node, start: Start) -> None:
    held_out(node)
    node.changes.close()
    again = start()
    assert (values(again), [policy.holdout for policy in again.policies._state.policies]) == (ORIGINAL, [False])
    again.steps(ROUND_PERIOD_S)
    assert values(again) == IN_FORCE


def test_a_holdout_continues_if_the_backend_asks_for_it_before_a_restarted_agent_decides(
    node: Node, start: Start
) -> None:
    held_out(node)
    since = report(node)
    node.changes.close()
    again = held_out(start())
    assert (values(again), report(again)) == (ORIGINAL, since)


def test_a_policy_is_in_force_when_the_agent_ends(node: Node, start: Start) -> None:
    held_out(node)
    node.changes.feed(AgentStopping())
    node.policies.stop(node.view())
    assert (values(node), node.ends()[-1].state) == (IN_FORCE, ChangeState.CONFIRMED)
    node.changes.close()
    again = start()
    again.steps(60)
    assert values(again) == IN_FORCE


def switching(root: Path, state: Path, policy: PolicyInForce) -> Operation:
    """Return an operation that begins or ends a holdout in one round."""

    def operation(begin: Callable[[], None]) -> None:
        node = Node(root, state)
        engine.decide = node.decide  # type: ignore[attr-defined]  # of the forked process only
        node.policies.set_policies([policy])
        begin()
        node.policies.step(node.view())

    return operation


@pytest.mark.parametrize("policy", [HELD_OUT, SLOW], ids=["begin", "end"])
def test_a_kill_at_any_instant_leaves_the_policy_in_force_after_the_next_start(
    node: Node, start: Start, tmp_path: Path, policy: PolicyInForce
) -> None:
    if not policy.holdout:
        held_out(node)
    node.changes.close()
    before, saved = values(node), tmp_path / "saved"
    shutil.copytree(tmp_path / "state", saved)
    calls = count_operations(switching(node.root, tmp_path / "state", policy))
    moved = set()
    for instant in range(1, calls + 1, max(1, calls // 20)):
        for irq, value in zip(IRQS, before, strict=True):
            (node.root / f"proc/irq/{irq}/smp_affinity_list").write_text(f"{value}\n")
        shutil.rmtree(tmp_path / "state")
        shutil.copytree(saved, tmp_path / "state")
        kill_at(instant, switching(node.root, tmp_path / "state", policy))
        moved.add(values(node))
        again = start()
        again.steps(ROUND_PERIOD_S)
        assert values(again) == IN_FORCE, f"killed at operation {instant} of {calls}"
        again.steps(CONFIRM_AFTER_S + ROUND_PERIOD_S)
        assert values(again) == IN_FORCE
        again.changes.close()
    assert len(moved) >= 3, "the kills have to hit between the writes as well"


def around_plan(root: Path, state: Path, policy: PolicyInForce, *, after: bool) -> Operation:
    """Return an operation that counts from the plan of a holdout on: from its first write, or from its end."""

    def operation(begin: Callable[[], None]) -> None:
        node = Node(root, state)
        feed = node.changes.feed

        def counted(event: Event) -> frozenset[str]:
            if after:
                touched = feed(event)
                begin()
                return touched
            begin()
            return feed(event)

        node.changes.feed = counted  # type: ignore[method-assign]
        engine.decide = node.decide  # type: ignore[attr-defined]  # of the forked process only
        node.policies.set_policies([policy])
        node.policies.step(node.view())

    return operation


@pytest.mark.parametrize("then", [[], [replace(SLOW, version=2)]], ids=["disabled", "new version"])
@pytest.mark.parametrize("after", [False, True], ids=["before the plan", "after it"])
@pytest.mark.parametrize("policy", [HELD_OUT, SLOW], ids=["begin", "end"])
def test_a_kill_between_save_and_write_forgets_no_original_if_the_policy_then_changes(  # noqa: PLR0917 - a row of the table
    node: Node, start: Start, tmp_path: Path, policy: PolicyInForce, after: bool, then: list[PolicyInForce]
) -> None:
    if not policy.holdout:
        held_out(node)
    node.changes.close()
    kill_at(1, around_plan(node.root, tmp_path / "state", policy, after=after))
    assert values(node) == (ORIGINAL if policy.holdout is after else IN_FORCE)
    again = start()
    again.wants = {}
    again.policies.set_policies(then)
    again.steps(2 * ROUND_PERIOD_S)
    for irq, value in zip(IRQS, values(again), strict=True):
        holding = again.held().get(f"irq/{irq}/affinity")
        assert value == "0-7" or (holding is not None and holding.original == "0-7")
    again.policies.set_policies([])
    again.steps(CONFIRM_AFTER_S + ROUND_PERIOD_S)
    assert (values(again), again.held()) == (ORIGINAL, {})


def test_a_restart_before_the_values_are_confirmed_writes_them_again(node: Node, start: Start) -> None:
    held_out(node)
    node.policies.set_policies([SLOW])
    node.steps(ROUND_PERIOD_S)
    node.changes.close()
    again = start()
    assert values(again) == ORIGINAL
    again.steps(ROUND_PERIOD_S)
    assert values(again) == IN_FORCE


def test_a_simulated_node_is_held_out_and_gets_the_values_that_were_in_force(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = make_machine(cpus=8, irqs=20, kind=1, seed=0, fault=Fault.HOT_QUEUE)
    simulated = SimulatedNode(
        name="n", key="", index=0, seed=0, machine=machine, cache=SimulationCache(1.0), stream="s"
    )
    now: float = 1000.0
    changes = SimulatedChanges(simulated, lambda: now)
    told: list[DecisionMessage] = []
    runner = PolicyRunner(changes, told.append)
    clock = SimpleNamespace(monotonic=lambda: now, time_ns=lambda: int(now * 1e9))
    monkeypatch.setattr(policies, "time", clock)
    monkeypatch.setattr(holdouts, "time", clock)

    def run(seconds: int, policy: PolicyInForce) -> list[str | None]:
        nonlocal now
        runner.set_policies([policy])
        for _ in range(seconds):
            now += 1.0
            changes.advance(simulated.sample(43_200.0 + now))
            if now % ROUND_PERIOD_S == 0:
                runner.step(simulated.view(now))
        return [irq.requested for irq in simulated.inventory.irqs]

    spread = PolicyInForce("1", 1, "spread", 1, Mode.ENFORCE, IrqSpread())
    original = [irq.requested for irq in simulated.inventory.irqs]
    in_force = run(300, spread)
    assert in_force != original
    assert run(600, replace(spread, holdout=True)) == original
    assert run(int(ROUND_PERIOD_S), spread) == in_force
    assert run(int(ROUND_PERIOD_S), spread) == in_force
    ends = [message for message in changes.drain_messages() if message.state is ChangeState.FAILED]
    states = [message.holdout.state for message in told if message.holdout is not None]
    assert (ends, states[0], states[-1]) == (list[ChangeMessage](), HoldoutState.ENTERING, HoldoutState.IN_FORCE)
    assert HoldoutState.HELD_OUT in states
