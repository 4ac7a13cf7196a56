"""Holding a policy out, as pure functions: never a state between, and exactly the values from before afterwards."""

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.core.policy_machines import CAPTURED, Machine, captured, machines
from tests.support.views import make_netdev, make_view

from coresteer_core.changes.plan import Action
from coresteer_core.node.inventory import Irq
from coresteer_core.node.view import View
from coresteer_core.policies.base import HoldoutState, Mode
from coresteer_core.policies.engine import evaluate_round
from coresteer_core.policies.engine_state import EngineMemory, Holding, PolicyInForce, record_write
from coresteer_core.policies.holdout import (
    as_evaluated,
    begin_holdout,
    end_holdout,
    is_due,
    record_restored,
    record_written_again,
    restored_settings,
)
from coresteer_core.policies.irq_spread.policy import IrqSpread
from coresteer_core.policies.network_process.policy import NetworkProcess
from coresteer_core.settings import KINDS

SPREAD = PolicyInForce("1", 1, "spread", 10, Mode.ENFORCE, IrqSpread())
PROCESS = PolicyInForce("2", 1, "process", 20, Mode.ENFORCE, NetworkProcess(move_irq=True))
HELD_OUT = replace(SPREAD, holdout=True)
EARLIER_S = 500.0


def test_writes_that_interrupt_traffic_or_move_memory_are_declared_on_their_settings() -> None:
    kinds = [example for kind in KINDS for example in kind.examples()]
    assert {s.name for s in kinds if s.interrupts_traffic} == {"channels", "ring/rx", "ring/tx"}
    assert {s.name for s in kinds if s.moves_pages} == {"memory-nodes", "cpuset.mems"}


def view(**params: str) -> View:
    irq = Irq(41, "eth0-rx-0", "PCI-MSI", "2", "2", None, True)
    return make_view(8, irqs=[irq], netdevs=[make_netdev(params=params, channels="combined 4")], time_s=1000.0)


def begin(now: View, memory: EngineMemory, policy: PolicyInForce = HELD_OUT) -> tuple[list[Action], EngineMemory]:
    return begin_holdout(now, policy, memory, {}, 7)


def held(value: str, original: str) -> Holding:
    return Holding("1", original, value, EARLIER_S)


@pytest.mark.parametrize(
    ("keys", "state"),
    [
        (["irq/41/affinity"], HoldoutState.ENTERING),
        (["irq/41/affinity", "netdev/eth0/ring/rx"], HoldoutState.ENTERING),
        (["netdev/eth0/ring/rx", "netdev/eth0/channels"], HoldoutState.REFUSED),
        (["task/812/memory-nodes", "task/812/affinity"], HoldoutState.REFUSED),
        (["task/812/memory-nodes", "task/813/affinity"], HoldoutState.ENTERING),
    ],
)
def test_settings_whose_write_interrupts_traffic_or_moves_memory_stay_in_force(
    keys: list[str], state: HoldoutState
) -> None:
    in_force = {"ring/rx": "512", "channels": "combined 4", "memory-nodes": "1", "affinity": "2"}
    original = {"ring/rx": "256", "channels": "combined 8", "memory-nodes": "0=10", "affinity": "0"}
    name = {key: next(name for name in in_force if key.endswith(name)) for key in keys}
    memory = EngineMemory({key: held(in_force[name[key]], original[name[key]]) for key in keys})
    actions, after = begin(view(**{"ring/rx": "512"}), memory)
    moved = {key.rpartition("/")[0] for key in keys if key.endswith("memory-nodes")}
    switched = [key for key in keys if key.endswith("affinity") and key.rpartition("/")[0] not in moved]
    assert [action.key for action in actions] == switched
    report = after.holdouts["1"].report
    assert (report.state, [each.subject for each in report.excepted]) == (
        state,
        [key for key in keys if key not in switched],
    )
    assert (as_evaluated(HELD_OUT, after).mode is Mode.RECOMMEND) == (state is HoldoutState.ENTERING)


def test_a_setting_that_something_else_changed_is_not_restored() -> None:
    actions, after = begin(view(), EngineMemory({"irq/41/affinity": held("5", "0")}))
    assert (actions, after.holdouts["1"].report.state) == ([], HoldoutState.REFUSED)
    assert after.holdouts["1"].report.excepted[0].why == "Something else changed it to 2."


def test_a_value_that_the_guard_refuses_meanwhile_is_left_out() -> None:
    memory = EngineMemory({"irq/41/affinity": held("2", "0")})
    _, memory = begin(view(), memory)
    memory = record_restored(memory, HELD_OUT, {}, [], 7)
    irq = Irq(41, "eth0-rx-0", "PCI-MSI", "0", "0", None, True)
    actions, memory = end_holdout(make_view(8, irqs=[irq], offline=[2]), SPREAD, memory, {}, 8)
    (skipped,) = memory.holdouts["1"].report.excepted
    assert (actions, memory.holdings) == ([], {})
    assert "not online" in skipped.why


