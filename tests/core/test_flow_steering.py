"""Which flows are steered to their process, by what, and that this settles, is undone, and costs no CPU time."""

from collections.abc import Callable
from copy import deepcopy
from itertools import cycle, pairwise
from random import Random

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.core.machine_events import without_cpus
from tests.core.policy_machines import CAPTURED, captured_topology, topologies
from tests.core.steering_plant import Flow, Nic, Plant, Process, spread_flows
from tests.support.views import make_netdev, make_topology

from coresteer_core.node.inventory import FlowRule, FlowRuleTable, Queue
from coresteer_core.node.load import NetdevLoad
from coresteer_core.node.locality import bytes_by_distance
from coresteer_core.node.tasks import HeavyFlow, RxPlacement
from coresteer_core.node.topology import Topology
from coresteer_core.node.view import View
from coresteer_core.policies.base import Decision, Scope
from coresteer_core.policies.flow_steering import rfs
from coresteer_core.policies.flow_steering.memory import FlowSteeringMemory
from coresteer_core.policies.flow_steering.policy import decide
from coresteer_core.policies.flow_steering.rfs import MAX_FIGURES, MIN_FIGURES
from coresteer_core.policies.flow_steering.rules import rule_value
from coresteer_core.policies.flow_steering.spec import FlowSteering
from coresteer_core.settings import parse_setting

TOPOLOGY = make_topology(packages=2, nodes_per_package=1, cores_per_node=4, threads=1)
"""CPUs 0-3 on node 0, 4-7 on node 1, each with an L2 of its own."""
PIDS = list(range(100, 108))
ANYWHERE = "0-7"
STEERING = FlowSteering()
SETTLED = 24
"""Rounds after which steady traffic is steered."""


def seeded(seed: int | str) -> Random:
    return Random(seed)  # noqa: S311 - a machine, not a secret


def nic(slots: int | None = None, **fields: object) -> Nic:
    made = Nic("eth0", list(range(8)), [n % 8 for n in range(128)], slots)
    for name, value in fields.items():
        setattr(made, name, value)
    return made


def plant(flows: list[Flow], nics: list[Nic], affinity: Callable[[int], str] = str) -> Plant:
    return Plant(TOPOLOGY, nics, [Process(pid, pid - 100, affinity(pid - 100)) for pid in PIDS], flows)


def few(nics: list[Nic]) -> Plant:
    """Eight processes, each on a CPU of its own, with three heavy flows each."""
    return plant(spread_flows(seeded(1), PIDS, 24, 3e6), nics)


def many(nics: list[Nic]) -> Plant:
    """2,000 small connections to eight processes that may run anywhere."""
    return plant(spread_flows(seeded(1), PIDS, 2000, 3e4), nics, lambda _: ANYWHERE)


def isolated_reader(*, udp: bool = False) -> Plant:
    """2,000 small connections to eight processes, each bound to its CPU; CPU 7, that of the last one, is isolated."""
    made = plant(spread_flows(seeded(1), PIDS, 2000, 3e4), [nic()])
    made.topology = replace(TOPOLOGY, isolated="7")
    made.flows = [replace(flow, unplaced=udp and flow.pid == 107) for flow in made.flows]
    return made


def round_of(machine: Plant, spec: FlowSteering, memory: FlowSteeringMemory) -> tuple[Decision, FlowSteeringMemory]:
    decision = decide(machine.view(), spec, Scope(), memory)
    assert isinstance(decision.memory, FlowSteeringMemory)
    machine.apply((proposal.key, proposal.value) for proposal in decision.proposals)
    return decision, decision.memory


def run(
    machine: Plant, rounds: int = SETTLED, spec: FlowSteering = STEERING, memory: FlowSteeringMemory | None = None
) -> tuple[list[Decision], FlowSteeringMemory]:
    memory, decisions = memory or FlowSteeringMemory(), []
    for _ in range(rounds):
        decision, memory = round_of(machine, spec, memory)
        decisions.append(decision)
    return decisions, memory


def near(machine: Plant) -> tuple[float, float]:
    """Shares of bytes that are polled, and processed, within the L2 of their process."""
    view = machine.view()
    found = bytes_by_distance(view.tasks, view.topology, view.inventory)
    return found.polling.shared_l2 or 0.0, found.protocol.shared_l2 or 0.0


# Steady traffic


@pytest.mark.parametrize(
    ("machine", "polling", "protocol"),
    [
        (lambda: few([nic()]), 0.95, 0.95),
        (lambda: few([nic(slots=64)]), 1.0, 1.0),
        (lambda: few([nic(slots=8)]), 0.95, 0.95),
        (lambda: few([nic(slots=64, rss_writable=False)]), 1.0, 1.0),
        (lambda: few([nic(rss_writable=False)]), 0.0, 1.0),
        (lambda: many([nic()]), 0.0, 1.0),
        (lambda: many([nic(slots=64)]), 0.0, 1.0),
        (lambda: many([nic(opaque=True)]), 0.0, 1.0),
        (lambda: plant([Flow(100, 9, 2e8, 77, protocol="udp")], [nic(slots=4)]), 1.0, 1.0),
    ],
    ids=["table", "rules", "both", "rules only", "neither", "many", "many, rules", "many, opaque", "udp elephant"],
)
def test_steady_traffic_is_brought_to_its_processes_and_then_nothing_moves(
    machine: Callable[[], Plant], polling: float, protocol: float
) -> None:
    made = machine()
    _, memory = run(made)
    assert near(made)[0] >= polling
    assert near(made)[1] >= protocol
    decisions, _ = run(made, 30, memory=memory)
    assert [proposal for decision in decisions[4:] for proposal in decision.proposals] == []
    assert all(len(times) == 1 for times in made.moved.values())


