import re
from itertools import product
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.core.policy_machines import CAPTURED, Machine, captured, machines, topologies
from tests.support.views import make_netdev, make_topology

from coresteer_core.changes.plan import Action
from coresteer_core.cpuset import parse_cpu_list
from coresteer_core.node.distance import Locality, Smt, cpu_distances
from coresteer_core.node.inventory import Inventory, Irq
from coresteer_core.node.limits import Limits, SettingLimits
from coresteer_core.node.load import IrqLoad, Load
from coresteer_core.node.tasks import NetTask, RxPlacement
from coresteer_core.node.topology import Topology
from coresteer_core.node.view import View
from coresteer_core.policies.base import Decision, Scope
from coresteer_core.policies.network_process.capacity import CpuCapacity, PacketShares
from coresteer_core.policies.network_process.memory import NetworkProcessMemory, PlacedAffinity
from coresteer_core.policies.network_process.policy import NetworkProcess, decide

MB = 1_000_000.0
# Two NUMA nodes, each with an L3 of four cores with two threads: CPUs 0-3,8-11 and 4-7,12-15; 0 and 8 are one core.
TOPOLOGY = make_topology(packages=2, nodes_per_package=1, cores_per_node=4, threads=2)
SPEC = NetworkProcess()


def rx_placement(cpu: int | None, mb_per_s: float = 10.0, irq: int | None = 41, netdev: str = "eth0") -> RxPlacement:
    how = None if cpu is None else "rss"
    return RxPlacement(netdev, None, irq if cpu is not None else None, cpu, how, 1, mb_per_s * MB, 0.0)


def task(*rx_placements: RxPlacement, pid: int = 812, share: float = 0.2, **other: object) -> NetTask:
    made = NetTask(pid, 5, "nginx", "/web.slice", 1, "0-15", "0-15", 15, share, 0.1, list(rx_placements))
    return replace(made, **other)


def view(
    *tasks: NetTask,
    busy: dict[int, float | None] | None = None,
    softirq: dict[int, float] | None = None,
    topology: Topology = TOPOLOGY,
    time_s: float = 1000.0,
    irqs: list[Irq] | None = None,
) -> View:
    count = len(topology.cpus)
    running: dict[int, float] = {}
    for each in tasks:
        running[each.cpu] = running.get(each.cpu, 0.0) + each.cpu_share
    shares = [(busy or {}).get(cpu, running.get(cpu, 0.0)) for cpu in range(count)]
    load = Load(5.0, shares, [(softirq or {}).get(cpu, 0.0) for cpu in range(count)], [IrqLoad(41, 0, 1000.0)])
    netdevs = [make_netdev("eth0"), make_netdev("eth1", "mlx5_core")]
    return View(topology, Inventory(netdevs, irqs or []), load, list(tasks), time_s)


def first(seen: View, spec: NetworkProcess = SPEC, scope: Scope | None = None) -> Decision:
    return decide(seen, spec, scope or Scope(), NetworkProcessMemory())


def carried_out(seen: View, decision: Decision, seconds: float = 5.0) -> View:
    """The node after the proposals, with the tasks where they may be."""
    wanted = {proposal.key: proposal.value for proposal in decision.proposals}
    tasks = []
    for each in seen.tasks:
        affinity = wanted.get(f"task/{each.pid}/affinity", each.affinity)
        cpus = parse_cpu_list(affinity)
        tasks.append(replace(each, affinity=affinity, cpu=each.cpu if each.cpu in cpus else min(cpus)))
    return replace(seen, tasks=tasks, time_s=seen.time_s + seconds)


def values(decision: Decision) -> dict[str, str]:
    return {proposal.key: proposal.value for proposal in decision.proposals}


def only_reason(decision: Decision) -> str:
    (proposal,) = decision.proposals
    return proposal.reason


def only_why_not(decision: Decision) -> str:
    assert decision.proposals == []
    (skipped,) = decision.skipped
    return skipped.why


# Where to


