"""A node's policies on a small captured tree: what is moved, kept, undone, given back, and known after a restart."""

from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace
from tests.agent.policy_node import IRQS, RAIL, SPREAD, Node, Start, affinity, enforced
from tests.support.kills import Operation, count_operations, kill_at

from coresteer_agent.apply.restore import restore
from coresteer_agent.runtime.policies import CONFIRM_AFTER_S
from coresteer_agent.runtime.policies_file import PoliciesFile
from coresteer_agent.runtime.policy_changes import FIRST_PAUSE_S
from coresteer_agent.runtime.policy_state import PolicyState
from coresteer_core.changes.events import AgentStopping, BackendLost, MetricsMeasured, RollbackRequested
from coresteer_core.changes.report import ChangeMessage, ChangeState, EndedBy
from coresteer_core.policies import engine
from coresteer_core.policies.base import ROUND_PERIOD_S, Mode, Ownership, Skipped
from coresteer_core.policies.engine_state import EnforcementStop, EngineMemory, Holding, PolicyInForce
from coresteer_core.policies.network_process.memory import NetworkProcessMemory
from coresteer_core.policies.network_process.policy import NetworkProcess
from coresteer_core.protocol import DecisionMessage


@pytest.fixture
def node(start: Start) -> Node:
    return start()


def test_the_change_of_an_enforced_policy_is_confirmed_by_itself(node: Node) -> None:
    node.wants = {41: "2"}
    node.policies.set_policies([replace(SPREAD, guardrails=[RAIL])])
    decided, applying, unconfirmed = node.steps(ROUND_PERIOD_S)
    assert isinstance(decided, DecisionMessage)
    assert [action.becomes for action in decided.evaluation.actions] == ["2"]
    assert isinstance(applying, ChangeMessage)
    assert isinstance(unconfirmed, ChangeMessage)
    assert applying.change_id == unconfirmed.change_id == decided.change_id
    assert affinity(node.root, 41) == "2"
    kept = [told for told in node.steps(CONFIRM_AFTER_S) if isinstance(told, ChangeMessage)]
    assert [(told.state, told.sentence) for told in kept] == [
        (ChangeState.CONFIRMED, "Confirmed by policy spread after 10 s, without a guardrail violation.")
    ]
    assert node.held()["irq/41/affinity"].original == "0-7"
    node.steps(10 * ROUND_PERIOD_S)
    assert affinity(node.root, 41) == "2"


def test_equal_evaluations_are_reported_once(node: Node) -> None:
    enforced(node)
    assert node.steps(60) == []


def test_changes_of_skipped_subjects_are_reported_once_a_minute(node: Node) -> None:
    enforced(node)
    told = []
    for turn in range(60):
        node.skipped = [Skipped(f"IRQ {turn}", "It is idle.")]
        told += node.steps(ROUND_PERIOD_S)
    assert len(told) == 5


def test_without_the_backend_policies_continue(node: Node) -> None:
    node.changes.feed(BackendLost())
    enforced(node)
    node.wants = {42: "3"}
    node.steps(30)
    assert (affinity(node.root, 41), affinity(node.root, 42)) == ("2", "3")


def test_the_last_evaluations_are_reported_again_after_a_reconnect(node: Node) -> None:
    enforced(node)
    last = node.decisions()[-1]
    node.policies.report_again()
    assert node.decisions()[-2:] == [last, last]


@pytest.mark.parametrize("mode", [Mode.OBSERVE, Mode.RECOMMEND])
def test_a_policy_that_does_not_enforce_reports_and_writes_nothing(node: Node, mode: Mode) -> None:
    node.wants = {41: "2"}
    node.policies.set_policies([replace(SPREAD, mode=mode)])
    (told,) = node.steps(60)
    assert isinstance(told, DecisionMessage)
    assert (told.evaluation.mode, told.change_id) == (mode, None)
    assert [action.becomes for action in told.evaluation.actions] == ["2"]
    assert affinity(node.root, 41) == "0-7"


def test_where_the_agent_may_not_write_policies_only_observe(start: Start) -> None:
    node = start("It does not run as root.")
    node.wants = {41: "2"}
    node.policies.set_policies([SPREAD])
    (told,) = node.steps(60)
    assert isinstance(told, DecisionMessage)
    assert (told.evaluation.mode, told.change_id) == (Mode.OBSERVE, None)
    assert affinity(node.root, 41) == "0-7"


