from collections.abc import Iterator
from math import pi, sin
from random import Random

import msgspec
import pytest
from hypothesis import given, settings
from msgspec.structs import replace
from tests.core.policy_machines import Machine, machines
from tests.support.rates import make_rates
from tests.support.views import make_netdev, make_topology

from coresteer_core.node.inventory import Inventory, Irq
from coresteer_core.node.load import IrqLoad, Load, mean_load
from coresteer_core.node.rates import NetdevCounts, TcpLatency, encode_irq_id
from coresteer_core.node.tasks import NetTask, RxPlacement
from coresteer_core.node.view import View
from coresteer_core.policies.backtest import backtest, simulate_enforcement
from coresteer_core.policies.base import ROUND_PERIOD_S, Mode
from coresteer_core.policies.engine import evaluate_round
from coresteer_core.policies.engine_state import EngineMemory, PolicyInForce, record_write
from coresteer_core.policies.irq_spread.policy import IrqSpread
from coresteer_core.policies.network_process.policy import NetworkProcess
from coresteer_core.settings.overlay import overlay

SPREAD = PolicyInForce("spread", 1, "spread", 10, Mode.OBSERVE, IrqSpread())
PROCESS = PolicyInForce("process", 1, "process", 20, Mode.OBSERVE, NetworkProcess())


def server() -> Machine:
    """Eight CPUs on two NUMA nodes, CPU 7 isolated; eth0 with four queues on CPU 0, and what receives from them."""
    topology = make_topology(packages=2, nodes_per_package=1, cores_per_node=4, threads=1, isolated=[7], nohz_full=[7])
    irqs = [
        Irq(40 + q, f"eth0-TxRx-{q}", "PCI", "0", "0", 0, True, None, "eth0", [f"rx-{q}", f"tx-{q}"]) for q in range(4)
    ]
    tasks = [
        NetTask(
            100 + n, 1, "nginx", None, 1, "0-6", "0-6", 4 + n % 3, 0.1, 0.0,
            [RxPlacement("eth0", f"rx-{n}", 40 + n, 0, "rss", 4, 5e6, 1e6)],
        )
        for n in range(4)
    ]  # fmt: skip
    view = View(topology, Inventory([make_netdev(management=True)], irqs), tasks=tasks, time_s=0.0)
    costs = {40: 0.25, 41: 0.22, 42: 0.18, 43: 0.15}
    return Machine(view, [0.05] * 8, costs, {irq: 20_000 * cost for irq, cost in costs.items()}).loaded()


def recorded(machine: Machine, rounds: int) -> list[View]:
    return [replace(machine.view, time_s=ROUND_PERIOD_S * n) for n in range(rounds)]


def test_a_backtest_moves_interrupts_and_then_settles() -> None:
    found = backtest(recorded(server(), 30), SPREAD)
    assert len(found.evaluations) == 30
    moved = {action.key: action.becomes for c in found.evaluations for action in c.actions}
    assert moved == {"irq/40/affinity": "1", "irq/42/affinity": "2", "irq/43/affinity": "3"}
    assert found.moves == 3
    assert [len(evaluation.actions) for evaluation in found.evaluations[:3]] == [2, 1, 0]
    assert {evaluation.mode for evaluation in found.evaluations} == {Mode.ENFORCE}


def test_the_load_and_rx_placements_move_along_with_an_interrupt() -> None:
    before = server().view
    after = overlay(before, {"irq/40/affinity": "2"})
    assert after.inventory.irqs[0] == replace(before.inventory.irqs[0], requested="2", effective="2")
    assert IrqLoad(40, 2, 5000.0) in after.load.irqs
    assert len(after.load.irqs) == 4
    assert after.load.busy[:3] == pytest.approx([0.6, 0.05, 0.3])
    assert after.load.softirq[:3] == pytest.approx([0.55, 0.0, 0.25])
    assert [task.rx_placements[0].cpu for task in after.tasks] == [2, 0, 0, 0]


def test_an_interrupt_that_may_stay_stays() -> None:
    before = server().view
    after = overlay(before, {"irq/40/affinity": "0-3"})
    assert after.inventory.irqs[0] == replace(before.inventory.irqs[0], requested="0-3")
    assert after.load == before.load


def test_the_load_moves_along_with_a_process() -> None:
    machine = server()
    after = overlay(machine.view, {"task/100/affinity": "1"})
    assert (after.tasks[0].affinity, after.tasks[0].cpu) == ("1", 1)
    was, now = machine.view.load.busy, after.load.busy
    assert [round((b or 0) - (a or 0), 3) for a, b in zip(was, now, strict=True)] == [0, 0.1, 0, 0, -0.1, 0, 0, 0]


def test_without_settings_a_view_is_as_recorded() -> None:
    view = server().view
    assert overlay(view, {}) is view


@settings(max_examples=25, deadline=None)
@given(machines(max_cpus=64))
def test_an_overlay_preserves_arrivals_and_keeps_shares_in_bounds(machine: Machine) -> None:
    online = sorted(machine.view.topology.online())
    wanted = {f"irq/{irq.irq}/affinity": str(online[irq.irq % len(online)]) for irq in machine.view.inventory.irqs}
    after = overlay(machine.view, wanted)
    assert sum(c.per_s for c in after.load.irqs) == pytest.approx(sum(c.per_s for c in machine.view.load.irqs))
    assert {str(cell.cpu) for cell in after.load.irqs} <= set(wanted.values())
    assert all(share is None or 0 <= share <= 1 for share in [*after.load.busy, *after.load.softirq])