def test_a_process_goes_to_the_cpu_that_handles_its_packets() -> None:
    decision = first(view(task(rx_placement(3, 7.1), rx_placement(5, 2.9)), busy={3: 0.42}))
    assert values(decision) == {"task/812/affinity": "3"}
    assert only_reason(decision) == "CPU 3 handles 71 % of this task's packets, load 0.42 ≤ 0.80."


@pytest.mark.parametrize(
    ("reach", "smt", "busy", "value"),
    [
        ("cpu", "last", {0: 0.9}, None),
        ("smt", "last", {0: 0.9}, "8"),
        ("l2", "last", {0: 0.9}, "8"),
        ("l3", "first", {0: 0.9}, "8"),
        ("l3", "last", {0: 0.9}, "1"),
        ("l3", "last", {0: 0.9, 1: 0.3, 2: 0.1, 3: 0.2, 9: 0.5, 10: 0.5, 11: 0.5}, "2"),
        ("l3", "last", dict.fromkeys((0, 1, 2, 3, 9, 10, 11), 0.9), "8"),
        ("l3", "first", dict.fromkeys((0, 8), 0.9), "1"),
        ("l3", "last", dict.fromkeys((0, 1, 2, 3, 8, 9, 10, 11), 0.9), None),
        ("numa", "last", dict.fromkeys((0, 1, 2, 3, 8, 9, 10, 11), 0.9), None),
        ("l3", "last", {0: 0.8}, "0"),
        ("l3", "last", {0: 0.85}, "1"),
        ("l3", "last", {0: None}, "1"),
    ],
)
def test_above_the_load_limit_the_next_shared_unit_is_tried(
    reach: str, smt: str, busy: dict[int, float | None], value: str | None
) -> None:
    decision = first(view(task(rx_placement(0)), busy=busy), NetworkProcess(max_distance=Locality(reach), smt=Smt(smt)))
    assert values(decision).get("task/812/affinity") == value


def test_the_numa_node_is_the_largest_unit_where_caches_are_not_shared() -> None:
    apart = replace(TOPOLOGY, caches=[cache for cache in TOPOLOGY.caches if cache.level == 2])
    busy: dict[int, float | None] = {0: 0.9, 8: 0.9}
    assert first(view(task(rx_placement(0)), busy=busy, topology=apart)).proposals == []
    decision = first(view(task(rx_placement(0)), busy=busy, topology=apart), NetworkProcess(max_distance=Locality.NUMA))
    assert values(decision) == {"task/812/affinity": "1"}


def test_each_proposal_and_each_skip_has_its_numbers() -> None:
    full: dict[int, float | None] = dict.fromkeys((0, 1, 2, 3, 8, 9, 10, 11), 0.91)
    assert only_reason(first(view(task(rx_placement(0)), busy={0: 0.91, 1: 0.12}, topology=TOPOLOGY))) == (
        "CPU 0 handles 100 % of this task's packets; its load 0.91 is over 0.80. "
        "CPU 2 shares its L3 cache, load 0.00 ≤ 0.80."
    )
    assert only_why_not(first(view(task(rx_placement(0)), busy=full))) == (
        "CPU 0 handles 100 % of this task's packets; its load 0.91 is over 0.80, and no CPU that shares its L3 cache "
        "has room (CPU 0 has the least load, 0.91)."
    )


def test_the_load_does_not_count_the_task_itself_but_its_interrupt() -> None:
    own = task(rx_placement(0), cpu=0, share=0.6)
    assert values(first(view(own, busy={0: 1.0}, softirq={0: 0.3}))) == {"task/812/affinity": "0"}
    heavy = first(view(own, busy={0: 1.0}, softirq={0: 0.85}))
    assert values(heavy) == {"task/812/affinity": "1"}
    assert "its load 0.85 is over 0.80" in only_reason(heavy)


def test_ten_tasks_are_not_placed_on_one_core_in_one_round() -> None:
    ten = [task(rx_placement(0, 20.0 - pid), pid=pid, share=0.3) for pid in range(1, 11)]
    decision = first(view(*ten, busy={0: 0.3, 15: 1.0}))
    placed = [proposal.value for proposal in decision.proposals]
    assert len(placed) == 10
    assert {cpu: placed.count(cpu) for cpu in placed}["0"] == 2
    assert max(placed.count(cpu) for cpu in placed) <= 3
    assert [proposal.subject for proposal in decision.proposals][:2] == ["nginx (1)", "nginx (2)"]


