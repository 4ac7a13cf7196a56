"""Quality of network-process, and CPU time of a round of both policies on a large machine.

    python -m tests.bench.bench_policies [--rounds 31]

Quality: cost compared with an exhaustive search on small cases, traffic placed on 256 CPUs compared with the maximum of
any assignment (tests/core/placement.py says what cost, constraint and bounds are). Time: engine.evaluate_round with 256
CPUs, 600 interrupts and 500 processes, each policy alone and both, in the first round and once settled: medians of CPU
time, as other work on the machine would be measured otherwise. coalescing on 8 netdevs of 64 queues, in its first round
and once it judges and keeps what it set. flow-steering on a NIC of 64 queues with 500 processes and 2,000 heavy flows,
at first, while rules and RSS entries are given, and once settled. Exits with 1 when a settled round is over its budget,
or any of flow-steering. Budgets are longer where a fixed computation takes longer at the moment.
"""

import argparse
import statistics
import sys
import time
from random import Random

from msgspec import Struct
from tests.core.placement import best_cost, chosen, large_case, large_topology, most_placed, small_case
from tests.core.policy_machines import Machine
from tests.core.steering_plant import Nic, Plant, Process, spread_flows
from tests.support.slowdown import slowdown

from coresteer_core.node.inventory import Inventory, Irq, Netdev, Queue
from coresteer_core.node.load import IrqLoad, Load, NetdevLoad
from coresteer_core.node.tasks import NetTask, RxPlacement
from coresteer_core.node.topology import Topology
from coresteer_core.node.view import View
from coresteer_core.policies import Spec
from coresteer_core.policies.base import ROUND_PERIOD_S, Damping, Mode, Scope
from coresteer_core.policies.coalescing.policy import CoalescingMemory, decide
from coresteer_core.policies.coalescing.spec import Coalescing
from coresteer_core.policies.engine import evaluate_round
from coresteer_core.policies.engine_state import EngineMemory, PolicyInForce, record_write
from coresteer_core.policies.flow_steering.memory import FlowSteeringMemory
from coresteer_core.policies.flow_steering.policy import decide as steer
from coresteer_core.policies.flow_steering.spec import FlowSteering
from coresteer_core.policies.irq_spread.policy import IrqSpread
from coresteer_core.policies.network_process.policy import NetworkProcess

BUDGET_MS = 5.0
COALESCING_BUDGET_MS = 1.0
_CPUS, _IRQS, _TASKS, _QUEUES = 256, 600, 500, 64
_MOST_ROUNDS = 60
_STEERING_ROUNDS = 90


class Figure(Struct):
    """CPU time per round, ms. rounds: until nothing more was written, None if that was not reached."""

    first_ms: float
    settled_ms: float
    rounds: int | None


def large_machine(random: Random, talking: float) -> Machine:
    """Return a view with four NICs of 64 queues, NVMe interrupts, and this share of processes with traffic."""
    irqs: list[Irq] = []
    netdevs = []
    for n in range(4):
        name = f"eth{n}"
        queues = []
        for q in range(_QUEUES):
            number, cpu = 100 + len(irqs), n * 32 + q // 2
            irqs.append(
                Irq(number, f"{name}-rx-{q}", "PCI", str(cpu), str(cpu), n, True, None, name, [f"rx-{q}"]),
            )
            queues.append(Queue(f"rx-{q}", number))
        netdevs.append(Netdev(name, "mlx5_core", 10**11, 1500, n, True, virtual=False, management=False, queues=queues))
    nics = list(irqs)
    irqs += [
        Irq(1000 + n, f"nvme0q{n}", "PCI", str(n % _CPUS), str(n % _CPUS), None, False)
        for n in range(_IRQS - len(nics))
    ]
    everywhere = f"0-{_CPUS - 1}"
    tasks = []
    for pid in range(1000, 1000 + _TASKS):
        per_s = random.uniform(1e6, 1e8) if random.random() < talking else 1e3
        rx_placements = [
            RxPlacement(irq.netdev or "", irq.queues[0], irq.irq, int(irq.effective or 0), "rss", 1, per_s, per_s / 50)
            for irq in random.sample(nics, random.choice([1, 1, 2, 4]))
        ]
        threads, share = random.choice([1, 1, 1, 4]), random.uniform(0.02, 0.3)
        cpu = random.randrange(_CPUS)
        tasks.append(
            NetTask(pid, pid, "nginx", "/web.slice", threads, everywhere, everywhere, cpu, share, 0.1, rx_placements)
        )
    costs = {irq.irq: random.uniform(0, 0.1) if irq.netdev else 0.001 for irq in irqs}
    view = View(large_topology(), Inventory(netdevs, irqs), tasks=tasks, time_s=1000.0)
    return Machine(view, [random.uniform(0, 0.2)] * _CPUS, costs, dict.fromkeys(costs, 1000.0)).loaded()