# A day of it

ROUNDS_A_DAY = 17_280
SETTLED_AFTER = 60
"""Five minutes."""


def perturbed(machine: Machine, random: Random, hour: float) -> View:
    """The view with load that swings with the time of day, trembles, and now and then leaps or stalls."""
    level = 0.75 + 0.25 * sin(hour * pi / 12)
    leap = 0.2 if random.random() < 0.01 else 0.0

    def tremble(share: float | None, by: float = 0.0) -> float | None:
        return None if share is None else min(1.0, max(0.0, share * level * random.uniform(0.9, 1.1) + by))

    load = machine.view.load
    tasks = [
        replace(
            task, idle_s=4.0 if random.random() < 0.02 else 0.0, cpu_share=task.cpu_share * random.uniform(0.8, 1.2)
        )
        for task in machine.view.tasks
    ]
    perturbed = replace(
        load,
        busy=[tremble(share, leap if cpu == 1 else 0.0) for cpu, share in enumerate(load.busy)],
        softirq=[tremble(share) for share in load.softirq],
        irqs=[replace(cell, per_s=cell.per_s * level * random.uniform(0.8, 1.2)) for cell in load.irqs],
    )
    return replace(machine.view, load=perturbed, tasks=tasks)


def test_a_day_of_fluctuating_load_neither_oscillates_nor_grows() -> None:
    random = Random(4)  # noqa: S311, a trace, not a secret
    policies = [replace(SPREAD, mode=Mode.ENFORCE), replace(PROCESS, mode=Mode.ENFORCE)]
    machine, memory = server(), EngineMemory()
    moved_at: list[int] = []
    sizes: list[int] = []
    for round_ in range(ROUNDS_A_DAY):
        view = perturbed(machine, random, round_ * ROUND_PERIOD_S / 3600)
        evaluations, memory = evaluate_round(view, policies, memory)
        actions = [action for evaluation in evaluations for action in evaluation.actions]
        for evaluation in evaluations:
            for action in evaluation.actions:
                memory = record_write(memory, evaluation.policy_id, action, view.time_s)
        machine = machine.after(actions) if actions else replace(machine, view=_later(machine.view))
        moved_at += [round_] * len(actions)
        if round_ % 720 == 0:
            sizes.append(len(msgspec.json.encode(memory)))
    assert moved_at, "nothing was done at all"
    assert [round_ for round_ in moved_at if round_ >= SETTLED_AFTER] == []
    assert max(sizes) <= 1.2 * sizes[1] < 10_000


def _later(view: View) -> View:
    return replace(view, time_s=view.time_s + ROUND_PERIOD_S)


def test_a_day_can_be_backtested_from_an_iterator() -> None:
    def views() -> Iterator[View]:
        view = server().view
        for _ in range(2_000):
            yield view
            view = _later(view)

    moves = [len(evaluations[0].actions) for evaluations in simulate_enforcement(views(), [SPREAD])]
    assert (sum(moves), sum(moves[3:])) == (3, 0)


# Views of a backtest: loads from recorded rates


def test_a_load_is_a_time_weighted_mean_and_softirq_includes_interrupts() -> None:
    load = mean_load(
        [
            make_rates(busy=[50, 100], softirq=[10, 0], irq=[10, 0]),
            make_rates(duration_s=3.0, busy=[10, 100], softirq=[0, 20], irq=[0, None]),
        ]
    )
    assert load.seconds == 4.0
    assert load.busy == [0.2, 1.0]
    assert load.softirq == [0.05, pytest.approx(0.15)]


def test_unknown_values_are_not_zero() -> None:
    load = mean_load(
        [
            make_rates(busy=[None, 50]),
            make_rates(busy=[None, None]),
        ]
    )
    expected = Load(
        seconds=2.0,
        busy=[None, 0.5],
        softirq=[None, None],
        busiest_cpu_percent=50.0,
        system=[None, None],
        steal=[None, None],
    )
    assert load == expected
    assert mean_load([]) == Load()
    assert mean_load([make_rates(duration_s=0.0, busy=[50])]) == Load()


def test_arrivals_are_a_rate_over_the_time_in_which_they_were_counted() -> None:
    timer = encode_irq_id("LOC") or 0
    load = mean_load(
        [
            make_rates(busy=[0, 0], cells=[(41, 0, 100), (timer, 0, 1000)]),
            make_rates(busy=[0, 0]),
            make_rates(duration_s=3.0, busy=[0, 0], cells=[(41, 0, 100), (42, 1, 8)]),
        ]
    )
    assert load.irqs == [IrqLoad(41, 0, 50.0), IrqLoad(42, 1, 2.0)]


def test_guardrail_metrics_are_means_too() -> None:
    dropped = [NetdevCounts("eth0", 0, 0, 0, 0, 3, 1, 0, 0)]
    load = mean_load(
        [
            make_rates(busy=[100, 0], tcp=TcpLatency(3, 10, 20, 100), netdevs=dropped),
            make_rates(duration_s=3.0, busy=[0, 50], tcp=TcpLatency(0, 0, 0, 0), netdevs=[]),
        ]
    )
    assert (load.rtt_p99_us, load.dropped_per_s, load.busiest_cpu_percent) == (100, 1.0, 62.5)