# Which interrupt


def test_with_several_nics_the_least_weighted_distance_decides() -> None:
    near = [
        rx_placement(0, 30),
        rx_placement(4, 25, netdev="eth1"),
        rx_placement(5, 25, netdev="eth1"),
        rx_placement(6, 20, netdev="eth1"),
    ]
    assert values(first(view(task(*near)))) == {"task/812/affinity": "4"}


def test_without_room_near_the_most_traffic_a_process_is_placed_near_the_rest() -> None:
    busy: dict[int, float | None] = dict.fromkeys((0, 1, 2, 3, 8, 9, 10, 11), 0.9)
    assert values(first(view(task(rx_placement(0, 6), rx_placement(4, 4)), busy=busy))) == {"task/812/affinity": "4"}
    assert first(view(task(rx_placement(0, 9), rx_placement(4, 1)), busy=busy)).proposals == []


def test_unknown_rx_placements_are_reported_and_not_guessed() -> None:
    decision = first(view(task(rx_placement(3, 8), rx_placement(None, 2))))
    assert only_reason(decision) == (
        "CPU 3 handles 80 % of this task's packets (20 % are handled on unknown CPUs), load 0.00 ≤ 0.80."
    )
    assert only_why_not(first(view(task(rx_placement(3, 4), rx_placement(None, 6))))) == (
        "60 % of its 10 MB/s are handled on unknown CPUs."
    )
    assert first(view(task(rx_placement(99)))).proposals == []


def test_an_interrupt_that_moved_is_followed() -> None:
    seen = view(task(rx_placement(0)))
    decision = first(seen)
    seen = carried_out(seen, decision)
    moved = replace(seen, tasks=[replace(seen.tasks[0], rx_placements=[rx_placement(5)])])
    again = decide(moved, SPEC, Scope(), decision.memory)  # type: ignore[arg-type]  # a Decision's memory is any Struct
    assert values(again) == {"task/812/affinity": "5"}
    assert again.restores == frozenset()


@pytest.mark.parametrize(
    ("scope", "value"),
    [
        (Scope(netdevs=["eth1"]), "5"),
        (Scope(drivers=["mlx5*"]), "5"),
        (Scope(netdevs=["eth0"]), "0"),
        (Scope(tasks=["redis*"]), None),
        (Scope(cgroups=["/web*"]), "0"),
        (Scope(cgroups=["/db*"]), None),
    ],
)
def test_only_processes_in_scope_are_examined(scope: Scope, value: str | None) -> None:
    decision = first(view(task(rx_placement(0, 9), rx_placement(5, 1, netdev="eth1"))), scope=scope)
    assert values(decision).get("task/812/affinity") == value


# Who


def memory_of(decision: Decision) -> NetworkProcessMemory:
    assert isinstance(decision.memory, NetworkProcessMemory)
    return decision.memory


def test_an_idle_ssh_is_skipped() -> None:
    assert only_why_not(first(view(task(rx_placement(3, 0.004), name="sshd")))) == "Its 4 kB/s are under 100 kB/s."


def test_the_affinity_of_a_silent_process_is_restored_and_then_forgotten() -> None:
    seen = view(task(rx_placement(3), affinity="0-15"))
    decision = first(seen)
    for idle_s, expected in ((5.0, {}), (9.9, {}), (12.0, {"task/812/affinity": "0-15"})):
        seen = carried_out(seen, decision)
        quiet = replace(seen.tasks[0], idle_s=idle_s, rx_placements=[rx_placement(3, 0.0)])
        seen = replace(seen, tasks=[quiet], time_s=1000.0 + idle_s)
        decision = decide(seen, SPEC, Scope(), memory_of(decision))
        assert values(decision) == expected
    assert decision.restores == {"task/812/affinity"}
    assert decision.proposals[0].reason == "Silent for 12 s, over 10 s: CPUs 0-15 as before the policy."
    last = decide(carried_out(seen, decision), SPEC, Scope(), memory_of(decision))
    assert (last.proposals, memory_of(last).placed) == ([], [])