def test_the_memory_of_a_holdout_survives_json() -> None:
    _, memory = begin(view(), EngineMemory({"irq/41/affinity": held("2", "0")}))
    assert msgspec.json.decode(msgspec.json.encode(memory), type=EngineMemory) == memory


# Both real policies on machines

everywhere = st.one_of(machines(max_cpus=32), st.builds(captured, st.sampled_from(CAPTURED), st.integers(0, 3)))


def values(machine: Machine) -> dict[str, str | None]:
    irqs = {f"irq/{irq.irq}/affinity": irq.requested for irq in machine.view.inventory.irqs}
    return irqs | {f"task/{task.pid}/affinity": task.affinity for task in machine.view.tasks}


def rounds(
    machine: Machine, policies: list[PolicyInForce], memory: EngineMemory, count: int
) -> tuple[Machine, EngineMemory]:
    """Some rounds in which the actions of enforced policies are carried out."""
    for _ in range(count):
        evaluations, memory = evaluate_round(machine.view, policies, memory)
        enforced = [evaluation for evaluation in evaluations if evaluation.mode is Mode.ENFORCE]
        for evaluation in enforced:
            for action in evaluation.actions:
                memory = record_write(memory, evaluation.policy_id, action, machine.view.time_s)
        machine = machine.after(action for evaluation in enforced for action in evaluation.actions)
    return machine, memory


@settings(max_examples=10, deadline=None)
@given(everywhere, st.sampled_from([SPREAD, PROCESS]), st.integers(0, 4), st.data())
def test_after_a_holdout_the_values_are_those_that_were_in_force_and_in_it_the_originals(
    machine: Machine, policy: PolicyInForce, length: int, data: st.DataObject
) -> None:
    others = [each for each in (SPREAD, PROCESS) if each is not policy]
    held_out = replace(policy, holdout=True)
    originals = values(machine)
    machine, memory = rounds(machine, [SPREAD, PROCESS], EngineMemory(), 5)
    own = {key: holding for key, holding in memory.holdings.items() if holding.policy_id == policy.policy_id}
    damping, in_force = (memory.recent_values, memory.flaps), values(machine)
    assert is_due(policy, memory) is None
    assert is_due(held_out, memory) is True

    actions, memory = begin_holdout(machine.view, held_out, memory, {}, 7)
    machine = machine.after(actions)
    memory = record_restored(memory, held_out, {}, [], 8)
    assert is_due(held_out, memory) is None
    assert {key: values(machine)[key] for key in own} == {key: holding.original for key, holding in own.items()}
    assert {key: value for key, value in values(machine).items() if key not in own} == {
        key: value for key, value in in_force.items() if key not in own
    }
    assert all(originals[key] == holding.original for key, holding in own.items() if not others)

    machine, memory = rounds(machine, [held_out, *others], memory, length)
    if bool(own) and data.draw(st.booleans()):
        cpu = str(min(machine.view.topology.online()))
        machine = machine.after([Action(data.draw(st.sampled_from(sorted(own))), "", cpu, "")])
    drifted = {key for key in own if values(machine)[key] != own[key].original}  # another policy may have taken it

    assert is_due(policy, memory) is False
    before = values(machine)
    actions, memory = end_holdout(machine.view, policy, memory, {}, 9)
    for action in actions:
        memory = record_written_again(memory, action.key, machine.view.time_s)
    again, memory = end_holdout(machine.view, policy, memory, {}, 9)
    after = values(machine.after(actions))
    assert again == []
    assert restored_settings(memory, policy.policy_id) == {}
    assert memory.holdouts[policy.policy_id].report.state is HoldoutState.IN_FORCE
    assert is_due(policy, memory) is None
    assert {key: after[key] for key in own if key not in drifted} == {
        key: holding.value for key, holding in own.items() if key not in drifted
    }
    assert all(after[key] == before[key] for key in after if key not in own or key in drifted)
    if not length:
        assert (memory.recent_values, memory.flaps) == damping


@settings(max_examples=10, deadline=None)
@given(everywhere, st.integers(0, 3))
def test_no_policy_of_a_higher_rank_takes_the_settings_of_one_that_is_held_out(machine: Machine, length: int) -> None:
    machine, memory = rounds(machine, [SPREAD, PROCESS], EngineMemory(), 5)
    actions, memory = begin_holdout(machine.view, HELD_OUT, memory, {}, 7)
    memory = record_restored(memory, HELD_OUT, {}, [], 8)
    own = restored_settings(memory, "1")
    machine, _ = rounds(machine.after(actions), [HELD_OUT, PROCESS], memory, length)
    assert {key: values(machine)[key] for key in own} == {key: holding.original for key, holding in own.items()}