def test_a_flow_is_steered_once_it_and_its_process_have_stayed_for_the_dwell_time() -> None:
    made = few([nic(slots=64)])
    decisions, memory = run(made, 6, FlowSteering(rfs="off"))
    assert [decision.proposals for decision in decisions] == [[]] * 6
    decision, memory = round_of(made, FlowSteering(rfs="off"), memory)
    assert len(decision.proposals) == 8
    made.processes[0].affinity = made.processes[0].affinity.replace("0", "1")
    made.processes[0].cpu = 1
    decisions, _ = run(made, 5, FlowSteering(rfs="off"), memory)
    moved = {proposal.subject for decision in decisions for proposal in decision.proposals}
    assert "nginx (100)" not in moved


def test_a_process_that_may_run_on_any_cpu_gets_no_rule_and_no_entry() -> None:
    made = plant(spread_flows(seeded(1), PIDS, 24, 3e6), [nic(slots=64)], lambda _: ANYWHERE)
    run(made)
    assert set(made.settings()) == {
        "kernel/rps_sock_flow_entries",
        "netdev/eth0/rss",
        *(f"netdev/eth0/rx-{n}/rps_flow_cnt" for n in range(8)),
    }


def test_short_flows_that_come_and_go_are_followed_by_rfs_alone() -> None:
    made, random, memory = plant([], [nic(slots=64)]), seeded(1), FlowSteeringMemory()
    moves = []
    for number in range(60):
        if number % 2 == 0:
            made.flows = [
                Flow(pid, random.randrange(10_000, 60_000), 3e6, random.getrandbits(31)) for pid in PIDS for _ in "abc"
            ]
        decision, memory = round_of(made, FlowSteering(), memory)
        moves += [proposal.key for proposal in decision.proposals if "rps" not in proposal.key]
    assert moves == []
    assert near(made)[1] == 1.0


def test_flows_that_end_free_their_slots_and_their_entries() -> None:
    made = few([nic(slots=8)])
    _, memory = run(made, spec=FlowSteering(rfs="off"))
    assert len(made.nics[0].rules) == 8
    assert made.settings()["netdev/eth0/rss"] != "0,1,2,3,4,5,6,7"
    made.flows = []
    _, memory = run(made, 12, FlowSteering(rfs="off"), memory)
    assert made.settings() == few([nic(slots=8)]).settings()
    assert (memory.rules, memory.tables, memory.restoring) == ({}, {}, {})


def test_the_reason_names_the_shares_the_slots_and_the_costs() -> None:
    made = few([nic(slots=9)])
    decisions, _ = run(made, 7, FlowSteering(rfs="off"))
    reason = decisions[-1].proposals[0].reason
    for part in ("nginx (", "→", "of its bytes polled within its L2", "3 MB/s", "1 of 9 slots", "Estimated cost"):
        assert part in reason
    assert "→" in decisions[-1].sentence


def test_a_round_without_the_process_frees_no_slot_but_one_that_ended_does() -> None:
    made = few([nic(slots=64, rss_writable=False)])
    _, memory = run(made, spec=FlowSteering(rfs="off"))
    quiet = decide(replace(made.view(), tasks=[]), FlowSteering(rfs="off"), Scope(), memory)
    assert isinstance(quiet.memory, FlowSteeringMemory)
    assert (quiet.proposals, quiet.memory.rules.keys()) == ([], memory.rules.keys())
    made.time_s += 3600  # the agent was not running: no view says that the flows ended in that time
    quiet = decide(replace(made.view(), tasks=[]), FlowSteering(rfs="off"), Scope(), memory)
    assert quiet.proposals == []
    made.processes, made.flows = [], []
    run(made, 8, FlowSteering(rfs="off"), memory)
    assert made.nics[0].rules == {}


def test_the_table_of_a_netdev_that_leaves_the_scope_is_restored() -> None:
    made = few([nic()])
    _, memory = run(made, spec=FlowSteering(rfs="off"))
    left = decide(made.view(), FlowSteering(rfs="off"), Scope(netdevs=["eth9"]), memory)
    original = few([nic()]).settings()["netdev/eth0/rss"]
    assert memory.tables["eth0"].original == original
    assert {each.key: each.value for each in left.proposals} == {"netdev/eth0/rss": original}


def test_the_rules_of_a_netdev_that_leaves_the_scope_are_removed() -> None:
    made = few([nic(slots=64)])
    _, memory = run(made, spec=FlowSteering(rfs="off"))
    left = decide(made.view(), FlowSteering(rfs="off"), Scope(netdevs=["eth9"]), memory)
    assert len(memory.rules) == 21
    assert {each.key: each.value for each in left.proposals} == dict.fromkeys(memory.rules, "none")
    gone = replace(made.view(), inventory=replace(made.view().inventory, netdevs=[]), tasks=[])
    assert decide(gone, FlowSteering(rfs="off"), Scope(), memory).proposals == []


