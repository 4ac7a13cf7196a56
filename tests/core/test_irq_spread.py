from typing import cast

import pytest
from hypothesis import given, settings
from msgspec import convert
from msgspec.structs import replace
from tests.core.policy_machines import CAPTURED, Machine, captured, machines
from tests.support.views import make_netdev, make_topology

from coresteer_core.changes.plan import Action
from coresteer_core.cpuset import parse_cpu_list
from coresteer_core.node.inventory import Inventory, Irq
from coresteer_core.node.limits import Limits, SettingLimits
from coresteer_core.node.load import IrqLoad, Load
from coresteer_core.node.tasks import NetTask, RxPlacement
from coresteer_core.node.topology import Topology
from coresteer_core.node.view import View
from coresteer_core.policies.base import Decision, Mode, Scope
from coresteer_core.policies.engine import evaluate_round
from coresteer_core.policies.engine_state import EngineMemory, PolicyInForce, record_write
from coresteer_core.policies.irq_spread.policy import IrqSpread, IrqSpreadMemory, decide

SMT = make_topology(packages=1, nodes_per_package=1, cores_per_node=4, threads=2)
"""Eight CPUs; CPU n and n + 4 are one core."""
FLAT = make_topology(packages=1, nodes_per_package=1, cores_per_node=4, threads=1)
TWO_NODES = make_topology(packages=2, nodes_per_package=1, cores_per_node=4, threads=1)
"""CPUs 0-3 are on NUMA node 0, 4-7 on node 1."""


def machine(
    topology: Topology,
    *at: tuple[int, float],
    other: dict[int, float] | None = None,
    node: int | None = 0,
    names: str = "eth0",
) -> Machine:
    """Interrupts 40, 41 … of eth0 (or of one netdev each, where names has {}), each on a CPU at a cost in percent."""
    cpus = len(topology.cpus)
    irqs = [
        Irq(40 + n, f"eth0-rx-{n}", "PCI", str(cpu), str(cpu), node, True, None, names.format(n), [f"rx-{n}"])
        for n, (cpu, _) in enumerate(at)
    ]
    netdevs = [make_netdev(name, numa_node=node) for name in sorted({names.format(n) for n in range(len(at))})]
    busy = [(other or {}).get(cpu, 0.0) / 100 for cpu in range(cpus)]
    costs = {40 + n: cost / 100 for n, (_, cost) in enumerate(at)}
    rates = {number: 10_000 * cost + 1 for number, cost in costs.items()}
    return Machine(View(topology, Inventory(netdevs, irqs), time_s=1000.0), busy, costs, rates).loaded()


def decided(made: Machine, spec: IrqSpread | None = None, scope: Scope | None = None) -> Decision:
    return decide(made.view, spec or IrqSpread(), scope or Scope(), IrqSpreadMemory())


def targets(decision: Decision) -> dict[int, str]:
    return {int(proposal.key.split("/")[1]): proposal.value for proposal in decision.proposals}


def whys(decision: Decision) -> dict[str, str]:
    """By number of the interrupt."""
    return {
        str(number): skipped.why
        for skipped in decision.skipped
        for number in parse_cpu_list(skipped.subject.split()[1])
    }


def test_the_most_expensive_interrupt_of_an_overloaded_cpu_moves_to_the_least_busy_one() -> None:
    made = machine(FLAT, (0, 40), (0, 30), names="eth{}", other={1: 30, 2: 10, 3: 20})
    (proposal,) = decided(made).proposals
    assert (proposal.key, proposal.value, proposal.subject) == ("irq/40/affinity", "2", "IRQ 40 (eth0-rx-0)")
    assert proposal.reason == (
        "CPU 0 is 70 % busy, 40 percentage points by this interrupt (4,001/s); CPU 2 is 10 % busy."
    )