def test_a_trickle_below_half_the_minimum_rate_is_silence() -> None:
    seen = view(task(rx_placement(3)))
    decision = first(seen)
    seen = carried_out(seen, decision, 15.0)
    for rate, expected in ((0.06, {}), (0.04, {"task/812/affinity": "0-15"})):
        slow = replace(seen, tasks=[replace(seen.tasks[0], rx_placements=[rx_placement(3, rate)])])
        assert values(decide(slow, SPEC, Scope(), memory_of(decision))) == expected


def test_processes_are_ordered_by_their_last_traffic() -> None:
    idle = {1: 3.0, 2: 0.5, 3: 4.0}
    decision = first(view(*[task(rx_placement(0), pid=pid, idle_s=idle_s) for pid, idle_s in idle.items()]))
    assert [placed.pid for placed in memory_of(decision).placed] == [3, 1, 2]


def test_the_affinity_of_a_process_without_sockets_is_restored_too() -> None:
    seen = view(task(rx_placement(3)))
    decision = first(seen)
    steps = []
    for time_s in (1005.0, 1011.0, 1050.0, 1080.0):
        decision = decide(replace(view(), time_s=time_s), SPEC, Scope(), memory_of(decision))
        steps.append((values(decision), len(memory_of(decision).placed)))
    back = {"task/812/affinity": "0-15"}
    assert steps == [({}, 1), (back, 1), (back, 1), ({}, 0)]


def test_a_reused_pid_is_another_process() -> None:
    seen = view(task(rx_placement(3)))
    decision = first(seen)
    other = replace(seen, tasks=[task(rx_placement(3, 0.0), started_ticks=6, affinity="3", idle_s=50.0)], time_s=1060.0)
    assert decide(other, SPEC, Scope(), memory_of(decision)).proposals == []


def test_the_affinity_of_a_process_that_leaves_the_scope_is_restored() -> None:
    seen = view(task(rx_placement(3)))
    decision = first(seen)
    again = decide(carried_out(seen, decision), SPEC, Scope(tasks=["redis"]), memory_of(decision))
    assert (values(again), again.restores) == ({"task/812/affinity": "0-15"}, frozenset({"task/812/affinity"}))


def test_a_process_bound_by_another_program_is_skipped() -> None:
    bound = view(task(rx_placement(3), affinity="5"))
    assert only_why_not(first(bound)) == "Another program or policy bound it to CPU 5; its cpuset has 16 CPUs."
    ours = NetworkProcessMemory([PlacedAffinity("task/812/affinity", 812, 5, "0-15", "0-15", "5", 1000.0)])
    assert values(decide(bound, SPEC, Scope(), ours)) == {"task/812/affinity": "3"}
    kernels = only_why_not(first(view(task(rx_placement(3), affinity="5", bound=True))))
    assert kernels == "The kernel bound it to CPU 5; its cpuset has 16 CPUs."
    drifted = NetworkProcessMemory([PlacedAffinity("task/812/affinity", 812, 5, "0-15", "3", "3", 1000.0)])
    assert "Another program or policy bound it to CPU 5" in only_why_not(decide(bound, SPEC, Scope(), drifted))


def test_a_process_bound_to_all_cpus_but_those_off_limits_is_bound() -> None:
    seen = view(task(rx_placement(3), affinity="0-13"))
    limits = Limits(SettingLimits(cpus_off_limits="14-15"))
    limited = replace(seen, inventory=replace(seen.inventory, limits=limits))
    assert only_why_not(first(limited)) == "Another program or policy bound it to CPUs 0-13; its cpuset has 16 CPUs."


def test_a_process_whose_threads_another_program_bound_to_different_cpus_is_skipped() -> None:
    seen = view(task(rx_placement(3), threads_differ=True))
    assert only_why_not(first(seen)) == "Another program bound its threads to different CPUs, in all to CPUs 0-15."


