"""network-process and flow-steering in force together: they settle, in either order of rank, and are undone."""

from itertools import pairwise
from random import Random

import pytest
from msgspec.structs import replace
from tests.core.steering_plant import Flow, Nic, Plant, Process, spread_flows
from tests.core.test_flow_steering import ANYWHERE, PIDS, TOPOLOGY, near, nic, seeded

from coresteer_core.changes.plan import Action
from coresteer_core.node.inventory import FlowRule, FlowRuleTable
from coresteer_core.node.tasks import RxPlacement
from coresteer_core.policies.backtest import backtest
from coresteer_core.policies.base import Damping, Drift, Mode, Ownership, Scope
from coresteer_core.policies.engine import evaluate_round
from coresteer_core.policies.engine_state import EngineMemory, PolicyInForce, record_write
from coresteer_core.policies.flow_steering.spec import FlowSteering
from coresteer_core.policies.network_process.memory import NetworkProcessMemory
from coresteer_core.policies.network_process.policy import NetworkProcess, decide
from coresteer_core.policies.ownership import restore_actions

STEER = PolicyInForce("1", 1, "steer", 20, Mode.ENFORCE, FlowSteering())
PLACE = PolicyInForce("2", 1, "place", 10, Mode.ENFORCE, NetworkProcess())


class Loop:
    """The plant under policies in force, as an agent runs them."""

    def __init__(self, plant: Plant, *policies: PolicyInForce) -> None:
        self.plant, self.policies, self.memory = plant, list(policies), EngineMemory()
        self.drifts: list[Drift] = []

    def rounds(self, count: int) -> list[list[Action]]:
        """The actions of each round, carried out."""
        found = []
        for _ in range(count):
            view = self.plant.view()
            evaluations, self.memory = evaluate_round(view, self.policies, self.memory)
            done = [(each.policy_id, action) for each in evaluations for action in each.actions]
            self.drifts += [drift for each in evaluations for drift in each.drifts]
            for policy_id, action in done:
                self.memory = record_write(self.memory, policy_id, action, view.time_s)
            self.plant.apply((action.key, action.becomes) for _, action in done)
            found.append([action for _, action in done])
        return found

    def end(self) -> None:
        """All policies are disabled."""
        actions, self.memory = restore_actions(self.plant.view(), [], self.memory)
        self.plant.apply((action.key, action.becomes) for _, action in actions)


def unplaced(flows: list[Flow], nics: list[Nic], pids: list[int] = PIDS) -> Plant:
    """Processes that may run anywhere and happen to run on the first CPUs."""
    return Plant(TOPOLOGY, nics, [Process(pid, n % 8, ANYWHERE) for n, pid in enumerate(pids)], flows)


def placed(nics: list[Nic]) -> Plant:
    """Each process on a CPU of its own, with three heavy flows."""
    processes = [Process(pid, pid - 100, str(pid - 100)) for pid in PIDS]
    return Plant(TOPOLOGY, nics, processes, spread_flows(seeded(1), PIDS, 24, 3e6))


STEADY = {
    "few heavy flows": lambda: unplaced(spread_flows(seeded(1), PIDS, 24, 3e6), [nic()]),
    "few heavy flows, rules": lambda: unplaced(spread_flows(seeded(1), PIDS, 24, 3e6), [nic(slots=64)]),
    "few heavy flows, few rules": lambda: unplaced(spread_flows(seeded(1), PIDS, 24, 3e6), [nic(slots=8)]),
    "2,000 small connections": lambda: unplaced(spread_flows(seeded(1), PIDS, 2000, 3e4), [nic()]),
    "one UDP elephant flow": lambda: unplaced([Flow(100, 9, 3e8, 77, protocol="udp")], [nic()]),
}


@pytest.mark.parametrize("ranks", [(10, 20), (20, 10)], ids=["place first", "steer first"])
@pytest.mark.parametrize("mix", STEADY)
def test_both_together_bring_protocol_work_to_the_process_and_then_nothing_moves(
    mix: str, ranks: tuple[int, int]
) -> None:
    made = STEADY[mix]()
    before = (made.settings(), [process.affinity for process in made.processes])
    loop = Loop(made, replace(PLACE, rank=ranks[0]), replace(STEER, rank=ranks[1]))
    loop.rounds(80)
    assert near(made)[1] >= 0.95
    assert [actions for actions in loop.rounds(40) if actions] == []
    assert loop.drifts == []
    assert all(later - earlier >= 30.0 for times in made.moved.values() for earlier, later in pairwise(times))
    loop.end()
    assert (made.settings(), [process.affinity for process in made.processes]) == before