@pytest.mark.parametrize(
    ("at", "other", "why"),
    [
        pytest.param([(0, 40)], {0: 24}, "CPU 0 is 64 % busy, below 65 %.", id="below the threshold"),
        pytest.param(
            [(0, 40), (0, 24), (1, 30)],
            {},
            "They arrive on CPUs 0-1, 30 to 64 % busy, below 65 %.",
            id="several below the threshold",
        ),
        pytest.param(
            [(0, 30)],
            {0: 40, 1: 55, 2: 55, 3: 55},
            "CPU 0 is 70 % busy and no move would help: CPU 1, the least busy other CPU of 0-3, is 55 % busy, not 20 "
            "percentage points less.",
            id="no gap",
        ),
        pytest.param(
            [(0, 90)],
            {},
            "CPU 0 is 90 % busy and no move would help: CPU 1, the least busy other CPU of 0-3, is 0 % busy and would "
            "reach 90 % with the 90 percentage points of this interrupt.",
            id="the load would only go along",
        ),
        pytest.param(
            [(0, 50), (0, 48)],
            {1: 45, 2: 45, 3: 45},
            "They arrive on CPU 0, 98 % busy, and no move would help: the least busy other CPU of 0-3 is 45 % busy and "
            "would reach 93 to 95 % with the 48 to 50 percentage points of one of them.",
            id="either load would only go along",
        ),
        pytest.param(
            [(0, 5), (0, 4)],
            {0: 80},
            "They arrive on CPU 0, 89 % busy, of which interrupts that may move are only 9 percentage points.",
            id="busy with other work",
        ),
        pytest.param(
            [(0, 0.5)],
            {0: 90},
            "It uses 0.5 percentage points of CPU 0, 90 % busy: too little to move it.",
            id="too light",
        ),
    ],
)
def test_a_skipped_interrupt_has_its_reason(at: list[tuple[int, float]], other: dict[int, float], why: str) -> None:
    decision = decided(machine(FLAT, *at, other=other, names="eth{}"))
    assert decision.proposals == []
    assert whys(decision)["40"] == why


def stolen(made: Machine, **percent: float) -> View:
    """The machine's view with steal time in addition, in percent of cpu0, cpu1 …"""
    steal = [percent.get(f"cpu{cpu}", 0.0) / 100 for cpu in range(len(made.view.load.busy))]
    busy = [(share or 0.0) + more for share, more in zip(made.view.load.busy, steal, strict=True)]
    return replace(made.view, load=replace(made.view.load, busy=busy, steal=steal))


def test_steal_time_is_no_load_that_a_move_relieves() -> None:
    made = machine(FLAT, (0, 30), (0, 20), names="eth{}")
    decision = decide(stolen(made, cpu0=40), IrqSpread(), Scope(), IrqSpreadMemory())
    assert decision.proposals == []
    assert whys(decision)["40"] == (
        "They arrive on CPU 0, 90 % busy, of which 40 percentage points are steal time, which no move relieves."
    )


def test_a_cpu_that_is_busy_without_steal_time_is_relieved_to_one_that_has_little_of_both() -> None:
    made = machine(FLAT, (0, 40), (0, 30), names="eth{}", other={2: 10, 3: 10})
    decision = decide(stolen(made, cpu0=10, cpu1=40), IrqSpread(), Scope(), IrqSpreadMemory())
    assert targets(decision) == {40: "2"}


def test_interrupts_skipped_for_one_reason_are_grouped() -> None:
    decision = decided(machine(FLAT, *((n % 3, 0.01 + n % 7 / 100) for n in range(600))))
    (skipped,) = decision.skipped
    assert skipped.subject == "IRQs 40-639"
    assert skipped.why == "Each uses 0.0 to 0.1 percentage points of CPUs 0-2, 8 % busy: too little to move it."


def test_only_as_many_interrupts_move_as_bring_the_cpu_below_the_threshold() -> None:
    decision = decided(machine(FLAT, (0, 30), (0, 25), (0, 20), (0, 15), names="eth{}"))
    assert set(targets(decision)) == {40}
    assert whys(decision)["41"] == "They arrive on CPU 0, 90 % busy, relieved by moving other interrupts."