def test_a_round_without_flows_gives_no_entry_of_the_table_back_even_after_an_hour_without_rounds() -> None:
    made = few([nic()])
    _, memory = run(made, spec=FlowSteering(rfs="off"))
    made.time_s += 3600  # the agent was not running: no view says that the flows ended in that time
    quiet = decide(replace(made.view(), tasks=[]), FlowSteering(rfs="off"), Scope(), memory)
    assert isinstance(quiet.memory, FlowSteeringMemory)
    assert (quiet.proposals, quiet.memory.tables["eth0"].entries.keys()) == ([], memory.tables["eth0"].entries.keys())


def test_rfs_stays_on_in_a_quiet_round_after_an_hour_without_rounds_and_ends_a_minute_later() -> None:
    spec = FlowSteering(rfs="on", rss_table=False, max_rules=0)
    made = few([nic()])
    _, memory = run(made, spec=spec)
    assert memory.rfs.values
    made.time_s += 3600
    first = decide(replace(made.view(), tasks=[]), spec, Scope(), memory)
    assert isinstance(first.memory, FlowSteeringMemory)
    assert first.memory.rfs.values == memory.rfs.values
    made.time_s += 61
    later = decide(replace(made.view(), tasks=[]), spec, Scope(), first.memory)
    assert isinstance(later.memory, FlowSteeringMemory)
    assert later.memory.rfs.values == {}


@pytest.mark.parametrize("complete", [None, False])
def test_rules_are_kept_while_their_table_cannot_be_read(complete: bool | None) -> None:
    made = few([nic(slots=64, rss_writable=False)])
    _, memory = run(made, spec=FlowSteering(rfs="off"))
    view = made.view()
    unread = None if complete is None else FlowRuleTable(64, [], complete)
    inventory = replace(view.inventory, netdevs=[replace(view.inventory.netdevs[0], flow_rules=unread)])
    decision = decide(replace(view, inventory=inventory), FlowSteering(rfs="off"), Scope(), memory)
    assert isinstance(decision.memory, FlowSteeringMemory)
    assert (decision.proposals, decision.memory.rules) == ([], memory.rules)


def test_a_later_process_with_the_same_pid_does_not_inherit_rules() -> None:
    made = few([nic(slots=64, rss_writable=False)])
    _, memory = run(made, spec=FlowSteering(rfs="off"))
    for _ in range(24):
        view = made.view()
        view = replace(view, tasks=[replace(task, started_ticks=2) for task in view.tasks])
        decision = decide(view, FlowSteering(rfs="off"), Scope(), memory)
        assert isinstance(decision.memory, FlowSteeringMemory)
        memory = decision.memory
        made.apply((proposal.key, proposal.value) for proposal in decision.proposals)
        assert len(set(made.nics[0].rules.values())) == len(made.nics[0].rules)
    assert {rule.started_ticks for rule in memory.rules.values()} == {2}


def test_a_table_that_became_shorter_is_steered_by_its_present_length() -> None:
    made = few([nic()])
    _, memory = run(made, spec=FlowSteering(rfs="off"))
    made.nics[0].table = [n % 8 for n in range(16)]
    _, memory = run(made, spec=FlowSteering(rfs="off"), memory=memory)
    assert max(memory.tables["eth0"].entries) < 16


def test_a_table_with_new_queues_is_the_one_to_restore() -> None:
    made = few([nic()])
    _, memory = run(made, spec=FlowSteering(rfs="off"))
    made.nics[0].reset([*range(8), 0, 1])
    _, memory = run(made, spec=FlowSteering(rfs="off"), memory=memory)
    made.flows = []
    run(made, 12, FlowSteering(rfs="off"), memory)
    assert made.settings()["netdev/eth0/rss"] == "0,1,2,3,4,5,6,7,8,9"


# What is never done


def test_rules_of_others_are_not_changed_and_their_flows_get_no_rule() -> None:
    foreign = "flow-type tcp4 src-port 20001 action 3"
    made = few([nic(slots=4, rules={3: foreign}, foreign=frozenset({3}))])
    run(made)
    assert made.nics[0].rules[3] == foreign
    assert len(made.nics[0].rules) == 4
    assert not any("src-port 20001 " in rule and at != 3 for at, rule in made.nics[0].rules.items())


def test_a_slot_that_another_program_takes_is_given_up() -> None:
    made = few([nic(slots=8, rss_writable=False)])
    _, memory = run(made, spec=FlowSteering(rfs="off"))
    made.nics[0].rules = {**made.nics[0].rules, 7: "flow-type udp4 dst-port 53 action 0"}
    made.nics[0].foreign = frozenset({7})
    _, memory = run(made, 3, FlowSteering(rfs="off"), memory)
    made.flows = []
    run(made, 12, FlowSteering(rfs="off"), memory)
    assert set(made.nics[0].rules) == {7}


@pytest.mark.parametrize(
    "changes",
    [
        {"flow_rules": FlowRuleTable(8, [FlowRule(0, "")], complete=False)},
        {"params": {"ntuple": "off"}},
        {"params": {"threaded": "1"}},
        {"flow_rules": FlowRuleTable(0)},
        {"flow_rules": None},
    ],
)
def test_without_a_slot_that_is_known_to_be_free_there_are_no_rules(changes: dict[str, object]) -> None:
    view, memory = few([nic(slots=8)]).view(), FlowSteeringMemory()
    view = replace(view, inventory=replace(view.inventory, netdevs=[replace(view.inventory.netdevs[0], **changes)]))
    for number in range(10):
        decision = decide(replace(view, time_s=5.0 * number), FlowSteering(rfs="off"), Scope(), memory)
        assert isinstance(decision.memory, FlowSteeringMemory)
        memory = decision.memory
    assert memory.rules == {}