def _median_ms(machine: Machine, policies: list[PolicyInForce], memory: EngineMemory, rounds: int) -> float:
    taken = []
    for _ in range(rounds):
        view = View(machine.view.topology, machine.view.inventory, machine.view.load, machine.view.tasks, 1e6)
        begin = time.thread_time()
        evaluate_round(view, policies, memory)
        taken.append(time.thread_time() - begin)
    return statistics.median(taken) * 1000


def measure(machine: Machine, specs: list[Spec], rounds: int) -> Figure:
    """Enforce policies until nothing moves; 64 moves per round, so that this is reached soon."""
    damping = Damping(moves_per_step=64, dwell_s=0.0)
    policies = [
        PolicyInForce(str(rank), 1, str(rank), rank, Mode.ENFORCE, spec, damping=damping)
        for rank, spec in enumerate(specs)
    ]
    memory = EngineMemory()
    first_ms = _median_ms(machine, policies, memory, rounds)
    settled = None
    for count in range(_MOST_ROUNDS):
        evaluations, memory = evaluate_round(machine.view, policies, memory)
        for evaluation in evaluations:
            for action in evaluation.actions:
                memory = record_write(memory, evaluation.policy_id, action, machine.view.time_s)
        actions = [action for evaluation in evaluations for action in evaluation.actions]
        if not actions:
            settled = count
            break
        machine = machine.after(actions)
    return Figure(first_ms, _median_ms(machine, policies, memory, rounds), settled)


def quality() -> None:
    """Print the quality of placements."""
    cases = [small_case(Random(seed)) for seed in range(1000)]  # noqa: S311, cases, not secrets
    pairs = [(case.cost(chosen(case)), best_cost(case)) for case in cases]
    best = sum(found <= best + 1e-9 for found, best in pairs)
    ratio = sum(found for found, _ in pairs) / sum(least for _, least in pairs)
    worst = max(found - least for found, least in pairs)
    print(f"{len(cases)} small cases (up to 8 CPUs, 6 processes) against every assignment:")
    print(f"  cost {ratio:.3f} times the least; {best / len(pairs):.1%} are the best; the worst is {worst:.2f} further")
    shares = []
    for seed in range(20):
        case = large_case(Random(seed))  # noqa: S311, a case, not a secret
        where = chosen(case)
        shares.append(sum(t.rate for t in case.candidates if t.task.pid in where) / most_placed(case))
    print("20 large cases (256 CPUs, 500 processes of equal shares) against the most traffic that can be seated:")
    print(f"  mean {statistics.mean(shares):.3f}, least {min(shares):.3f}; the bound for greedy is 0.5")


def many_nics(rx_usecs: int, interrupts_per_s: float) -> View:
    """Return a view with eight NICs of 64 queues that receive a million packets per second each."""
    irqs, netdevs, loads = [], [], []
    for n in range(8):
        queues = [Queue(f"rx-{q}", 100 + 64 * n + q) for q in range(64)]
        irqs += [
            Irq(q.irq or 0, f"eth{n}-{q.name}", "PCI", "0", "0", None, True, None, f"eth{n}", [q.name]) for q in queues
        ]
        params = {"coalesce/rx-usecs": str(rx_usecs), "coalesce/adaptive-rx": "off", "ring/rx": "1024"}
        netdevs.append(Netdev(f"eth{n}", "ice", 10**11, 1500, None, True, False, False, queues, params=params))
        loads.append(NetdevLoad(f"eth{n}", 1e6, 1.5e9, 1e4, 1e6, 0.0))
    cells = [IrqLoad(irq.irq, 0, interrupts_per_s) for irq in irqs]
    return View(
        Topology([], [], []), Inventory(netdevs, irqs), Load(ROUND_PERIOD_S, irqs=cells, netdevs=loads, rtt_p50_us=300)
    )