def test_the_kernels_default_affinity_beside_isolated_cpus_is_no_binding() -> None:
    isolating = replace(TOPOLOGY, isolated="8-15")
    decision = first(view(task(rx_placement(3), affinity="0-7"), topology=isolating))
    assert values(decision) == {"task/812/affinity": "3"}


# Where not


@pytest.mark.parametrize(
    ("topology", "value", "why"),
    [
        (replace(TOPOLOGY, isolated="0"), "1", "isolated or reserved"),
        (replace(TOPOLOGY, nohz_full="0-2,8"), "3", "isolated or reserved"),
    ],
)
def test_isolated_cpus_are_used_only_when_allowed(topology: Topology, value: str, why: str) -> None:
    seen = view(task(rx_placement(0)), topology=topology)
    decision = first(seen)
    assert values(decision) == {"task/812/affinity": value}
    assert why in only_reason(decision)
    assert values(first(seen, NetworkProcess(allow_isolated=True))) == {"task/812/affinity": "0"}


def test_the_cpuset_is_respected() -> None:
    decision = first(view(task(rx_placement(0), allowed="2-7", affinity="2-7", cpu=7)))
    assert values(decision) == {"task/812/affinity": "2"}
    assert "its cpuset has only CPUs 2-7" in only_reason(decision)
    assert only_why_not(first(view(task(rx_placement(0), allowed="4-7", affinity="4-7", cpu=7)))) == (
        "CPU 0 handles 100 % of this task's packets; its cpuset has only CPUs 4-7, "
        "none of them within the L3 cache of CPU 0."
    )


def test_no_process_is_placed_on_cpus_of_unknown_load() -> None:
    assert "the load of that CPU is not known" in only_why_not(first(replace(view(task(rx_placement(0))), load=Load())))


# Threads


@pytest.mark.parametrize(
    ("threads", "share", "rx_placements", "value"),
    [
        (8, 0.4, [rx_placement(0), rx_placement(1), rx_placement(2)], "0-2"),
        (2, 0.4, [rx_placement(0, 5), rx_placement(1, 9), rx_placement(2, 7)], "1-2"),
        (1, 0.4, [rx_placement(0), rx_placement(1, 11)], "1"),
        (8, 2.1, [rx_placement(0)], "0-2"),
        (8, 0.5, [rx_placement(0)], "0"),
        (8, 0.4, [rx_placement(0, 50), rx_placement(4, 49), rx_placement(5, 1)], "0,4"),
        (16, 9.0, [rx_placement(0)], None),
    ],
)
def test_many_threads_are_spread_over_the_queue_cores(
    threads: int, share: float, rx_placements: list[RxPlacement], value: str | None
) -> None:
    seen = view(task(*rx_placements, threads=threads, share=share), busy={15: 1.0})
    decision = first(seen)
    assert values(decision).get("task/812/affinity") == value
    after = decide(carried_out(seen, decision), SPEC, Scope(), memory_of(decision))
    assert after.proposals == []


def test_with_a_maximum_load_of_0_each_thread_needs_an_idle_cpu() -> None:
    decision = first(view(task(rx_placement(0), threads=2, share=0.4)), replace(SPEC, max_load=0.0))
    assert values(decision) == {"task/812/affinity": "0-1"}


def test_a_spread_process_that_fills_its_cpus_gets_more() -> None:
    ours = NetworkProcessMemory([PlacedAffinity("task/812/affinity", 812, 5, "0-15", "0", "0", 1000.0)])
    seen = view(task(rx_placement(0), affinity="0", cpu=0, threads=8, share=0.97), busy={0: 1.0})
    decision = decide(seen, SPEC, Scope(), ours)
    assert values(decision) == {"task/812/affinity": "0-1"}


# The interrupt to the task


def eth0_irq(**other: object) -> Irq:
    return replace(Irq(41, "eth0-rx-0", "PCI", "0", "0", 0, True, None, "eth0", ["rx-0"]), **other)


BOUND = task(rx_placement(0), affinity="5", cpu=5)
MOVING = NetworkProcess(move_irq=True)