def test_an_elephant_flow_stays_where_its_process_has_no_room_for_it() -> None:
    heavy = Flow(100, 9, 8e8, 77, protocol="udp")
    made = plant([heavy], [nic(slots=4)])
    made.processes[0].cpu_share = 0.6
    _, _ = run(made, spec=FlowSteering(rfs="off"))
    view = made.view()
    at = made.nics[0].irq_cpus[made.queue(heavy)[0]]
    assert at in (1, 2, 3)  # the nearest CPUs with room share the L3
    assert (view.load.busy[at] or 0.0) <= 0.8
    full = plant([heavy], [nic(slots=4)])
    for process in full.processes:
        process.cpu_share = 0.7
    run(full, spec=FlowSteering(rfs="off"))
    assert full.moved == {}


def test_a_rule_without_effect_is_removed_and_not_tried_again_for_an_hour() -> None:
    made = few([nic(slots=64, rss_writable=False)])
    made.queue = lambda flow: (made.nics[0].table[flow.hash % 128], "rss")  # type: ignore[method-assign]  # a NIC that ignores rules
    _, memory = run(made, 60, FlowSteering(rfs="off"))
    assert made.nics[0].rules == {}
    assert len(memory.barred) == len({key for key in made.written if "flow-rule" in key})


def test_rules_that_the_driver_refuses_are_given_up_for_the_table_and_rfs() -> None:
    made = few([nic(slots=64, refused="")])
    _, memory = run(made, 60)
    assert (near(made)[0] >= 0.95, made.nics[0].rules, memory.rules) == (True, {}, {})
    written = len(made.written)
    decisions, _ = run(made, 30, memory=memory)
    assert made.written[written:] == []
    assert " 0 flow rules," in decisions[-1].sentence


def test_one_refused_rule_does_not_keep_other_flows_from_theirs() -> None:
    made = few([nic(slots=64, refused="src-port 20001 ", rss_writable=False)])
    _, memory = run(made, 30, FlowSteering(rfs="off"))
    assert [key.split()[2] for key in memory.barred] == ["20001"]
    assert len(memory.rules) == len(made.nics[0].rules) > 10


# RFS


def test_rfs_sets_powers_of_two_that_add_up_to_the_entries() -> None:
    made = many([nic()])
    run(made, MIN_FIGURES)
    assert made.entries == 32_768
    assert set(made.nics[0].flow_cnt.values()) == {4096}
    larger = plant(spread_flows(seeded(1), PIDS, 30_000, 3e4), [nic()], lambda _: ANYWHERE)
    for process in larger.processes:
        process.cpu_share = 0.0
    run(larger, MIN_FIGURES)
    assert (larger.entries, set(larger.nics[0].flow_cnt.values())) == (65_536, {8192})


def test_the_flows_of_a_queue_stay_within_the_bound_of_their_setting() -> None:
    made = many([Nic("eth0", [0], [0] * 128)])
    made.entries = 1 << 22
    run(made, spec=FlowSteering(rfs="on"))
    assert set(made.nics[0].flow_cnt.values()) == {1 << 20}


def test_rfs_is_switched_off_for_an_hour_where_it_costs_cpu_time_and_the_sentence_has_the_figures() -> None:
    made = many([nic()])
    made.rfs_s = 1e-9
    before = made.settings()
    decisions, memory = run(made, 2 * MIN_FIGURES + 10)
    assert "RFS cost more than it saved here, 0.2" in decisions[-1].sentence
    assert "per gigabit received" in decisions[-1].sentence
    assert made.settings() == before
    made.time_s += 3000
    assert run(made, 2, memory=memory)[0][-1].proposals == []
    made.time_s += 1000
    _, memory = run(made, MIN_FIGURES + 1, memory=memory)
    assert made.entries > 0


@pytest.mark.parametrize(("rise", "kept"), [(0.02, True), (0.1, False)])
def test_rfs_is_kept_after_its_trial_only_if_the_mean_cost_has_not_risen_even_within_noise(
    monkeypatch: pytest.MonkeyPatch, rise: float, kept: bool
) -> None:
    made = many([nic()])
    noise = cycle([0.5, 1.5])
    monkeypatch.setattr(rfs, "cpu_s_per_gigabit", lambda _: next(noise) + (rise if made.entries else 0.0))
    decisions, memory = run(made, MIN_FIGURES + MAX_FIGURES + 3)
    assert memory.rfs.judged is kept
    assert ("RFS is on: " if kept else "It is not clear that RFS saves CPU time here, ") in decisions[-1].sentence
    assert (made.entries > 0) is kept


def test_rfs_stays_on_whatever_it_costs_if_that_is_wanted() -> None:
    made = many([nic()])
    made.rfs_s = 1e-9
    run(made, 60, FlowSteering(rfs="on"))
    assert near(made)[1] == 1.0


def test_rfs_that_was_on_without_a_comparison_is_switched_off_for_one_once_that_is_wanted() -> None:
    made = many([nic()])
    before = made.settings()
    _, memory = run(made, 4, FlowSteering(rfs="on"))
    decisions, memory = run(made, 1, memory=memory)
    assert decisions[0].sentence.endswith(f"RFS is off until {MIN_FIGURES} rounds without it are measured.")
    assert made.settings() == before
    _, memory = run(made, MIN_FIGURES + MAX_FIGURES + 3, memory=memory)
    assert memory.rfs.judged
    assert made.entries > 0


