"""ModifiedView: compute a View of a node as it would be with other settings, its load included."""

from collections.abc import Mapping

from msgspec.structs import replace

from coresteer_core.cpuset import parse_cpu_list
from coresteer_core.node.inventory import Inventory, Irq, Netdev
from coresteer_core.node.load import IrqLoad, Load
from coresteer_core.node.numa import NumaState, NumaTask
from coresteer_core.node.receive import predict_received, receive_irqs, received_traffic, timer_params
from coresteer_core.node.tasks import NetTask, RxPlacement
from coresteer_core.node.view import View
from coresteer_core.settings.steered_flows import RFS_TABLE, steer_flows, with_contexts, with_rules

_PACKETS = 300
"""Packets to simulate for a ratio of interrupt rates; few, as a backtest simulates once for each view."""


class ModifiedView:
    """A View and new values of settings; build() returns the View as it would be with these values.

    An interrupt or a process stays on its CPU if that is still allowed, else it moves to the first allowed CPU. An
    interrupt takes its part of the softirq time along. A process with several threads takes at most one CPU's share
    from its CPU, as the CPUs of its other threads are not recorded. The interrupt rate of a netdev whose
    coalescing changes follows the model of its NIC; the CPUs' shares stay.
    """

    def __init__(self, view: View) -> None:
        self._view = view
        self._irqs: dict[int, str] = {}
        self._tasks: dict[int, str] = {}
        self._params: dict[tuple[str, str | None], dict[str, str]] = {}
        self._machine: dict[str, str] = {}
        self._memory: dict[int, Mapping[int, float]] = {}
        self._rules: dict[str, dict[int, str]] = {}
        self._tables: dict[str, str] = {}
        self._contexts: dict[str, dict[int, str]] = {}
        self._xps: dict[tuple[str, str], str] = {}

    def set_irq_affinity(self, irq: int, cpus: str) -> None:
        """Set the affinity of an interrupt. cpus: a CPU list."""
        self._irqs[irq] = cpus

    def set_task_affinity(self, pid: int, cpus: str) -> None:
        """Set the affinity of all threads of a process. cpus: a CPU list."""
        self._tasks[pid] = cpus

    def set_memory_shares(self, pid: int, shares: Mapping[int, float]) -> None:
        """Let a process have its memory on NUMA nodes, with shares that add up to 1."""
        self._memory[pid] = shares

    def set_param(self, netdev: str, queue_name: str | None, name: str, value: str) -> None:
        """Set a parameter of a netdev, or of one of its queues (queue_name ``rx-3``; None: of the netdev)."""
        self._params.setdefault((netdev, queue_name), {})[name] = value

    def set_machine_value(self, key: str, value: str) -> None:
        """Set the value of a setting of the machine as a whole, such as ``kernel/numa_balancing``."""
        self._machine[key] = value

    def set_flow_rule(self, netdev: str, location: int, value: str) -> None:
        """Set the flow rule in a slot of a netdev, or delete it (an empty value)."""
        self._rules.setdefault(netdev, {})[location] = value

    def set_rss(self, netdev: str, value: str) -> None:
        """Set the RSS table of a netdev. value: its pattern of queues."""
        self._tables[netdev] = value

    def set_rss_context(self, netdev: str, number: int, value: str) -> None:
        """Set the table of an RSS context of a netdev, or delete the context (an empty value)."""
        self._contexts.setdefault(netdev, {})[number] = value

    def set_xps(self, netdev: str, queue_name: str, cpus: str) -> None:
        """Set the CPUs that send by a transmit queue (``tx-3``). cpus: a CPU list."""
        self._xps[netdev, queue_name] = cpus

    def build(self) -> View:
        """Return the View with the new values, and with the load that interrupts and processes take along."""
        inventory = self._view.inventory
        netdevs = self._netdevs(inventory)
        shift = _Shift(self._view, _rate_factors(self._view, netdevs))
        irqs = [shift.irq(irq, self._irqs.get(irq.irq)) for irq in inventory.irqs]
        tasks = [shift.task(task, self._tasks.get(task.pid)) for task in self._view.tasks]
        settings = inventory.settings | self._machine
        inventory = replace(inventory, irqs=irqs, netdevs=netdevs, settings=settings)
        if steered := self._steered(inventory):
            tasks = steer_flows(tasks, inventory, steered)
        numa = self._numa(shift)
        return replace(self._view, inventory=inventory, tasks=tasks, load=shift.load(), numa=numa)

    def _numa(self, shift: "_Shift") -> NumaState | None:
        numa = self._view.numa
        if numa is None or not (self._tasks or self._memory):
            return numa
        known = {task.pid for task in self._view.tasks}
        nodes = self._view.topology.nodes
        tasks = []
        for before in numa.tasks:
            task = before
            if (cpus := self._tasks.get(task.pid)) is not None:
                task = shift.numa_task(task, cpus, nodes, moves_load=task.pid not in known)
            if (shares := self._memory.get(task.pid)) is not None and task.bytes_by_node is not None:
                total = sum(task.bytes_by_node.values())
                task = replace(task, bytes_by_node={node: round(share * total) for node, share in shares.items()})
            tasks.append(task)
        return replace(numa, tasks=tasks)

    def _steered(self, inventory: Inventory) -> dict[str, Netdev]:
        """Return the netdevs whose flow rules, RSS table or RFS change."""
        rfs = {netdev for (netdev, _), params in self._params.items() if "rps_flow_cnt" in params}
        names = rfs | self._rules.keys() | self._tables.keys()
        return {n.name: n for n in inventory.netdevs if RFS_TABLE in self._machine or n.name in names}

    def _netdevs(self, inventory: Inventory) -> list[Netdev]:
        names = {name for name, _ in (*self._params, *self._xps)}
        names |= self._rules.keys() | self._tables.keys() | self._contexts.keys()
        return [self._netdev(netdev) if netdev.name in names else netdev for netdev in inventory.netdevs]

    def _netdev(self, netdev: Netdev) -> Netdev:
        queues = [
            replace(
                queue,
                params=queue.params | self._params.get((netdev.name, queue.name), {}),
                xps=self._xps.get((netdev.name, queue.name), queue.xps),
            )
            for queue in netdev.queues
        ]
        return replace(
            netdev,
            params=netdev.params | self._params.get((netdev.name, None), {}),
            queues=queues,
            rss=self._tables.get(netdev.name, netdev.rss),
            flow_rules=with_rules(netdev.flow_rules, self._rules.get(netdev.name, {})),
            rss_contexts=with_contexts(netdev.rss_contexts, self._contexts.get(netdev.name, {})),
        )