def test_a_move_rolled_back_by_a_guardrail_is_not_repeated_at_once(node: Node) -> None:
    node.wants = {41: "2"}
    damping = replace(SPREAD.damping, min_revert_s=0.0)
    node.policies.set_policies([replace(SPREAD, guardrails=[RAIL], damping=damping)])
    node.steps(ROUND_PERIOD_S)
    for _ in range(2):
        node.changes.feed(MetricsMeasured({"busiest_cpu_percent": 99.0}, 1.0))
    assert (node.ends()[-1].ended_by, affinity(node.root, 41)) == (EndedBy.GUARDRAIL, "0-7")
    node.steps(FIRST_PAUSE_S)
    assert (node.held(), len(node.ends()), affinity(node.root, 41)) == ({}, 1, "0-7")
    (held,) = node.decisions()[-1].evaluation.deferred
    assert held.code == "refused"
    assert "for 2 intervals in a row. IRQ 41 was restored to 0-7. It is not tried again for 60 s." in held.why
    node.steps(2 * ROUND_PERIOD_S)
    assert affinity(node.root, 41) == "2"
    for _ in range(2):
        node.changes.feed(MetricsMeasured({"busiest_cpu_percent": 99.0}, 1.0))
    node.steps(FIRST_PAUSE_S + 2 * ROUND_PERIOD_S)
    assert affinity(node.root, 41) == "0-7", "the second pause is twice as long"


def test_a_setting_whose_takeover_is_rolled_back_belongs_to_the_policy_before(node: Node) -> None:
    enforced(node)
    node.wants = {41: "3"}
    damping = replace(SPREAD.damping, dwell_s=0.0)
    first = replace(SPREAD, policy_id="p2", name="first", rank=5, guardrails=[RAIL], damping=damping)
    node.policies.set_policies([SPREAD, first])
    node.steps(ROUND_PERIOD_S)
    assert (affinity(node.root, 41), node.held()["irq/41/affinity"].policy_id) == ("3", "p2")
    for _ in range(2):
        node.changes.feed(MetricsMeasured({"busiest_cpu_percent": 99.0}, 1.0))
    node.steps(ROUND_PERIOD_S)
    held = node.held()["irq/41/affinity"]
    assert (affinity(node.root, 41), held.policy_id, held.value, held.original) == ("2", "p1", "2", "0-7")


def test_a_failing_setting_is_not_tried_every_round_and_does_not_block_others(node: Node) -> None:
    (node.root / "proc/irq/41/smp_affinity_list").chmod(0o444)
    node.wants = {41: "2", 42: "3"}
    node.policies.set_policies([replace(SPREAD, damping=replace(SPREAD.damping, moves_per_step=1))])
    node.steps(50)
    assert [told.state for told in node.ends()] == [ChangeState.FAILED, ChangeState.CONFIRMED]
    assert "read-only" in node.ends()[0].sentence
    assert (affinity(node.root, 41), affinity(node.root, 42)) == ("0-7", "3")
    (held,) = node.decisions()[-1].evaluation.deferred
    assert (held.proposal.key, held.code) == ("irq/41/affinity", "refused")


def test_a_persons_rollback_of_a_confirmed_change_is_respected(node: Node) -> None:
    enforced(node)
    node.changes.feed(RollbackRequested(node.ends()[-1].change_id))
    node.steps(FIRST_PAUSE_S - ROUND_PERIOD_S)
    assert (node.held(), affinity(node.root, 41)) == ({}, "0-7")


NOT_IN_FORCE = [
    [],
    [replace(SPREAD, version=2, mode=Mode.RECOMMEND)],
    [replace(SPREAD, version=2, mode=Mode.OBSERVE)],
]


@pytest.mark.parametrize("told", NOT_IN_FORCE)
def test_settings_of_a_policy_that_no_longer_enforces_are_restored(node: Node, told: list[PolicyInForce]) -> None:
    enforced(node, wants={41: "2", 42: "3"})
    node.wants = {}
    node.policies.set_policies(told)
    node.steps(ROUND_PERIOD_S)
    assert (affinity(node.root, 41), affinity(node.root, 42), node.held()) == ("0-7", "0-7", {})
    back = node.ends()[-1]
    assert back.state is ChangeState.CONFIRMED
    assert back.sentence == "Policy spread is no longer enforced here. All 2 settings are restored."
    assert node.decisions()[-1 - len(told)].change_id == back.change_id
    assert restore(node.root.parent / "state/journal.jsonl", node.root) == []