def test_without_known_cpu_time_rfs_is_not_tried() -> None:
    made = many([nic()])
    view = made.view()
    memory = FlowSteeringMemory()
    for number in range(20):
        one = replace(view, load=replace(view.load, system=[]), time_s=5.0 * number)
        decision = decide(one, FlowSteering(), Scope(), memory)
        memory = decision.memory  # type: ignore[assignment]  # its own
    assert decision.proposals == []
    assert "the CPU time is not known" in decision.sentence


def test_rfs_that_was_on_before_is_left_alone() -> None:
    made = many([nic(flow_cnt=dict.fromkeys(range(8), 4096))])
    made.entries = 32_768
    decisions, memory = run(made)
    assert made.written == []
    assert "this policy did not switch it on" in decisions[-1].sentence
    assert memory.rfs.values == {}


def udp(nics: list[Nic]) -> Plant:
    """UDP to eight processes that may run anywhere."""
    return plant([replace(flow, protocol="udp", unplaced=True) for flow in many(nics).flows], nics, lambda _: ANYWHERE)


def test_udp_whose_queue_is_unknown_is_followed_by_rfs_until_it_ends() -> None:
    made = udp([nic()])
    before = made.settings()
    decisions, memory = run(made)
    assert set(made.nics[0].flow_cnt.values()) == {4096}
    assert "per gigabit received" in decisions[-1].sentence
    made.flows = []
    run(made, 15, memory=memory)
    assert made.settings() == before


@pytest.mark.parametrize("case", ["loopback", "forwarded", "a NIC is not in scope"])
def test_udp_that_arrives_by_no_nic_in_scope_does_not_count_for_rfs(case: str) -> None:
    made = udp([nic()])
    view, scope = made.view(), Scope()
    if case == "loopback":
        view = replace(view, load=replace(view.load, netdevs=[NetdevLoad("eth0", 0.0, 0.0, 0.0, 0.0, 0.0)]))
    elif case == "forwarded":
        view = replace(view, tasks=[])
    else:
        other = make_netdev("eth1")
        view = replace(view, inventory=replace(view.inventory, netdevs=[*view.inventory.netdevs, other]))
        scope = Scope(netdevs=["eth0"])
    decision = decide(view, FlowSteering(rfs="on"), scope, FlowSteeringMemory())
    assert decision.proposals == []


def test_rfs_of_a_nic_that_leaves_the_scope_is_restored_and_that_of_the_others_stays() -> None:
    made = many([nic(), nic(name="eth1", first_irq=60)])
    made.flows += spread_flows(seeded(2), PIDS, 2000, 3e4, "eth1")
    _, memory = run(made, spec=FlowSteering(rfs="on"))
    assert set(made.nics[1].flow_cnt.values()) == {4096}
    narrowed = decide(made.view(), FlowSteering(rfs="on"), Scope(netdevs=["eth0"]), memory)
    assert {proposal.key: proposal.value for proposal in narrowed.proposals} == {
        f"netdev/eth1/rx-{queue}/rps_flow_cnt": "0" for queue in range(8)
    }
    assert {proposal.reason for proposal in narrowed.proposals} == {"It is not in the policy's scope any more."}
    assert {each.key for each in narrowed.proposals} == narrowed.restores
    assert isinstance(narrowed.memory, FlowSteeringMemory)
    assert narrowed.memory.rfs.originals.keys() == narrowed.memory.rfs.values.keys()


def test_rfs_ends_with_the_traffic_and_everything_is_as_before() -> None:
    made = many([nic()])
    before = made.settings()
    _, memory = run(made)
    made.flows = []
    run(made, 15, memory=memory)
    assert made.settings() == before


# Listeners that share a port


def connections(made: Plant, random: Random, *, by_cpu: bool) -> list[Flow]:
    """Connections to a SO_REUSEPORT group; by_cpu: the listener on the CPU that handles the first packet gets one."""
    found, nic = [], made.nics[0]
    for _ in range(24):
        flow_hash = random.getrandbits(31)
        cpu = nic.irq_cpus[nic.table[flow_hash % len(nic.table)]]
        near = [process for process in made.processes if by_cpu and process.cpu == cpu]
        process = near[0] if near else made.processes[(flow_hash >> 8) % len(made.processes)]
        found.append(Flow(process.pid, random.randrange(10_000, 60_000), 3e6, flow_hash))
    return found


@pytest.mark.parametrize("slots", [None, 64])
@pytest.mark.parametrize(
    ("by_cpu", "listeners", "idle"),
    [(True, 8, True), (True, 4, False), (False, 8, False)],
    ids=["by cpu", "by cpu, too few listeners", "by hash"],
)
def test_connections_to_a_reuseport_group_are_next_to_their_listeners(
    by_cpu: bool, listeners: int, idle: bool, slots: int | None
) -> None:
    made, random, memory = plant([], [nic(slots=slots)]), seeded(3), FlowSteeringMemory()
    made.processes = made.processes[:listeners]
    for _ in range(3):
        made.flows = connections(made, random, by_cpu=by_cpu)
        _, memory = run(made, SETTLED, memory=memory)
        decisions, memory = run(made, 10, memory=memory)
        assert [proposal.key for decision in decisions for proposal in decision.proposals] == []
        assert near(made)[1] >= 0.95
    assert (made.written == []) is idle