def test_with_churn_moves_stop_with_the_flows_and_only_processes_and_rfs_change() -> None:
    random: Random = seeded(2)
    made = unplaced([], [nic()])
    loop = Loop(made, PLACE, STEER)
    moved: set[str] = set()
    for number in range(40):
        if number % 2 == 0:  # flows live for 10 s
            ports = random.sample(range(10_000, 60_000), 24)
            made.flows = [Flow(PIDS[n % 8], port, 3e6, random.getrandbits(31)) for n, port in enumerate(ports)]
        moved |= {action.key.rpartition("/")[2] for actions in loop.rounds(1) for action in actions}
    assert moved <= {"affinity", "rps_sock_flow_entries", "rps_flow_cnt"}
    assert near(made)[1] >= 0.95


@pytest.mark.parametrize(("response", "again"), [(Ownership.REASSERT, True), (Ownership.WARN, False)])
def test_a_driver_reset_is_a_drift_that_is_asserted_again_once_as_the_policy_chooses(
    response: Ownership, again: bool
) -> None:
    made = placed([nic(slots=8)])
    loop = Loop(made, replace(STEER, spec=FlowSteering(rfs="off"), on_drift=response, damping=Damping(dwell_s=10.0)))
    loop.rounds(40)
    table, rules = made.nics[0].table, made.nics[0].rules
    assert len(rules) == 8
    made.nics[0].reset()
    writes = [action.key for actions in loop.rounds(20) for action in actions]
    lost = {"netdev/eth0/rss", *(f"netdev/eth0/flow-rule/{n}" for n in range(8))}
    assert {drift.key for drift in loop.drifts} == lost
    assert sorted(writes) == (sorted(lost) if again else [])
    assert ((made.nics[0].table, made.nics[0].rules) == (table, rules)) is again


def test_a_rule_of_others_is_kept_when_the_policy_ends_and_all_of_its_own_are_deleted() -> None:
    foreign = {3: "flow-type udp4 dst-port 53 action 0"}
    made = placed([nic(slots=8, rules=foreign, foreign=frozenset({3}))])
    loop = Loop(made, replace(STEER, on_drift=Ownership.REASSERT))
    loop.rounds(40)
    assert len(made.nics[0].rules) == 8
    made.nics[0].rules = {**made.nics[0].rules, 5: "flow-type udp4 dst-port 123 action 0"}
    made.nics[0].foreign = frozenset({3, 5})
    loop.rounds(20)
    loop.end()
    assert made.nics[0].rules == {**foreign, 5: "flow-type udp4 dst-port 123 action 0"}
    assert made.entries == 0


@pytest.mark.parametrize("ours", [True, False])
def test_a_process_is_not_moved_after_packets_that_a_rule_of_coresteer_steers(ours: bool) -> None:
    made = unplaced(spread_flows(seeded(1), [100], 1, 3e6), [nic(slots=4)], [100])
    made.processes[0].cpu = 2
    view = made.view()
    rule = RxPlacement("eth0", "rx-6", 46, 6, "rule", 1, 3e6, 0.0)
    rules = FlowRuleTable(4, [FlowRule(3, "flow-type tcp4 dst-port 80 action 6", ours)])
    inventory = replace(view.inventory, netdevs=[replace(view.inventory.netdevs[0], flow_rules=rules)])
    view = replace(view, inventory=inventory, tasks=[replace(view.tasks[0], rx_placements=[rule])])
    found = decide(view, NetworkProcess(), Scope(), NetworkProcessMemory()).proposals
    assert [proposal.value for proposal in found] == (["2"] if ours else ["6"])


def test_a_recommendation_of_rules_does_not_flap() -> None:
    made, memory, changes = placed([nic(slots=8)]), EngineMemory(), []
    for _ in range(100):
        (evaluation,), memory = evaluate_round(made.view(), [replace(STEER, mode=Mode.RECOMMEND)], memory)
        changes.append([(action.key, action.becomes) for action in evaluation.actions])
        made.time_s += 5.0
    assert changes[40] != []
    assert all(earlier == later for earlier, later in pairwise(changes[40:]))


def test_a_backtest_steers_heavy_flows_once_and_then_nothing_moves() -> None:
    made = placed([nic(slots=8)])
    views = [replace(made.view(), time_s=5.0 * number) for number in range(60)]
    found = backtest(views, replace(STEER, spec=FlowSteering(rfs="off")))
    last = max(number for number, evaluation in enumerate(found.evaluations) if evaluation.actions)
    assert found.moves <= 8 + 3
    assert last < 30
    assert [evaluation.drifts for evaluation in found.evaluations if evaluation.drifts] == []
    assert "100 % → 100 % of their bytes" in found.evaluations[-1].sentence or "96 %" in found.evaluations[-1].sentence