def test_a_policy_that_ends_before_its_change_is_confirmed_restores_it_afterwards(node: Node) -> None:
    node.wants = {41: "2"}
    node.policies.set_policies([SPREAD])
    node.steps(ROUND_PERIOD_S)
    node.policies.set_policies([])
    node.steps(CONFIRM_AFTER_S + ROUND_PERIOD_S)
    assert ([told.state for told in node.ends()], affinity(node.root, 41)) == ([ChangeState.CONFIRMED] * 2, "0-7")


def test_a_setting_whose_last_change_failed_is_restored_at_once_when_its_policy_ends(node: Node) -> None:
    enforced(node, replace(SPREAD, damping=replace(SPREAD.damping, dwell_s=0.0, min_revert_s=0.0)))
    path = node.root / "proc/irq/41/smp_affinity_list"
    path.chmod(0o444)
    node.wants = {41: "3"}
    node.steps(2 * ROUND_PERIOD_S)
    assert node.ends()[-1].state is ChangeState.FAILED
    path.chmod(0o644)
    node.policies.set_policies([])
    node.steps(ROUND_PERIOD_S)
    assert (affinity(node.root, 41), node.held()) == ("0-7", {})


def test_a_drifted_setting_is_not_restored_when_the_policy_ends(node: Node) -> None:
    enforced(node)
    (node.root / "proc/irq/41/smp_affinity_list").write_text("5\n")
    node.policies.set_policies([])
    assert node.steps(ROUND_PERIOD_S) == []
    assert (affinity(node.root, 41), node.held()) == ("5", {})


def test_a_failed_restoration_is_tried_again_later(node: Node) -> None:
    enforced(node)
    path = node.root / "proc/irq/41/smp_affinity_list"
    path.chmod(0o444)
    node.policies.set_policies([])
    node.steps(FIRST_PAUSE_S)
    assert [told.state for told in node.ends()] == [ChangeState.CONFIRMED, ChangeState.FAILED]
    path.chmod(0o644)
    node.steps(2 * ROUND_PERIOD_S)
    assert (affinity(node.root, 41), node.held()) == ("0-7", {})


def test_a_re_asserting_policy_writes_a_drifted_setting_again(node: Node) -> None:
    enforced(node, replace(SPREAD, on_drift=Ownership.REASSERT))
    node.steps(30)
    (node.root / "proc/irq/41/smp_affinity_list").write_text("5\n")
    node.wants = {}
    node.steps(ROUND_PERIOD_S)
    assert affinity(node.root, 41) == "2"
    assert node.held()["irq/41/affinity"].original == "0-7"


LEASED = [
    replace(SPREAD, mode=Mode.RECOMMEND, leased=True),
    replace(SPREAD, policy_id="p2", name="tried", leased=True),
]


def leased(node: Node) -> Node:
    """A node whose own policy pauses for an experiment, and one of the experiment's has moved another interrupt."""
    enforced(node)
    node.wants = {42: "3"}
    node.policies.set_policies(LEASED)
    node.steps(2 * ROUND_PERIOD_S + CONFIRM_AFTER_S)
    assert (affinity(node.root, 41), affinity(node.root, 42)) == ("0-7", "3")
    assert node.ends()[-1].state is ChangeState.CONFIRMED
    node.wants = {}
    return node


def test_without_the_backend_leases_end_and_paused_policies_resume(node: Node) -> None:
    leased(node)
    node.policies.end_leases()
    node.wants = {41: "2"}
    node.now += 1000
    node.steps(2 * ROUND_PERIOD_S + CONFIRM_AFTER_S)
    assert (affinity(node.root, 41), affinity(node.root, 42)) == ("2", "0-7")
    assert node.policies.in_force == [SPREAD]


@pytest.mark.parametrize(("stops", "hold_from_ms"), [((), 0), ((EnforcementStop(2**31 - 1),), None)])
def test_outside_its_change_window_a_node_stays_held_when_leases_end_without_the_backend(
    node: Node, start: Start, stops: tuple[EnforcementStop, ...], hold_from_ms: int | None
) -> None:
    """An experiment runs outside of windows: its message neither stops nor holds."""
    node.policies.set_policies([SPREAD], (), stops, hold_from_ms)
    node.policies.set_policies(LEASED)
    assert not node.policies.stops.apply
    node.changes.close()
    for each in (node, start()):
        each.policies.end_leases()
        assert each.policies.stops.apply