# Machines of other shapes


def test_a_driver_reset_loses_rules_and_table_and_both_are_asserted_again_once() -> None:
    made = few([nic(slots=8)])
    _, memory = run(made, spec=FlowSteering(rfs="off"))
    rules, table = made.nics[0].rules, made.nics[0].table
    made.nics[0].reset()
    decisions, memory = run(made, 6, FlowSteering(rfs="off"), memory)
    assert (made.nics[0].rules, made.nics[0].table) == (rules, table)
    assert [len(decision.proposals) for decision in decisions] == [9, 0, 0, 0, 0, 0]


def test_a_hot_plugged_cpu_and_queue_are_taken_into_account() -> None:
    made = few([nic(slots=64)])
    _, memory = run(made, spec=FlowSteering(rfs="off"))
    made.nics[0].irq_cpus = list(range(4))
    made.nics[0].table = [n % 4 for n in range(128)]
    made.nics[0].rules = {}
    _, memory = run(made, 30, FlowSteering(rfs="off"), memory)
    assert all(int(rule.split()[-1]) < 4 for rule in made.nics[0].rules.values())
    assert set(made.nics[0].table) <= set(range(4))


@pytest.mark.parametrize(
    ("scope", "concerned"),
    [
        ([], {"eth0", "eth1", "rps_sock_flow_entries"}),
        (["bond0*", "eth*"], {"eth0", "eth1", "rps_sock_flow_entries"}),
        (["bond0*", "eth0"], set()),
    ],
    ids=["all", "all of the bond", "one of its NICs is not in scope"],
)
def test_rfs_of_a_bond_is_set_on_its_nics_and_its_flows_get_no_rules(scope: list[str], concerned: set[str]) -> None:
    made = many([nic(), nic(name="eth1", first_irq=60)])
    view = made.view()
    queues = [Queue(f"rx-{n}", params={"rps_flow_cnt": "0"}) for n in range(16)]
    bond = make_netdev("bond0", None, virtual=True, numa_node=None, queues=queues, lower=["eth0", "eth1"])
    over = make_netdev("bond0.7", None, virtual=True, numa_node=None, queues=queues[:1], lower=["bond0"])
    tasks = [
        replace(
            task,
            rx_placements=[
                RxPlacement(name, None, None, None, None, each.sockets, each.rx_bytes_per_s, 0.0)
                for each in task.rx_placements
            ],
            flows=[replace(flow, netdev=name, queue=None, cpu=None, rss_entry=None) for flow in task.flows],
        )
        for task, name in zip(view.tasks, cycle(["bond0", "bond0.7"]), strict=False)
    ]
    inventory = replace(view.inventory, netdevs=[*view.inventory.netdevs, bond, over])
    memory = FlowSteeringMemory()
    for number in range(MIN_FIGURES):
        one = replace(view, tasks=tasks, inventory=inventory, time_s=5.0 * number)
        decision = decide(one, FlowSteering(), Scope(netdevs=scope), memory)
        memory = decision.memory  # type: ignore[assignment]  # its own
    assert {proposal.key.split("/")[1] for proposal in decision.proposals} == concerned


@pytest.mark.parametrize("name", ["nginx", "out of scope"])
@pytest.mark.parametrize("udp", [False, True], ids=["tcp", "udp"])
def test_rfs_is_not_used_where_a_process_on_isolated_cpus_receives_much(udp: bool, name: str) -> None:
    made = isolated_reader(udp=udp)
    made.processes[-1].name = name
    before = made.settings()
    memory, decisions = FlowSteeringMemory(), []
    for _ in range(30):
        decisions.append(decide(made.view(), FlowSteering(rss_table=False), Scope(tasks=["nginx"]), memory))
        made.apply((proposal.key, proposal.value) for proposal in decisions[-1].proposals)
        memory = decisions[-1].memory  # type: ignore[assignment]  # its own
    assert made.settings() == before
    why = f"RFS is not used: it would bring protocol work to isolated CPU 7, where {name} (107) reads."
    assert decisions[-1].sentence.endswith(why)


def test_rfs_that_is_set_to_on_is_used_for_isolated_cpus_too_and_says_so() -> None:
    made = isolated_reader()
    decisions, _ = run(made, 3, FlowSteering(rss_table=False, rfs="on"))
    assert set(made.nics[0].flow_cnt.values()) == {4096}
    why = " It brings protocol work to isolated CPU 7, where nginx (107) reads."
    assert {proposal.reason[-len(why) :] for proposal in decisions[0].proposals} == {why}
    assert all(decision.sentence.endswith(why) for decision in decisions)


def test_rfs_is_switched_off_for_an_hour_when_a_process_begins_to_read_on_isolated_cpus() -> None:
    made = isolated_reader()
    flows, made.flows = made.flows, [flow for flow in made.flows if flow.pid != 107]
    before = made.settings()
    _, memory = run(made, spec=FlowSteering(rss_table=False))
    assert made.settings() != before
    made.flows = flows
    decisions, memory = run(made, 2, FlowSteering(rss_table=False), memory)
    assert made.settings() == before
    assert "off for an hour, as it would bring protocol work to isolated CPU 7" in decisions[-1].sentence
    made.flows = [flow for flow in flows if flow.pid != 107]
    run(made, 60, FlowSteering(rss_table=False), memory)
    assert made.settings() == before