def test_the_interrupt_moves_to_a_bound_task_and_is_restored_when_that_falls_silent() -> None:
    seen = view(BOUND, irqs=[eth0_irq()], softirq={0: 0.3}, busy={0: 0.3, 5: 0.2})
    decision = first(seen, MOVING)
    assert values(decision) == {"irq/41/affinity": "5"}
    assert only_reason(decision) == (
        "Another program or policy bound it to CPU 5; its cpuset has 16 CPUs. All its packets arrive by IRQ 41 on CPU "
        "0 and are 100 % of that interrupt's bytes; CPU 5 is within the L3 cache of the process, load 0.20 ≤ 0.80."
    )
    there = [replace(BOUND, rx_placements=[rx_placement(5)])]
    moved = replace(seen, tasks=there, inventory=replace(seen.inventory, irqs=[eth0_irq(requested="5", effective="5")]))
    still = decide(replace(moved, time_s=1005.0), MOVING, Scope(), memory_of(decision))
    assert still.proposals == []
    quiet = replace(moved, time_s=1020.0, tasks=[replace(there[0], idle_s=15.0, rx_placements=[rx_placement(5, 0.0)])])
    back = decide(quiet, MOVING, Scope(), memory_of(still))
    assert (values(back), back.restores) == ({"irq/41/affinity": "0"}, frozenset({"irq/41/affinity"}))
    home = replace(quiet, inventory=replace(seen.inventory, irqs=[eth0_irq()]))
    assert memory_of(decide(home, MOVING, Scope(), memory_of(back))).placed == []


@pytest.mark.parametrize(
    ("irq", "tasks", "why"),
    [
        (eth0_irq(movable=False, locked_reason="A managed interrupt."), [BOUND], "IRQ 41 cannot be moved. A managed"),
        (eth0_irq(movable=None), [BOUND], "IRQ 41 cannot be moved."),
        (eth0_irq(), [task(rx_placement(0), affinity="2", cpu=2)], "it is within the L3 cache of CPU 0"),
        (
            eth0_irq(),
            [task(rx_placement(0), rx_placement(1, irq=42), affinity="5", cpu=5)],
            "do not all arrive by one",
        ),
        (eth0_irq(), [BOUND, task(rx_placement(0, 20), pid=2, affinity="0-7")], "only 33 % of the bytes of IRQ 41"),
        (
            eth0_irq(),
            [task(replace(rx_placement(0), how="rps"), affinity="5", cpu=5)],
            "not handled on the CPU of IRQ 41",
        ),
    ],
)
def test_the_interrupt_does_not_move_when_that_would_not_help(irq: Irq, tasks: list[NetTask], why: str) -> None:
    decision = first(view(*tasks, irqs=[irq]), MOVING)
    assert decision.proposals == []
    assert why in decision.skipped[0].why


def test_processes_skipped_for_one_reason_are_grouped() -> None:
    slow = [task(rx_placement(3, n / 1000), pid=n, name="redis" if n > 42 else "nginx") for n in range(40, 46)]
    fixed = [task(rx_placement(3), pid=n, affinity=str(n % 4)) for n in (7, 8)]
    decision = first(view(*slow, *fixed))
    assert [(skipped.subject, skipped.why) for skipped in decision.skipped] == [
        ("nginx (40-42), redis (43-45)", "Each has 40 kB/s to 45 kB/s, under 100 kB/s."),
        (
            "nginx (7-8)",
            "Another program or policy bound each of them, in all to CPUs 0,3; the cpuset of each has 16 CPUs.",
        ),
    ]


# Stability


def test_a_placed_process_is_not_moved_for_a_little_gain_or_a_little_load() -> None:
    ours = NetworkProcessMemory([PlacedAffinity("task/812/affinity", 812, 5, "0-15", "0", "0", 1000.0)])
    here = task(rx_placement(0, 5.0), rx_placement(1, 6.0), affinity="0", cpu=0, share=0.2)
    assert decide(view(here, busy={0: 0.7}), SPEC, Scope(), ours).proposals == []
    there = replace(here, rx_placements=[rx_placement(0, 2.0), rx_placement(1, 8.0)])
    assert values(decide(view(there, busy={0: 0.7}), SPEC, Scope(), ours)) == {"task/812/affinity": "1"}