def coalescing(rounds: int) -> bool:
    """Print the cost of rounds that propose and that change nothing; return whether they exceed the budget."""
    spec = Coalescing(max_added_us=2000.0)
    first, later = many_nics(20, 8000.0), many_nics(1200, 900.0)
    memory = CoalescingMemory()
    figures = []
    factor = slowdown()
    for view in (first, later):
        taken = []
        for _ in range(rounds):
            again = View(view.topology, Inventory(view.inventory.netdevs, view.inventory.irqs), view.load)
            begin = time.thread_time()
            decision = decide(again, spec, Scope(), memory)
            taken.append(time.thread_time() - begin)
            if view is later:
                memory = decision.memory if isinstance(decision.memory, CoalescingMemory) else memory
        memory = decision.memory if isinstance(decision.memory, CoalescingMemory) else memory
        figures.append(statistics.median(taken) * 1000)
    factor = max(factor, slowdown())
    print(f"coalescing, 8 netdevs of 64 queues, CPU time, budget {COALESCING_BUDGET_MS} ms × {factor:.1f}:")
    print(f"  proposing {figures[0]:.2f} ms  then {figures[1]:.2f} ms")
    return max(figures) > COALESCING_BUDGET_MS * factor


def steering(rounds: int) -> bool:
    """Print the cost of rounds of flow-steering; return whether one exceeds the budget."""
    random = Random(1)  # noqa: S311, a machine, not a secret
    pids = range(1000, 1000 + _TASKS)
    nic = Nic("eth0", [4 * n for n in range(_QUEUES)], [n % _QUEUES for n in range(512)], slots=1024)
    processes = [Process(pid, pid * 7 % _CPUS, str(pid * 7 % _CPUS), 0.05) for pid in pids]
    plant = Plant(large_topology(), [nic], processes, spread_flows(random, list(pids), 2000, 2e6))
    memory, spec = FlowSteeringMemory(), FlowSteering(max_rules=64)
    figures: dict[str, list[float]] = {}
    factor = slowdown()
    print(
        f"flow-steering, {_CPUS} CPUs × {_QUEUES} queues × 2,000 flows, CPU time, budget {BUDGET_MS} ms × {factor:.1f}:"
    )
    for number in range(_STEERING_ROUNDS):
        view = plant.view()
        taken = []
        for _ in range(rounds if number in (0, _STEERING_ROUNDS - 1) else 3):
            again = View(view.topology, view.inventory, view.load, view.tasks, view.time_s)
            begin = time.thread_time()
            decision = steer(again, spec, Scope(), memory)
            taken.append(time.thread_time() - begin)
        memory = decision.memory if isinstance(decision.memory, FlowSteeringMemory) else memory
        plant.apply((proposal.key, proposal.value) for proposal in decision.proposals)
        moves = any("rps" not in proposal.key for proposal in decision.proposals)
        state = "first" if number == 0 else "moving" if moves else "settled"
        figures.setdefault(state, []).append(statistics.median(taken) * 1000)
    medians = {state: statistics.median(each) for state, each in figures.items()}
    print("  " + "  ".join(f"{state} {figure:.2f} ms" for state, figure in medians.items()))
    return max(medians.values()) > BUDGET_MS * max(factor, slowdown())


def main() -> int:
    """Print all results."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=31, help="of which the median is taken")
    rounds = parser.parse_args().rounds
    quality()
    print(
        f"Round, {_CPUS} CPUs, {_IRQS} interrupts, {_TASKS} processes, CPU time, budget {BUDGET_MS} ms a policy "
        "× the machine's slowdown:"
    )
    over = False
    both: list[tuple[str, list[Spec]]] = [
        ("irq-spread", [IrqSpread()]),
        ("network-process", [NetworkProcess()]),
        ("both", [IrqSpread(), NetworkProcess()]),
    ]
    for talking in (0.1, 1.0):
        for name, specs in both:
            machine = large_machine(Random(1), talking)  # noqa: S311, a machine, not a secret
            factor = slowdown()
            figure = measure(machine, specs, rounds)
            factor = max(factor, slowdown())
            over |= figure.settled_ms > BUDGET_MS * len(specs) * factor
            after = "not settled" if figure.rounds is None else f"settled after {figure.rounds} rounds"
            times = f"first {figure.first_ms:6.2f} ms  then {figure.settled_ms:6.2f} ms"
            print(f"  {talking:4.0%} talk  {name:16} {times}  × {factor:.1f}  {after}")
    over |= steering(rounds)
    return coalescing(rounds) or over


if __name__ == "__main__":
    sys.exit(main())
