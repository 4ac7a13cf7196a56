"""Cache of generated data that simulated nodes of the same kind share."""

import msgspec

from coresteer_agent.simulate.classes import SimulatedClasses
from coresteer_agent.simulate.interval import Interval, make_interval
from coresteer_agent.simulate.load import busiest_tasks
from coresteer_agent.simulate.machine import Machine
from coresteer_agent.simulate.net_tasks import net_tasks
from coresteer_core.cpuset import parse_cpu_list
from coresteer_core.node.inventory import Inventory
from coresteer_core.node.nic_model import TimerParams
from coresteer_core.node.rates import Rates
from coresteer_core.node.service_classes import ClassFigures
from coresteer_core.node.tasks import NetTask, Task
from coresteer_core.policies.coalescing.effective import ReceiveInterrupts, receive_interrupts
from coresteer_core.policies.service_class.policy import ServiceClasses

_MAX_INTERVALS = 20_000
_MAX_CLASSES = 256


class SimulationCache:
    """Caches generated intervals, tasks and service classes by machine and load. duration_s: of an interval."""

    def __init__(self, duration_s: float) -> None:
        self.duration_s = duration_s
        self._intervals: dict[tuple[str, str, tuple[int, ...], TimerParams | None, int, int, float], Interval] = {}
        self._interrupts: dict[tuple[str, bytes | None, bytes | None], ReceiveInterrupts] = {}
        self._tasks: dict[tuple[str, int, int], list[Task]] = {}
        self._classes: dict[tuple[bytes, int, int], SimulatedClasses] = {}
        self._net_tasks: dict[tuple[object, ...], list[NetTask]] = {}

    def interval(
        self,
        machine: Machine,
        placement: tuple[int, ...],
        wait: TimerParams | None,
        level: int,
        variant: int,
        *,
        cpu_factor: float = 1.0,
    ) -> Interval:
        """Return an interval's rates, generated on first use; the cache is cleared when it is full."""
        key = (machine.seed, machine.fault, placement, wait, level, variant, cpu_factor)
        if (interval := self._intervals.get(key)) is None:
            if len(self._intervals) >= _MAX_INTERVALS:
                self._intervals.clear()
            interval = self._intervals[key] = make_interval(
                machine, placement, level, variant, self.duration_s, wait=wait, cpu_factor=cpu_factor
            )
        return interval

    def receive_interrupts(self, machine: Machine, rates: Rates) -> ReceiveInterrupts:
        """Return the receive queues' interrupts in an interval, counted once for all nodes that share it."""
        key = (machine.seed, rates.irq_ids, rates.irq_counts)
        if (found := self._interrupts.get(key)) is None:
            if len(self._interrupts) >= _MAX_INTERVALS:
                self._interrupts.clear()
            found = self._interrupts[key] = receive_interrupts(rates, machine.inventory)
        return found

    def tasks(self, machine: Machine, level: int) -> list[Task]:
        """Return the processes with the most CPU time at a load level."""
        key = (machine.seed, len(machine.topology.cpus), level)
        if (tasks := self._tasks.get(key)) is None:
            tasks = self._tasks[key] = busiest_tasks(machine, level)
        return tasks

    def net_tasks(
        self,
        machine: Machine,
        inventory: Inventory,
        affinities: dict[int, str],
        level: int,
        params: dict[int, dict[str, str]],
    ) -> list[NetTask]:
        """Return the processes that use the network at a load level, with their RX placements."""
        values = sorted((pid, *item) for pid, named in params.items() for item in named.items())
        placed = (irq_target_cpus(inventory), *sorted(affinities.items()), None, *values)
        key = (machine.seed, machine.fault, len(machine.topology.cpus), level, placed)
        if (tasks := self._net_tasks.get(key)) is None:
            if len(self._net_tasks) >= _MAX_INTERVALS:
                self._net_tasks.clear()
            tasks = self._net_tasks[key] = net_tasks(machine, inventory, affinities, level, params=params)
        return tasks

    def class_figures(self, spec: ServiceClasses, variant: int, cpus: int, now_s: float) -> list[ClassFigures]:
        """Return the attainment of a policy's service classes, shared by all nodes with the same variant.

        now_s: Unix time, must not decrease.
        """
        key = (msgspec.json.encode(spec), variant, cpus)
        if (classes := self._classes.get(key)) is None:
            if len(self._classes) >= _MAX_CLASSES:
                self._classes.clear()
            classes = self._classes[key] = SimulatedClasses(spec, variant, cpus=cpus)
        return classes.figures(now_s)


def irq_target_cpus(inventory: Inventory) -> tuple[int, ...]:
    """Return the CPU that each interrupt is delivered to, in the order of inventory.irqs."""
    return tuple(min(parse_cpu_list(irq.effective or "0")) for irq in inventory.irqs)