def _rate_factors(view: View, netdevs: list[Netdev]) -> dict[int, float]:
    """Return for each IRQ of a netdev whose coalescing changes the predicted factor of its interrupt rate.

    Where the driver adapted coalescing before, the measured rate is the base; where it adapts it now, the factor is
    unknown and left out.
    """
    factors: dict[int, float] = {}
    for before, after in zip(view.inventory.netdevs, netdevs, strict=True):
        was, wait = timer_params(before.driver, before.params), timer_params(after.driver, after.params)
        traffic = received_traffic(view.inventory, view.load, before) if wait is not None and wait != was else None
        if wait is None or traffic is None or not traffic.interrupts_per_s:
            continue
        base = traffic.interrupts_per_s
        if was is not None:
            base = predict_received(before, traffic, was, packets=_PACKETS).interrupts_per_s
        if not base:
            continue  # the model contradicts the measurement
        factor = predict_received(after, traffic, wait, packets=_PACKETS).interrupts_per_s / base
        factors |= dict.fromkeys(receive_irqs(view.inventory, before), factor)
    return factors


class _Shift:
    """Load of the CPUs while interrupts and processes move between them."""

    def __init__(self, view: View, factors: dict[int, float]) -> None:
        self._load = view.load
        self._factors = factors
        self._online = view.topology.online()
        self._busy = list(view.load.busy)
        self._softirq = list(view.load.softirq)
        self._cells = {(cell.irq, cell.cpu): cell.per_s for cell in view.load.irqs}
        self._at_cpu: dict[int, float] = {}
        for cell in view.load.irqs:
            self._at_cpu[cell.cpu] = self._at_cpu.get(cell.cpu, 0.0) + cell.per_s
        self._moved_to: dict[int, int] = {}

    def irq(self, irq: Irq, value: str | None) -> Irq:
        """Return an interrupt with a new affinity (None: unchanged), and move its load with it."""
        if value is None or value == irq.requested:
            return irq
        may = parse_cpu_list(value) & self._online
        if not may:
            return replace(irq, requested=value)
        stays = may & parse_cpu_list(irq.effective or irq.requested or "")
        target = min(stays or may)
        self._moved_to[irq.irq] = target
        for number, cpu in [cell for cell in self._cells if cell[0] == irq.irq and cell[1] not in may]:
            per_s = self._cells.pop((number, cpu))
            self._cells[number, target] = self._cells.get((number, target), 0.0) + per_s
            softirq = self._load.softirq[cpu] if cpu < len(self._load.softirq) else None
            if softirq is not None and per_s > 0:
                part = softirq * per_s / self._at_cpu[cpu]
                for column in (self._busy, self._softirq):
                    _add(column, cpu, -part)
                    _add(column, target, part)
        return replace(irq, requested=value, effective=str(target))

    def task(self, task: NetTask, value: str | None) -> NetTask:
        """Return a process with a new affinity (None: unchanged), and move its load with it.

        Its flows follow their interrupts.
        """
        rx_placements = task.rx_placements
        if self._moved_to and any(rx_placement.irq in self._moved_to for rx_placement in rx_placements):
            rx_placements = [self._rx_placement(rx_placement) for rx_placement in rx_placements]
        may = parse_cpu_list(value) & self._online if value is not None else frozenset[int]()
        if value is None or value == task.affinity or not may:
            return task if rx_placements is task.rx_placements else replace(task, rx_placements=rx_placements)
        cpu = task.cpu if task.cpu in may else min(may)
        if cpu != task.cpu:
            part = min(task.cpu_share, 1.0)
            _add(self._busy, task.cpu, -part)
            _add(self._busy, cpu, part)
        return replace(task, affinity=value, cpu=cpu, rx_placements=rx_placements)

    def numa_task(self, task: NumaTask, value: str, nodes: Mapping[int, int | None], *, moves_load: bool) -> NumaTask:
        """Return a process with an affinity and its CPU time on these CPUs' NUMA nodes, evenly. nodes: by CPU."""
        may = parse_cpu_list(value) & self._online
        if not may or value == task.affinity:
            return task
        cpu = task.cpu if task.cpu in may else min(may)
        if moves_load and cpu != task.cpu:
            part = min(task.cpu_share, 1.0)
            _add(self._busy, task.cpu, -part)
            _add(self._busy, cpu, part)
        cpu_nodes: dict[int, float] = {}
        for each in may:
            node = nodes.get(each)
            if node is not None:
                cpu_nodes[node] = cpu_nodes.get(node, 0.0) + task.cpu_share / len(may)
        return replace(task, affinity=value, cpu=cpu, cpu_nodes=cpu_nodes)

    def load(self) -> Load:
        """Return the node's load after all interrupts and processes have moved."""
        factors = self._factors
        cells = [IrqLoad(irq, cpu, per_s * factors.get(irq, 1.0)) for (irq, cpu), per_s in sorted(self._cells.items())]
        return replace(self._load, busy=_bounded(self._busy), softirq=_bounded(self._softirq), irqs=cells)

    def _rx_placement(self, rx_placement: RxPlacement) -> RxPlacement:
        target = self._moved_to.get(rx_placement.irq) if rx_placement.irq is not None else None
        return (
            replace(rx_placement, cpu=target)
            if target is not None and rx_placement.how in ("rss", "rule", "queue")
            else rx_placement
        )


def _add(column: list[float | None], cpu: int, part: float) -> None:
    if cpu < len(column) and (share := column[cpu]) is not None:
        column[cpu] = share + part


def _bounded(column: list[float | None]) -> list[float | None]:
    return [None if share is None else min(1.0, max(0.0, share)) for share in column]