@pytest.mark.parametrize(
    ("busy", "value"),
    [
        ({0: 0.95}, None),
        ({0: 1.0}, "1"),
        ({0: 1.0} | dict.fromkeys((1, 2, 3, 8, 9, 10, 11), 0.7), None),
        ({0: 1.0} | dict.fromkeys((1, 2, 3, 8, 9, 10, 11), 0.6), "1"),
    ],
)
def test_for_load_alone_a_process_moves_only_to_clearly_less_load(
    busy: dict[int, float | None], value: str | None
) -> None:
    ours = NetworkProcessMemory([PlacedAffinity("task/812/affinity", 812, 5, "0-15", "0", "0", 1000.0)])
    here = task(rx_placement(0), affinity="0", cpu=0, share=0.15)
    decision = decide(view(here, busy=busy), SPEC, Scope(), ours)
    assert values(decision).get("task/812/affinity") == value


@pytest.mark.parametrize(("load", "value"), [(0.55, None), (0.45, "0")])
def test_a_process_does_not_follow_its_interrupt_to_a_cpu_that_it_would_overload(
    load: float, value: str | None
) -> None:
    ours = NetworkProcessMemory([PlacedAffinity("task/812/affinity", 812, 5, "0-15", "1", "1", 1000.0)])
    here = task(rx_placement(0), affinity="1", cpu=1, share=0.1)
    decision = decide(view(here, busy={0: load, 1: 0.1}), SPEC, Scope(), ours)
    assert values(decision).get("task/812/affinity") == value


def test_a_process_follows_its_interrupt_to_another_l3_beside_a_cpu_that_it_would_overload() -> None:
    ours = NetworkProcessMemory([PlacedAffinity("task/812/affinity", 812, 5, "0-15", "5", "5", 1000.0)])
    here = task(rx_placement(0), affinity="5", cpu=5, share=0.3)
    decision = decide(view(here, busy={0: 0.5}), SPEC, Scope(), ours)
    assert values(decision) == {"task/812/affinity": "1"}
    assert "with this task that CPU's load 0.50 would be over 0.60" in only_reason(decision)
    crowded: dict[int, float | None] = dict.fromkeys((1, 2, 3, 8, 9, 10, 11), 0.6)
    assert values(decide(view(here, busy={0: 0.5, **crowded}), SPEC, Scope(), ours)) == {"task/812/affinity": "0"}


def test_a_process_far_from_its_packets_without_room_there_is_restored() -> None:
    ours = NetworkProcessMemory([PlacedAffinity("task/812/affinity", 812, 5, "0-15", "5", "5", 1000.0)])
    full: dict[int, float | None] = dict.fromkeys((0, 1, 2, 3, 8, 9, 10, 11), 0.9)
    decision = decide(view(task(rx_placement(0), affinity="5", cpu=5), busy=full), SPEC, Scope(), ours)
    assert (values(decision), decision.restores) == ({"task/812/affinity": "0-15"}, frozenset({"task/812/affinity"}))


def settled_after(machine: Machine, spec: NetworkProcess, moves: int) -> int:
    """Return the number of rounds, each of at most this many moves, until nothing moves on a steady input."""
    memory = NetworkProcessMemory()
    bound = 3 * (len(machine.view.tasks) + len(machine.view.inventory.irqs)) // moves + 3
    for steps in range(bound):
        decision = decide(machine.view, spec, Scope(), memory)
        memory = memory_of(decision)
        if not decision.proposals:
            return steps
        machine = machine.after(Action(p.key, "", p.value, p.reason) for p in decision.proposals[:moves])
    raise AssertionError(f"still moving after {bound} rounds: {decision.proposals}")


SPECS = st.builds(
    NetworkProcess, max_distance=st.sampled_from(Locality), smt=st.sampled_from(Smt), move_irq=st.booleans()
)


