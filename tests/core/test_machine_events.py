"""Policies on machines with bonds and SR-IOV functions on which CPUs, queues and whole NICs come and go."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.core.machine_events import EVENTS, with_functions
from tests.core.policy_machines import Machine, machines, with_memory

from coresteer_core.changes.guard import refusals
from coresteer_core.changes.plan import Action, Plan, inverse
from coresteer_core.policies import Spec
from coresteer_core.policies.base import Evaluation, Mode, Ownership
from coresteer_core.policies.engine import evaluate_round
from coresteer_core.policies.engine_state import EngineMemory, PolicyInForce, record_write
from coresteer_core.policies.irq_spread.policy import IrqSpread
from coresteer_core.policies.network_process.policy import NetworkProcess
from coresteer_core.policies.numa.spec import Numa
from coresteer_core.policies.ownership import current_value, restore_actions
from coresteer_core.policies.service_class.matching import Match
from coresteer_core.policies.service_class.policy import ServiceClass, ServiceClasses
from coresteer_core.settings import parse_setting

CLASSES = ServiceClasses(
    [ServiceClass("web", 95, 20.0, match=Match(listens=[80])), ServiceClass("rest", 30, match=Match(users=["root"]))],
    weights=["nice", "cpu"],
)
SPECS: dict[str, list[Spec]] = {
    "irq-spread": [IrqSpread()],
    "network-process": [NetworkProcess(move_irq=True)],
    "numa": [Numa(move_pages=True, max_page_move_bytes=1 << 34)],
    "service-class": [CLASSES],
    "all": [CLASSES, IrqSpread(), Numa(move_pages=True, max_page_move_bytes=1 << 34), NetworkProcess(move_irq=True)],
}
QUIET_ROUNDS = 40
"""More than a flap damping window of 180 s has."""
MOST_ROUNDS = 400
PAUSE_S = 60.0
"""For how long the agent does not try a failed write again."""


class Node:
    """A machine under policies in force, as an agent runs them."""

    def __init__(self, machine: Machine, policies: list[PolicyInForce]) -> None:
        self.machine, self.policies, self.memory = machine, policies, EngineMemory()
        self.refused: dict[str, float] = {}

    def round(self) -> list[Action]:
        """Evaluate, check what must hold in every round, and carry it out."""
        view = self.machine.view
        blocked = {key: "It failed." for key, until_s in self.refused.items() if view.time_s < until_s}
        evaluations, self.memory = evaluate_round(view, self.policies, replace(self.memory, refused=blocked))
        for policy, evaluation in zip(self.policies, evaluations, strict=True):
            self.check(policy, evaluation)
        found = [(each.policy_id, action) for each in evaluations for action in each.actions]
        self.write(found)
        return [action for _, action in found]

    def check(self, policy: PolicyInForce, evaluation: Evaluation) -> None:
        """No action on what does not exist, none that the guard forbids, and not too many; the inverse restores."""
        view, actions = self.machine.view, evaluation.actions
        assert len({action.key.rpartition("/")[0] for action in actions}) <= policy.damping.moves_per_step
        for action in actions:
            assert current_value(view, action.key) is not None
            held = self.memory.holdings.get(action.key)
            if held is None or action.becomes != held.original:
                assert refusals(view, [(action.key, action.becomes)], allow_isolated=False) == []
        done = [action for action in actions if self.takes(action)]
        undone = self.machine.after(done).after(inverse(Plan(done)).actions)
        for action in done:
            if not action.key.endswith("/memory-nodes"):
                assert current_value(undone.view, action.key) == current_value(view, action.key)

    def takes(self, action: Action) -> bool:
        """Whether the kernel takes a value: EINVAL where none of the CPUs is online."""
        cpus = parse_setting(action.key).cpus(action.becomes)
        return not action.key.endswith("/affinity") or bool(cpus & self.machine.view.topology.online())

    def write(self, found: list[tuple[str, Action]]) -> None:
        """Carry out actions."""
        for policy_id, action in found:
            if self.takes(action):
                self.memory = record_write(self.memory, policy_id, action, self.machine.view.time_s)
            else:
                self.refused[action.key] = self.machine.view.time_s + PAUSE_S
        self.machine = self.machine.after(action for _, action in found if self.takes(action))

    def settle(self) -> None:
        """Go on until nothing has moved for longer than any damping lasts."""
        quiet = 0
        for _ in range(MOST_ROUNDS):
            quiet = 0 if self.round() else quiet + 1
            if quiet == QUIET_ROUNDS:
                return
        raise AssertionError(f"still moving after {MOST_ROUNDS} rounds: {self.round()}")

    def end(self) -> None:
        """All policies are disabled: what they hold gets its value from before."""
        actions, self.memory = restore_actions(self.machine.view, [], self.memory)
        self.write(actions)
        for _, action in actions:
            if self.takes(action):
                assert action.key not in self.memory.holdings


def in_force(name: str, on_drift: Ownership) -> list[PolicyInForce]:
    return [
        PolicyInForce(str(n), 1, type(spec).__name__, n, Mode.ENFORCE, spec, on_drift=on_drift)
        for n, spec in enumerate(SPECS[name], 1)
    ]


@pytest.mark.parametrize("event", EVENTS)
@settings(max_examples=8)
@given(
    start=machines(max_cpus=16),
    name=st.sampled_from(sorted(SPECS)),
    on_drift=st.sampled_from(Ownership),
    data=st.data(),
)
def test_policies_settle_again_after_an_event_and_are_undone(
    event: str, start: Machine, name: str, on_drift: Ownership, data: st.DataObject
) -> None:
    random = data.draw(st.randoms(use_true_random=True))
    node = Node(with_memory(with_functions(start, random), random), in_force(name, on_drift))
    for _ in range(random.randint(0, 30)):
        node.round()
    for step in EVENTS[event](node.machine, random):
        node.machine = step(node.machine)
        node.round()
    node.settle()
    node.end()