def test_busy_queues_of_one_netdev_are_separated_below_the_threshold_too() -> None:
    decision = decided(machine(FLAT, (0, 5), (0, 9), (0, 6), (0, 0.2)))
    assert targets(decision) == {42: "1", 40: "2"}
    assert decision.proposals[0].reason == ("It shares CPU 0 with 2 other busy interrupts of eth0; CPU 1 is 0 % busy.")


def test_queues_of_different_netdevs_share_a_cpu_below_the_threshold() -> None:
    assert targets(decided(machine(FLAT, (0, 5), (0, 9), names="eth{}"))) == {}


def test_queues_stay_together_where_there_is_no_room_for_them() -> None:
    decision = decided(machine(FLAT, (0, 20), (0, 20), other={1: 30, 2: 30, 3: 30}))
    assert decision.proposals == []
    assert whys(decision)["41"] == (
        "They arrive on CPU 0, 40 % busy, with other queues of eth0, but the least busy CPU without them, CPU 1, is "
        "30 % busy and would reach 50 % with one of them, over 45 %."
    )


def test_queues_stay_together_where_every_cpu_has_one() -> None:
    decision = decided(machine(FLAT, *((cpu % 4, 8) for cpu in range(8))))
    assert decision.proposals == []
    assert whys(decision)["41"] == (
        "They arrive on CPUs 0-3, 16 % busy, with other queues of eth0, which every CPU of 0-3 handles."
    )


def test_a_queue_for_which_only_this_round_makes_room_says_so() -> None:
    made = machine(FLAT, (0, 13), (0, 12), (1, 30), (1, 11), other={2: 38})
    irqs = [replace(irq, netdev="eth1") if irq.irq > 41 else irq for irq in made.view.inventory.irqs]
    view = replace(made.view, inventory=replace(made.view.inventory, irqs=irqs))
    decision = decided(replace(made, view=view), IrqSpread(exclude="3"))
    assert targets(decision) == {43: "0"}
    assert whys(decision)["41"] == (
        "They arrive on CPU 0, 25 % busy: only this round's moves make room for one of them elsewhere."
    )


def test_a_managed_queue_stays_and_the_others_move_away_from_it() -> None:
    made = machine(FLAT, (0, 5), (0, 9))
    kept, other = made.view.inventory.irqs
    irqs = [replace(kept, movable=False, locked_reason="A managed interrupt."), other]
    decision = decided(replace(made, view=replace(made.view, inventory=replace(made.view.inventory, irqs=irqs))))
    assert targets(decision) == {41: "1"}
    assert whys(decision) == {"40": "A managed interrupt."}


def test_second_threads_come_last_and_queues_get_different_cores() -> None:
    four = decided(machine(SMT, (0, 9), (0, 8), (0, 7), (0, 6)))
    assert targets(four) == {41: "1", 42: "2", 43: "3"}
    five = decided(machine(SMT, (0, 9), (0, 8), (0, 7), (0, 6), (0, 5)))
    assert targets(five) == {41: "1", 42: "2", 43: "3", 44: "4"}
    beside = decided(machine(SMT, (0, 9), (4, 8)))
    assert targets(beside) == {41: "1"}
    assert "the core of CPU 4" in beside.proposals[0].reason


def test_with_smt_any_threads_count_as_separate_cpus() -> None:
    spec = IrqSpread(smt="any")
    assert targets(decided(machine(SMT, (0, 9), (4, 8)), spec)) == {}
    assert targets(decided(machine(SMT, (0, 9), (0, 8), other={1: 5, 2: 5, 3: 5}), spec)) == {41: "4"}