@settings(max_examples=60, deadline=None)
@given(machines(), SPECS, st.sampled_from([1, 2, 64]))
def test_a_steady_input_reaches_a_steady_state(machine: Machine, spec: NetworkProcess, moves: int) -> None:
    settled_after(machine, spec, moves)


@pytest.mark.parametrize("name", CAPTURED)
def test_a_steady_input_reaches_a_steady_state_on_a_captured_machine(name: str) -> None:
    for seed, moves in product(range(4), (1, 2, 64)):
        settled_after(captured(name, seed), NetworkProcess(move_irq=seed % 2 == 0), moves)


@settings(max_examples=100, deadline=None)
@given(machines(), SPECS)
def test_a_decision_names_only_cpus_that_may_be_and_is_the_same_each_time(
    machine: Machine, spec: NetworkProcess
) -> None:
    seen = machine.view
    decision = first(seen, spec)
    assert decision == first(seen, spec)
    isolated_cpus = parse_cpu_list(seen.topology.isolated) | parse_cpu_list(seen.topology.nohz_full)
    allowed = {f"task/{each.pid}/affinity": parse_cpu_list(each.allowed) for each in seen.tasks}
    for proposal in decision.proposals:
        cpus = parse_cpu_list(proposal.value)
        assert cpus
        assert cpus <= seen.topology.online() - isolated_cpus
        assert cpus <= allowed.get(proposal.key, cpus)
    assert len({proposal.key for proposal in decision.proposals}) == len(decision.proposals)
    assert all(re.search(r"\d", skipped.why) for skipped in decision.skipped)


# Placement quality (the bench prints the same on more cases)


def brute_force(capacity: CpuCapacity, flow: PacketShares, limit: float) -> float | None:
    """The least cost of one CPU with room within the rings of the CPUs with packets."""
    reachable = {
        cpu
        for centre in capacity.search_centres(flow)
        for group in capacity.distances.groups_around(centre, capacity.max_locality)
        for cpu in group.cpus
        if capacity.load[cpu] <= limit
    }
    return min((flow.mean_distance(capacity.distances.rows[cpu]) for cpu in reachable), default=None)


@settings(max_examples=200, deadline=None)
@given(topologies(64), st.sampled_from(Locality), st.sampled_from(Smt), st.randoms(use_true_random=False))
def test_the_nearest_cpu_with_room_is_what_trying_all_finds(
    topology: Topology, reach: Locality, smt: Smt, random: Random
) -> None:
    online = sorted(topology.online())
    capacity = CpuCapacity(cpu_distances(topology, smt), reach, frozenset(online), 0.8)
    capacity.load = [
        random.choice([0.1, 0.7, 0.9]) if cpu in topology.online() else 9.9 for cpu in range(len(capacity.load))
    ]
    cpus = random.sample(online, min(len(online), random.randint(1, 6)))
    weights = sorted((random.uniform(0.1, 1.0) for _ in cpus), reverse=True)
    flow = PacketShares(tuple(cpus), tuple(weight / sum(weights) for weight in weights))
    choice = capacity.nearest(flow, 0.8, None)
    best = brute_force(capacity, flow, 0.8)
    assert (choice is None) == (best is None)
    if choice is not None and best is not None:
        assert flow.mean_distance(capacity.distances.rows[choice.cpu]) == pytest.approx(best)


def test_a_sibling_of_another_cpu_with_packets_is_not_nearer_than_an_idle_core() -> None:
    """CPU 4 is the other thread of CPU 1: 5 from it and 4 from CPU 0; CPUs 2 and 5 are 4 from both."""
    topology = make_topology(packages=1, nodes_per_package=1, cores_per_node=3, threads=2)
    capacity = CpuCapacity(cpu_distances(topology, Smt.LAST), Locality.L3, topology.online(), 0.8)
    capacity.load = [0.9, 0.9, 0.9, 0.9, 0.1, 0.7]
    choice = capacity.nearest(PacketShares((0, 1), (0.5, 0.5)), 0.8, None)
    assert choice is not None
    assert (choice.cpu, choice.cost) == (5, 4.0)