@pytest.mark.parametrize("little", ["by loopback", "slowly", "on any CPU"])
def test_rfs_is_used_where_a_process_on_isolated_cpus_receives_little_of_what_it_steers(little: str) -> None:
    made = isolated_reader()
    if little == "on any CPU":
        made.processes[-1].affinity = ANYWHERE
    elif little == "slowly":
        made.flows = [flow for flow in made.flows if flow.pid != 107] + [Flow(107, 9, 1e5, 77)]
    view = made.view()
    if little == "by loopback":
        view = replace(
            view,
            tasks=[
                replace(task, rx_placements=[replace(each, netdev="lo") for each in task.rx_placements], flows=[])
                if task.pid == 107
                else task
                for task in view.tasks
            ],
            inventory=replace(view.inventory, netdevs=[*view.inventory.netdevs, make_netdev("lo", virtual=True)]),
        )
    memory = FlowSteeringMemory()
    for number in range(MIN_FIGURES):
        decision = decide(replace(view, time_s=5.0 * number), FlowSteering(rss_table=False), Scope(), memory)
        memory = decision.memory  # type: ignore[assignment]  # its own
    assert "kernel/rps_sock_flow_entries" in {proposal.key for proposal in decision.proposals}


def test_an_sriov_function_without_rules_and_table_uses_rfs() -> None:
    made = few([nic(rss_writable=False)])
    run(made)
    assert near(made)[0] < 0.3
    assert near(made)[1] == 1.0


# Properties


@st.composite
def plants(draw: st.DrawFn) -> Plant:
    """Machines of every shape with up to two NICs, foreign rules, and flows of every size."""
    return _furnished(draw(topologies(max_cpus=32)), draw(st.randoms(use_true_random=True)))


def _furnished(topology: Topology, random: Random) -> Plant:
    online = sorted(topology.online())
    nics = []
    for n in range(random.randint(1, 2)):
        queues = random.randint(1, 8)
        slots = random.choice([None, 0, 2, 16])
        foreign = {0: "flow-type udp4 dst-port 53 action 0"} if slots else {}
        made = Nic(f"eth{n}", [random.choice(online) for _ in range(queues)], [e % queues for e in range(64)], slots)
        made.first_irq, made.rules, made.foreign = 40 + 100 * n, foreign, frozenset(foreign)
        made.rss_writable = random.random() < 0.7
        made.opaque = random.random() < 0.3
        made.bond = "bond0" if random.random() < 0.2 else None
        nics.append(made)
    usable = sorted(topology.online() - topology.isolated_cpus) or online
    processes = []
    for pid in range(100, 100 + random.randint(1, 6)):
        cpu = random.choice(usable)
        processes.append(Process(pid, cpu, random.choice([str(cpu), f"0-{max(online)}"]), random.uniform(0, 0.6)))
    flows = [
        Flow(
            random.choice(processes).pid, 10_000 + n, random.choice([1e4, 1e6, 1e7, 1e8]), random.getrandbits(31),
            random.choice(nics).name, random.choice(["tcp", "udp"]),
        )
        for n in range(random.randint(0, 30))
    ]  # fmt: skip
    return Plant(topology, nics, processes, flows)


def check_round(made: Plant, view: View, decision: Decision) -> None:
    """What must hold for the proposals of every round."""
    usable = view.topology.online() - view.topology.isolated_cpus
    alive = {rule_value(flow, 0).rpartition(" ")[0] for task in view.tasks for flow in task.flows}
    for proposal in decision.proposals:
        assert parse_setting(proposal.key).missing_reason(view) is None, "a setting that does not exist"
        if "/flow-rule/" in proposal.key and proposal.value != "none":
            fields, _, queue = proposal.value.rpartition(" ")
            assert fields in alive, "a rule for a flow that does not exist"
            assert next(n for n in made.nics if n.name == proposal.key.split("/")[1]).irq_cpus[int(queue)] in usable


@settings(max_examples=60)
@given(made=plants())
def test_every_machine_settles_within_the_bounds_and_is_restored(made: Plant) -> None:
    before = made.settings()
    memory = FlowSteeringMemory()
    for _ in range(40):
        view = made.view()
        decision = decide(view, FlowSteering(), Scope(), memory)
        check_round(made, view, decision)
        assert isinstance(decision.memory, FlowSteeringMemory)
        memory = msgspec.json.decode(msgspec.json.encode(decision.memory), type=FlowSteeringMemory)
        made.apply((proposal.key, proposal.value) for proposal in decision.proposals)
        assert all(nic.slots is None or len(nic.rules) <= nic.slots for nic in made.nics)
    for times in made.moved.values():
        assert all(later - earlier >= 30.0 for earlier, later in pairwise(times))
    decisions, memory = run(made, 8, memory=memory)
    assert [p.key for decision in decisions for p in decision.proposals] == []
    made.flows = []
    run(made, 30, memory=memory)
    assert made.settings() == before