def test_interrupts_move_to_their_numa_node_while_there_is_room() -> None:
    decision = decided(machine(TWO_NODES, (1, 30), node=1))
    assert targets(decision) == {40: "4"}
    assert decision.proposals[0].reason == (
        "It arrives on NUMA node 0, not on that of eth0; CPU 4, on NUMA node 1, is 0 % busy."
    )
    full = decided(machine(TWO_NODES, (1, 30), node=1, other=dict.fromkeys(range(4, 8), 20)))
    assert whys(full)["40"] == (
        "CPU 1, 30 % busy, is not on the NUMA node of eth0, but the least busy CPU there, CPU 4, is 20 % busy and "
        "would reach 50 % with it, over 45 %."
    )
    assert targets(decided(machine(TWO_NODES, (1, 30), node=1), IrqSpread(numa="any"))) == {}
    assert targets(decided(machine(TWO_NODES, (1, 30), node=None))) == {}


def test_without_a_cpu_on_its_node_an_interrupt_moves_to_the_nearest_node() -> None:
    topology = make_topology(
        packages=2, nodes_per_package=2, cores_per_node=2, threads=1, isolated=[2, 3], nohz_full=[2, 3]
    )
    assert targets(decided(machine(topology, (7, 10), node=1))) == {40: "0"}


@pytest.mark.parametrize(
    ("isolated", "spec", "expected"),
    [
        ([0], IrqSpread(), {40: "1"}),
        ([], IrqSpread(exclude="0-1"), {40: "2"}),
        ([0], IrqSpread(allow_isolated=True), {}),
        ([0], IrqSpread(allow_isolated=True, exclude="0"), {40: "1"}),
    ],
)
def test_even_a_rare_interrupt_moves_away_from_isolated_cpus(
    isolated: list[int], spec: IrqSpread, expected: dict[int, str]
) -> None:
    topology = make_topology(packages=1, nodes_per_package=1, cores_per_node=4, threads=1, isolated=isolated)
    decision = decided(machine(topology, (0, 0.1)), spec)
    assert targets(decision) == expected
    assert all("is isolated or excluded" in proposal.reason for proposal in decision.proposals)


def test_without_an_allowed_cpu_nothing_moves() -> None:
    decision = decided(machine(FLAT, (0, 80), (0, 10)), IrqSpread(exclude="0-7"))
    assert decision.proposals == []
    assert set(whys(decision).values()) == {"No CPU may handle interrupts."}


def test_an_invalid_exclude_list_moves_nothing() -> None:
    decision = decided(machine(FLAT, (0, 80), (0, 10)), IrqSpread(exclude="0-x"))
    assert decision.proposals == []
    assert decision.sentence.startswith("Nothing is moved: the list of excluded CPUs cannot be parsed. “0-x” is not")


def test_an_unknown_load_is_not_zero() -> None:
    made = machine(FLAT, (0, 40), (0, 40), names="eth{}")
    load = made.view.load
    assert load.softirq[0] is not None
    blind = replace(made.view, load=replace(load, softirq=[None, *load.softirq[1:]]))
    decision = decide(blind, IrqSpread(), Scope(), IrqSpreadMemory())
    assert (decision.proposals, set(whys(decision).values())) == (
        [],
        {"They arrive on CPU 0, whose load is not known."},
    )
    dark = replace(made.view, load=replace(load, busy=[load.busy[0], None, None, load.busy[3]]))
    assert targets(decide(dark, IrqSpread(), Scope(), IrqSpreadMemory())) == {40: "3"}
    nothing = decide(replace(made.view, load=Load()), IrqSpread(), Scope(), IrqSpreadMemory())
    assert (nothing.proposals, nothing.sentence) == (
        [],
        "Nothing is moved: no interrupt is known to be active.",
    )


def test_load_from_before_a_move_moves_nothing_again() -> None:
    made = machine(FLAT, (0, 40), (0, 40), names="eth{}")
    irqs = [replace(irq, requested="1") if irq.irq == 40 else irq for irq in made.view.inventory.irqs]
    decision = decided(replace(made, view=replace(made.view, inventory=replace(made.view.inventory, irqs=irqs))))
    assert whys(decision)["40"] == "It was just moved from CPU 0 to 1; its load there is not known yet."