def test_leases_end_with_the_agent_which_restores_their_settings(node: Node) -> None:
    leased(node)
    node.changes.feed(AgentStopping())
    node.policies.stop(node.view())
    assert (affinity(node.root, 42), node.held()) == ("0-7", {})


def test_a_restarted_agent_restores_the_settings_of_leased_policies(node: Node, start: Start) -> None:
    leased(node)
    node.changes.close()
    again = start()
    assert again.policies.in_force == [SPREAD]
    again.steps(ROUND_PERIOD_S)
    assert (affinity(again.root, 42), again.held()) == ("0-7", {})


def test_a_lease_that_ends_before_its_change_is_confirmed_is_restored_afterwards(node: Node) -> None:
    node.wants = {42: "3"}
    node.policies.set_policies(LEASED)
    node.steps(ROUND_PERIOD_S)
    node.policies.end_leases()
    node.steps(CONFIRM_AFTER_S + ROUND_PERIOD_S)
    assert affinity(node.root, 42) == "0-7"


def test_a_restarted_agent_continues_with_its_policies_and_holdings(node: Node, start: Start) -> None:
    enforced(node)
    node.changes.feed(AgentStopping())
    node.changes.close()
    again = start()
    again.changes.feed(BackendLost())
    again.wants = {41: "2", 42: "3"}
    again.steps(ROUND_PERIOD_S)
    assert (affinity(again.root, 41), affinity(again.root, 42)) == ("2", "3")
    assert again.held()["irq/41/affinity"] == node.held()["irq/41/affinity"]
    again.wants = {}
    again.policies.set_policies([])
    again.steps(CONFIRM_AFTER_S + ROUND_PERIOD_S)
    assert (affinity(again.root, 41), affinity(again.root, 42)) == ("0-7", "0-7")


@pytest.mark.parametrize("killed", [True, False])
def test_an_agent_that_ends_before_a_change_is_confirmed_holds_nothing_afterwards(
    node: Node, start: Start, killed: bool
) -> None:
    node.wants = {41: "2"}
    node.policies.set_policies([SPREAD])
    node.steps(ROUND_PERIOD_S)
    assert node.held()
    if not killed:
        node.changes.feed(AgentStopping())
    node.changes.close()
    again = start()
    assert affinity(again.root, 41) == "0-7"
    again.wants = {}
    again.steps(ROUND_PERIOD_S)
    assert again.held() == {}


def test_after_a_reboot_policies_are_in_force_and_nothing_is_held(node: Node, start: Start) -> None:
    enforced(node)
    assert node.policies.held == {"irq/41/affinity": SPREAD.policy_id}
    node.changes.close()
    (node.root / "proc/sys/kernel/random/boot_id").write_text("boot 2\n")
    again = start()
    assert again.policies._state == PolicyState(policies=[SPREAD])
    assert again.policies.held == {}


@pytest.mark.parametrize("text", ["", "{", '{"boot_id": 3}'])
def test_an_invalid_file_is_logged_and_replaced(
    root: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture, text: str
) -> None:
    path = tmp_path / "policies.json"
    path.write_text(text)
    file = PoliciesFile(path, root)
    assert file.read() == PolicyState()
    assert str(path) in caplog.text
    file.write(PolicyState(policies=[SPREAD]))
    assert file.read().policies == [SPREAD]


def test_a_full_disk_stops_no_policy_and_is_logged_once(node: Node, caplog: pytest.LogCaptureFixture) -> None:
    (node.root.parent / "state/policies.json").mkdir()
    enforced(node, wants={41: "2", 42: "3"})
    assert affinity(node.root, 41) == "2"
    assert len([message for message in caplog.messages if "policies cannot be written to" in message]) == 1


def test_an_internal_error_in_a_policy_does_not_stop_others_and_is_reported_once(
    node: Node, caplog: pytest.LogCaptureFixture
) -> None:
    broken = PolicyInForce("p0", 3, "broken", 1, Mode.ENFORCE, NetworkProcess())
    node.wants = {41: "2"}
    node.policies._tracked.state = PolicyState(memory=EngineMemory(memories={"p0": NetworkProcessMemory()}))
    node.policies.set_policies([broken, SPREAD])
    node.steps(60)
    assert affinity(node.root, 41) == "2"
    assert "p0" in node.policies._state.memory.memories
    said = [told.evaluation.sentence for told in node.decisions() if told.evaluation.policy_id == "p0"]
    assert len(said) == 1
    assert "a mistake of ours" in said[0]
    assert len([message for message in caplog.messages if "because of an internal error" in message]) == 1