def unplug_cpus(made: Plant, random: Random) -> None:
    online = sorted(made.topology.online())
    made.hot_plug(without_cpus(made.topology, frozenset(random.sample(online, len(online) // 2))))


def change_channels(made: Plant, random: Random) -> None:
    nic = made.nics[0]
    nic.first_irq += 1000
    nic.reset([random.choice(sorted(made.topology.online())) for _ in range(random.randint(1, 8))])


def pass_function_through(made: Plant, random: Random) -> None:
    made.remove(random.choice(made.nics))


EVENTS: list[list[Callable[[Plant, Random], None]]] = [
    [unplug_cpus],
    [change_channels],
    [pass_function_through],
    [lambda made, _: made.nics[0].reset()],
    [
        lambda made, _: setattr(made.nics[0], "resetting", True),
        lambda made, _: made.nics[0].reset(),
        lambda made, _: setattr(made.nics[0], "resetting", False),
    ],
]


@pytest.mark.parametrize("event", EVENTS, ids=["cpus", "channels", "passed through", "fast reset", "reset"])
@settings(max_examples=12)
@given(made=plants(), seed=st.integers(0, 2**32), rounds=st.integers(0, 30))
def test_after_an_event_every_machine_settles_and_has_what_it_would_have_without_the_policy(
    event: list[Callable[[Plant, Random], None]], made: Plant, seed: int, rounds: int
) -> None:
    untouched, memory, random = deepcopy(made), FlowSteeringMemory(), seeded(seed)
    for step in event:
        step(untouched, random)
    random = seeded(seed)
    for number in range(rounds + 60):
        if rounds <= number < rounds + len(event):
            event[number - rounds](made, random)
        view = made.view()
        decision = decide(view, FlowSteering(), Scope(), memory)
        check_round(made, view, decision)
        assert isinstance(decision.memory, FlowSteeringMemory)
        memory = decision.memory
        made.apply((proposal.key, proposal.value) for proposal in decision.proposals)
    decisions, memory = run(made, 8, memory=memory)
    assert [p.key for decision in decisions for p in decision.proposals] == []
    made.flows = []
    run(made, 30, memory=memory)
    assert made.settings() == untouched.settings()


@settings(max_examples=60)
@given(made=plants())
def test_the_same_input_gives_the_same_output_and_the_input_is_not_changed(made: Plant) -> None:
    _, memory = run(made, 8)
    frozen = msgspec.json.encode(memory)
    view = made.view()
    assert decide(view, FlowSteering(), Scope(), memory) == decide(view, FlowSteering(), Scope(), memory)
    assert msgspec.json.encode(memory) == frozen


@pytest.mark.parametrize("name", CAPTURED)
def test_on_captured_machines_no_cpu_is_isolated_or_offline_and_it_settles(name: str) -> None:
    made = _furnished(captured_topology(name), Random(name))  # noqa: S311, a machine, not a secret
    memory, spec = FlowSteeringMemory(), FlowSteering(rfs="on", dwell_s=5.0)
    for _ in range(12):
        view = made.view()
        decision = decide(view, spec, Scope(), memory)
        check_round(made, view, decision)
        assert isinstance(decision.memory, FlowSteeringMemory)
        memory = decision.memory
        made.apply((proposal.key, proposal.value) for proposal in decision.proposals)
    assert decide(made.view(), spec, Scope(), memory).proposals == []


def test_a_view_with_values_that_are_none_is_judged_without_an_error() -> None:
    made = few([nic(slots=8)])
    view, memory = made.view(), FlowSteeringMemory()
    queues = [replace(queue, params={"rps_flow_cnt": "many"}) for queue in view.inventory.netdevs[0].queues]
    netdev = replace(view.inventory.netdevs[0], rss="a,b", queues=queues)
    inventory = replace(view.inventory, netdevs=[netdev], settings={"kernel/rps_sock_flow_entries": "-"})
    tasks = [replace(each, flows=[replace(flow, peer="somewhere") for flow in each.flows]) for each in view.tasks]
    for number in range(10):
        one = replace(view, inventory=inventory, tasks=tasks, time_s=5.0 * number)
        decision = decide(one, FlowSteering(), Scope(), memory)
        assert isinstance(decision.memory, FlowSteeringMemory)
        memory = decision.memory
    assert decision.proposals == []


def test_cpus_that_the_machine_does_not_have_are_ignored() -> None:
    made = few([nic(slots=8)])
    _, memory = run(made, spec=FlowSteering(rfs="off"))
    view = made.view()
    tasks = [
        replace(
            task,
            flows=[replace(flow, queue=None, cpu=4095) for flow in task.flows],
            rx_placements=[replace(each, cpu=4095) for each in task.rx_placements],
        )
        for task in view.tasks
    ]
    netdev = replace(view.inventory.netdevs[0], flow_rules=FlowRuleTable(8), rss="0,1,2,3,4,5,6,7")
    view = replace(view, tasks=tasks, inventory=replace(view.inventory, netdevs=[netdev]))
    assert decide(view, FlowSteering(), Scope(), memory).proposals != []


@pytest.mark.parametrize(
    ("local", "expected"),
    [
        ("10.0.0.1", "flow-type tcp4 src-ip 10.0.0.2 dst-ip 10.0.0.1 src-port 9 dst-port 80 action 3"),
        ("::ffff:10.0.0.1", "flow-type tcp4 src-ip 10.0.0.2 dst-ip 10.0.0.1 src-port 9 dst-port 80 action 3"),
        ("fd00::1", "flow-type tcp6 src-ip fd00::2 dst-ip fd00::1 src-port 9 dst-port 80 action 3"),
    ],
)
def test_a_rule_names_exactly_the_flow(local: str, expected: str) -> None:
    flow = HeavyFlow("tcp", local, 80, f"{local[:-1]}2", 9, "eth0", "rx-0", 0, 5, 1e6)
    assert rule_value(flow, 3) == expected