@pytest.mark.parametrize(
    ("scope", "expected"),
    [
        (Scope(), {40, 41}),
        (Scope(netdevs=["eth0"]), {40}),
        (Scope(drivers=["i*"]), {40, 41}),
        (Scope(netdevs=["eth*"], drivers=["mlx*"]), set()),
        (Scope(tasks=["nginx"]), {40, 41}),
    ],
)
def test_only_interrupts_in_scope_move(scope: Scope, expected: set[int]) -> None:
    made = machine(FLAT, (0, 40), (1, 40), names="eth{}", other={0: 50, 1: 50})
    assert set(targets(decided(made, scope=scope))) == expected


def test_the_cost_of_an_interrupt_is_its_part_by_arrivals() -> None:
    made = machine(FLAT, (0, 40), (0, 40), names="eth{}")
    cells = [IrqLoad(40, 0, 1000.0), IrqLoad(41, 0, 3000.0)]
    decision = decided(replace(made, view=replace(made.view, load=replace(made.view.load, irqs=cells))))
    assert set(targets(decision)) == {41}
    assert "60 percentage points by this interrupt (3,000/s)" in decision.proposals[0].reason


def test_an_interrupt_whose_move_has_shown_a_high_cost_is_not_moved_again() -> None:
    """Interrupts 40 and 41 arrive as often, but 40 stands for four times as many packets."""
    made = machine(FLAT, (0, 40), (0, 10), (1, 5), other={0: 20, 1: 20, 2: 90, 3: 90}, names="eth{}")
    made = replace(made, per_s={40: 1000.0, 41: 1000.0, 42: 3000.0}).loaded()
    first = decided(made)
    assert targets(first) == {40: "1"}
    assert "25 percentage points by" in first.proposals[0].reason
    moved = made.after([Action("irq/40/affinity", "0", "1", "")])
    assert targets(decided(moved)) == {40: "0"}, "by arrivals it would cost CPU 0 next to nothing"
    second = decide(moved.view, IrqSpread(), Scope(), cast(IrqSpreadMemory, first.memory))
    assert second.proposals == []
    assert cast(IrqSpreadMemory, second.memory).learned == {40: pytest.approx(0.04)}
    alone = moved.after([Action("irq/40/affinity", "1", "3", "")])
    third = decide(alone.view, IrqSpread(), Scope(), cast(IrqSpreadMemory, second.memory))
    assert cast(IrqSpreadMemory, third.memory).learned == {}


@pytest.mark.parametrize(
    ("affinity", "expected"),
    [("0", {}), ("0-1", {40: "1"}), ("0-3", {40: "1"})],
    ids=["bound", "bound to several", "free"],
)
def test_only_processes_bound_to_the_one_cpu_of_their_interrupt_move_along(
    affinity: str, expected: dict[int, str]
) -> None:
    made = machine(FLAT, (0, 30), other={1: 5, 2: 5, 3: 5})
    rx_placement = RxPlacement("eth0", "rx-0", 40, 0, "rss", 1, 1e6, 0.0)
    task = NetTask(812, 1, "nginx", None, 1, affinity, "0-3", 0, 0.5, 0.0, [rx_placement])
    made = replace(made, view=replace(made.view, tasks=[task])).loaded()
    assert made.view.load.busy[0] == pytest.approx(0.8)
    assert targets(decided(made)) == expected


def test_the_round_is_one_sentence() -> None:
    assert decided(machine(FLAT, (0, 40), (0, 30))).sentence == (
        "2 active interrupts: 1 to move; their CPUs are up to 70 % busy, the threshold is 65 %."
    )
    assert decided(machine(FLAT, (0, 40))).sentence == (
        "1 active interrupt: 0 to move; their CPUs are up to 40 % busy, the threshold is 65 %."
    )