def test_an_ended_process_and_a_reused_pid_are_not_held(root: Path, tmp_path: Path) -> None:
    def process(pid: int, started_ticks: int) -> None:
        (root / f"proc/{pid}").mkdir()
        fields = ["S", *["0"] * 18, str(started_ticks), *["0"] * 30]
        (root / f"proc/{pid}/stat").write_text(f"{pid} (nginx) {' '.join(fields)}\n")

    process(10, 100)
    process(11, 500)
    keys = [f"task/{pid}/affinity" for pid in (10, 11, 12)]
    memory = EngineMemory(
        {key: Holding("p1", "0-7", "2", 0.0) for key in [*keys, "irq/41/affinity"]},
        processes=dict.fromkeys(keys, 100),
    )
    file = PoliciesFile(tmp_path / "policies.json", root)
    assert file.settings_of_ended_processes(memory) == keys[1:]
    yielded = replace(memory, holdings={}, yielded=dict.fromkeys([*keys, "irq/41/affinity"], "p1"))
    assert file.settings_of_ended_processes(yielded) == keys[1:]


@pytest.mark.parametrize(
    ("key", "forgotten"),
    [("task/12/affinity", True), ("cgroup/db/cpu.weight", True), ("netdev/eth0/flow-rule/3", False)],
)
def test_the_original_of_what_has_ended_is_forgotten_but_a_renamed_device_is_to_be_restored(
    node: Node, monkeypatch: pytest.MonkeyPatch, key: str, forgotten: bool
) -> None:
    assert node.changes._journal is not None
    node.changes._journal.record_original("c", key, "", ["another one"])
    node.policies._tracked.set_memory(EngineMemory({key: Holding("p1", "", "", 0.0)}))
    monkeypatch.setattr(node.policies, "_ended", lambda memory: list(memory.holdings))
    node.policies.step(node.view())
    assert node.held() == {}
    assert (key not in node.changes.changed_settings) is forgotten


def test_a_yielded_setting_of_an_ended_process_is_forgotten_but_not_the_original_that_a_change_has(node: Node) -> None:
    assert node.changes._journal is not None
    key = "task/12/affinity"
    node.changes._journal.record_original("c", key, "0-7", ["a later process"])
    node.policies._tracked.set_memory(EngineMemory(yielded={key: "p1"}, processes={key: 100}))
    node.policies.set_policies([replace(SPREAD, on_drift=Ownership.YIELD)])
    node.policies.step(node.view())
    assert node.policies._state.memory.yielded == {}
    assert key in node.changes.changed_settings


def first_round(root: Path, state: Path) -> Operation:
    """Return an operation that evaluates and applies a policy once."""

    def operation(begin: Callable[[], None]) -> None:
        node = Node(root, state)
        engine.decide = node.decide  # type: ignore[attr-defined]  # of the forked process only
        node.wants = {41: "2", 42: "3"}
        node.policies.set_policies([SPREAD])
        begin()
        node.policies.step(node.view())

    return operation


def test_after_a_kill_at_any_instant_restore_and_the_next_start_recover(root: Path, tmp_path: Path) -> None:
    calls = count_operations(first_round(root, tmp_path / "whole"))
    assert (affinity(root, 41), affinity(root, 42)) == ("2", "3")
    moved = set()
    for instant in range(1, calls + 1, max(1, calls // 25)):
        for irq in IRQS:
            (root / f"proc/irq/{irq}/smp_affinity_list").write_text("0-7\n")
        state = tmp_path / str(instant)
        kill_at(instant, first_round(root, state))
        moved.add((affinity(root, 41), affinity(root, 42)))
        if instant % 2:
            restore(state / "journal.jsonl", root)
        again = Node(root, state)
        assert (affinity(root, 41), affinity(root, 42)) == ("0-7", "0-7")
        again.policies.set_policies([])
        again.policies.step(again.view())
        assert again.held() == {}
        assert (affinity(root, 41), affinity(root, 42)) == ("0-7", "0-7")
        again.changes.close()
    assert len(moved) == 3, "the kills have to hit between the writes as well"
