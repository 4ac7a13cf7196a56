"""What happens to a Machine between two rounds: CPUs and queues come and go, drivers reset, functions are handed over.

Each event does to interrupts, processes and settings what the kernel does, and returns the machine afterwards.
"""

from collections.abc import Callable
from random import Random
from typing import TypeAlias

from msgspec.structs import replace
from tests.core.policy_machines import Machine, first_cpu
from tests.support.views import make_netdev

from coresteer_core.cpuset import format_cpu_list, parse_cpu_list
from coresteer_core.node.inventory import Inventory, Irq, Netdev, Queue
from coresteer_core.node.tasks import NetTask, RxPlacement
from coresteer_core.node.topology import Topology

Step: TypeAlias = Callable[[Machine], Machine]
Event: TypeAlias = Callable[[Machine, Random], list[Step]]
"""Returns what happens to the machine before each of the rounds that the event takes."""


def unplug_cpus(machine: Machine, random: Random) -> list[Step]:
    """Take up to half of the CPUs offline."""
    online = sorted(machine.view.topology.online())
    away = frozenset(random.sample(online, random.randint(0, len(online) // 2)))
    return [lambda now: _with_topology(now, without_cpus(now.view.topology, away))]


def replug_cpus(machine: Machine, random: Random) -> list[Step]:
    """Take up to half of the CPUs offline, and bring them back some rounds later."""
    full = machine.view.topology
    rest = [_nothing] * random.randint(0, 8)
    return [*unplug_cpus(machine, random), *rest, lambda now: _with_topology(now, full)]


def change_channels(machine: Machine, random: Random) -> list[Step]:
    """Give a NIC another number of queues (ethtool -L): its interrupts get other numbers and the driver's affinity."""
    netdev, count = _any_nic(machine, random), random.randint(1, 16)
    return [lambda now: _reopened(now, netdev, count, random)] if netdev is not None else []


def reset_driver(machine: Machine, random: Random) -> list[Step]:
    """Restart a NIC: for a round or two it has neither queues nor interrupts, then all are as the driver sets them."""
    netdev = _any_nic(machine, random)
    if netdev is None:
        return []
    rest = [_nothing] * random.randint(0, 1)
    return [lambda now: _closed(now, netdev), *rest, lambda now: _reopened(now, netdev, _queues(netdev), random)]


def reset_driver_between_rounds(machine: Machine, random: Random) -> list[Step]:
    """Restart a NIC so fast that no round sees it without interrupts; these have the same numbers in another order."""
    netdev = _any_nic(machine, random)
    if netdev is None:
        return []
    return [lambda now: _reopened(now, netdev, _queues(netdev), random, same_irqs=True)]


def pass_function_through(machine: Machine, random: Random) -> list[Step]:
    """Hand a NIC to a virtual machine: its netdev is gone, and vfio-pci has interrupts that serve no netdev."""
    netdev = _any_nic(machine, random)
    return [lambda now: _passed_through(now, netdev, random)] if netdev is not None else []


EVENTS: dict[str, Event] = {
    "CPUs unplugged": unplug_cpus,
    "CPUs unplugged and plugged": replug_cpus,
    "another number of queues": change_channels,
    "driver reset": reset_driver,
    "fast driver reset": reset_driver_between_rounds,
    "function passed through": pass_function_through,
}


def with_functions(machine: Machine, random: Random) -> Machine:
    """The machine with SR-IOV functions of a NIC, some without interrupts of their own yet, and a bond over NICs."""
    netdev = _any_nic(machine, random)
    if netdev is None:
        return machine
    for n in range(random.randint(0, 3)):
        function = replace(netdev, name=f"{netdev.name}v{n}", driver="iavf", queues=[], management=False)
        inventory = machine.view.inventory
        added = replace(inventory, netdevs=[*inventory.netdevs, function])
        machine = replace(machine, view=replace(machine.view, inventory=added))
        if random.random() < 0.8:
            machine = _reopened(machine, function, random.randint(1, 4), random)
    return _with_bond(machine, random) if random.random() < 0.5 else machine.loaded()


def _with_bond(machine: Machine, random: Random) -> Machine:
    """Half of the processes receive over a bond; which of its NICs and queues is not known."""
    queues = [Queue(f"{kind}-{n}") for kind in ("rx", "tx") for n in range(random.choice([0, 16]))]
    inventory = machine.view.inventory
    nics = [netdev.name for netdev in inventory.netdevs if not netdev.virtual]
    bond = make_netdev("bond0", None, virtual=True, numa_node=None, queues=queues, lower=nics)
    tasks = [
        replace(
            task,
            rx_placements=[
                RxPlacement("bond0", None, None, None, None, each.sockets, each.rx_bytes_per_s, each.tx_bytes_per_s)
                for each in task.rx_placements
            ],
        )
        if random.random() < 0.5
        else task
        for task in machine.view.tasks
    ]
    changed = replace(inventory, netdevs=[*inventory.netdevs, bond])
    return replace(machine, view=replace(machine.view, inventory=changed, tasks=tasks)).loaded()


def _any_nic(machine: Machine, random: Random) -> Netdev | None:
    nics = [netdev for netdev in machine.view.inventory.netdevs if not netdev.virtual and netdev.queues]
    return random.choice(nics) if nics else None


def _queues(netdev: Netdev) -> int:
    return sum(queue.name.startswith("rx-") for queue in netdev.queues)


def _nothing(machine: Machine) -> Machine:
    return machine


def _free_number(inventory: Inventory) -> int:
    return max((irq.irq for irq in inventory.irqs), default=600) + 1


def _closed(machine: Machine, netdev: Netdev) -> Machine:
    """A NIC that is down: it has no queues and no interrupts (kernel: free_irq), and nothing arrives at it."""
    inventory = machine.view.inventory
    irqs = [irq for irq in inventory.irqs if irq.netdev != netdev.name]
    netdevs = [replace(each, queues=[]) if each.name == netdev.name else each for each in inventory.netdevs]
    tasks = [
        replace(
            task,
            rx_placements=[
                replace(each, queue=None, irq=None, cpu=None, how=None) if each.netdev == netdev.name else each
                for each in task.rx_placements
            ],
        )
        for task in machine.view.tasks
    ]
    inventory = replace(inventory, netdevs=netdevs, irqs=irqs)
    return replace(machine, view=replace(machine.view, inventory=inventory, tasks=tasks)).loaded()


def _passed_through(machine: Machine, netdev: Netdev, random: Random) -> Machine:
    gone = _closed(machine, netdev)
    inventory = gone.view.inventory
    home, first = random.choice(sorted(gone.view.topology.online())), _free_number(inventory)
    irqs = [
        Irq(first + n, f"vfio-msix[{n}](0000:03:10.0)", "PCI-MSI", str(home), str(home), None, True)
        for n in range(_queues(netdev))
    ]
    netdevs = [each for each in inventory.netdevs if each.name != netdev.name]
    inventory = replace(inventory, netdevs=netdevs, irqs=[*inventory.irqs, *irqs])
    costs = {irq.irq: random.uniform(0, 0.5) for irq in irqs}
    return _with_costs(replace(gone, view=replace(gone.view, inventory=inventory)), costs)


def _with_costs(machine: Machine, costs: dict[int, float]) -> Machine:
    """The machine with what its new interrupts cost."""
    per_s = {number: 10_000 * cost + 1 for number, cost in costs.items()}
    return replace(machine, irqs={**machine.irqs, **costs}, per_s={**machine.per_s, **per_s}).loaded()


def _reopened(machine: Machine, netdev: Netdev, count: int, random: Random, *, same_irqs: bool = False) -> Machine:
    """A NIC with queues added: their interrupts have the driver's affinity, and traffic arrives on them."""
    inventory = machine.view.inventory
    before = [irq.irq for irq in inventory.irqs if irq.netdev == netdev.name]
    closed = _closed(machine, netdev)
    online = sorted(machine.view.topology.online())
    wide = random.random() < 0.5
    numbers = [_free_number(inventory) + n for n in range(count)]
    if same_irqs and len(before) == count:
        numbers = random.sample(before, count)
    cpus = [online[n % len(online)] for n in range(count)]
    irqs = [
        Irq(
            number, f"{netdev.name}-TxRx-{n}", "PCI-MSI", format_cpu_list(online) if wide else str(cpu), str(cpu),
            netdev.numa_node, True, None, netdev.name, [f"rx-{n}", f"tx-{n}"],
        )
        for n, (number, cpu) in enumerate(zip(numbers, cpus, strict=True))
    ]  # fmt: skip
    queues = [Queue(name, irq.irq, "name") for irq in irqs for name in irq.queues]
    netdevs = [replace(each, queues=queues) if each.name == netdev.name else each for each in inventory.netdevs]
    changed = replace(closed.view.inventory, netdevs=netdevs, irqs=[*closed.view.inventory.irqs, *irqs])
    tasks = [replace(task, rx_placements=_arriving(task, netdev.name, irqs)) for task in machine.view.tasks]
    each_cost = min(0.9, sum(machine.irqs.get(number, 0.1) for number in before) / count)
    view = replace(closed.view, inventory=changed, tasks=tasks)
    return _with_costs(replace(closed, view=view), dict.fromkeys(numbers, each_cost))


def _arriving(task: NetTask, netdev: str, irqs: list[Irq]) -> list[RxPlacement]:
    """The placements of a process with those over a netdev at one of its queues each."""
    found = []
    for n, each in enumerate(task.rx_placements):
        irq = irqs[(task.pid + n) % len(irqs)]
        there = replace(each, queue=irq.queues[0], irq=irq.irq, cpu=first_cpu(irq.effective), how="rss")
        found.append(there if each.netdev == netdev else each)
    return found


def without_cpus(topology: Topology, away: frozenset[int]) -> Topology:
    """A topology with more CPUs offline."""

    def left(cpus: str) -> str:
        return format_cpu_list(parse_cpu_list(cpus) - away)

    return replace(
        topology,
        cpus=[
            replace(c, core=None, package=None, online=False, siblings="")
            if c.cpu in away
            else replace(c, siblings=left(c.siblings))
            for c in topology.cpus
        ],
        numa_nodes=[replace(node, cpus=left(node.cpus)) for node in topology.numa_nodes],
        caches=[replace(cache, cpus=left(cache.cpus)) for cache in topology.caches if left(cache.cpus)],
    )


def _with_topology(machine: Machine, topology: Topology) -> Machine:
    """The machine after hot-plug: what may run on no online CPU any more may run on all (kernel: migrate_one_irq in
    kernel/irq/cpuhotplug.c, select_fallback_rq in kernel/sched/core.c)."""
    online = topology.online()
    everything = format_cpu_list(online)
    irqs = []
    for irq in machine.view.inventory.irqs:
        may = parse_cpu_list(irq.requested or "") & online
        if irq.movable is False and not may:  # a managed one is shut down
            irqs.append(replace(irq, effective=None))
            continue
        requested = irq.requested if may else everything
        stays = first_cpu(irq.effective) in (may or online)
        irqs.append(replace(irq, requested=requested, effective=irq.effective if stays else str(min(may or online))))
    at = {irq.irq: first_cpu(irq.effective) for irq in irqs}
    tasks = []
    for task in machine.view.tasks:
        allowed = task.allowed if parse_cpu_list(task.allowed) & online else everything
        affinity = task.affinity if parse_cpu_list(task.affinity) & online else allowed
        rx_placements = [
            each if each.irq is None or (each.how == "rps" and each.cpu in online) else replace(each, cpu=at[each.irq])
            for each in task.rx_placements
        ]
        cpu = task.cpu if task.cpu in online else min(parse_cpu_list(affinity) & online)
        tasks.append(replace(task, allowed=allowed, affinity=affinity, cpu=cpu, rx_placements=rx_placements))
    inventory = replace(machine.view.inventory, irqs=irqs)
    return replace(machine, view=replace(machine.view, topology=topology, inventory=inventory, tasks=tasks)).loaded()