POLICY = PolicyInForce("spread", 1, "spread", 10, Mode.ENFORCE, IrqSpread())
QUIET_ROUNDS = 40
"""More than a flap damping window of 180 s has."""


def settle(machine: Machine) -> tuple[Machine, EngineMemory]:
    """The machine once nothing moved for longer than any damping lasts."""
    memory = EngineMemory()
    moves = quiet = 0
    bound = 2 * len(machine.view.load.irqs)
    while quiet < QUIET_ROUNDS:
        (evaluation,), memory = evaluate_round(machine.view, [POLICY], memory)
        for action in evaluation.actions:
            memory = record_write(memory, "spread", action, machine.view.time_s)
        machine = machine.after(evaluation.actions)
        moves += len(evaluation.actions)
        quiet = 0 if evaluation.actions else quiet + 1
        assert moves <= bound, f"{moves} moves of {len(machine.view.load.irqs)} interrupts and no end"
    return machine, memory


def check_settled(before: Machine, after: Machine, memory: EngineMemory) -> None:
    """Nothing is allowed any more, and no interrupt that could leave arrives where none should."""
    spread = memory.memories["spread"]
    assert isinstance(spread, IrqSpreadMemory)
    decision = decide(after.view, IrqSpread(), Scope(), spread)
    assert decision.proposals == []
    topology = after.view.topology
    isolated_cpus = parse_cpu_list(topology.isolated) | parse_cpu_list(topology.nohz_full)
    blocked = {irq.irq for irq in after.view.inventory.irqs if irq.movable is False}
    if topology.online() - isolated_cpus:
        assert not {cell.irq for cell in after.view.load.irqs if cell.cpu in isolated_cpus} - blocked
    arriving = {str(irq.irq) for irq in before.view.inventory.irqs if irq.irq in before.irqs}
    assert whys(decision).keys() == arriving


@pytest.mark.parametrize("name", CAPTURED)
def test_a_steady_load_reaches_a_steady_state_on_every_captured_machine(name: str) -> None:
    for seed in range(2):
        start = captured(name, seed)
        check_settled(start, *settle(start))


@settings(max_examples=25, deadline=None)
@given(machines())
def test_a_steady_load_reaches_a_steady_state_on_any_machine(start: Machine) -> None:
    check_settled(start, *settle(start))


def limited(made: Machine, **limits: object) -> Machine:
    inventory = replace(made.view.inventory, limits=Limits(convert(limits, SettingLimits)))
    return replace(made, view=replace(made.view, inventory=inventory))


def test_a_cpu_off_limits_is_no_destination_and_is_not_vacated() -> None:
    made = machine(FLAT, (0, 10), (1, 45), (1, 40))
    assert targets(decided(made)) == {41: "2"}
    assert targets(decided(limited(made, cpus_off_limits="0,2"))) == {41: "3"}
    assert targets(decided(limited(made, cpus_off_limits="0-3"))) == {}


def test_an_interrupt_off_limits_stays_and_the_next_one_moves() -> None:
    made = limited(machine(FLAT, (1, 45), (1, 40)), interrupts_off_limits=["eth0-rx-0"])
    decision = decided(made)
    assert targets(decision) == {41: "0"}
    assert "interrupts_off_limits" in whys(decision)["40"]


def test_the_receive_and_the_send_interrupt_of_a_pair_of_queues_stay_together() -> None:
    made = machine(FLAT, (0, 20), (0, 15), (1, 20), (1, 15))
    irqs = [
        replace(irq, queues=[f"{'rx' if n % 2 == 0 else 'tx'}-{n // 2}"])
        for n, irq in enumerate(made.view.inventory.irqs)
    ]
    paired = replace(made, view=replace(made.view, inventory=replace(made.view.inventory, irqs=irqs)))
    assert targets(decided(made)) == {41: "2", 43: "3"}
    assert targets(decided(paired)) == {}
