"""A node as it would be with other settings: what later policies of a round see, and a replay."""

from msgspec.structs import replace

from coresteer_core.cpuset import parse_cpu_list
from coresteer_core.node.inventory import Irq, Netdev
from coresteer_core.node.load import IrqLoad, Load
from coresteer_core.node.receive import predict_received, receive_irqs, received, wait_of
from coresteer_core.node.tasks import NetTask, RxPlacement
from coresteer_core.node.view import View
from coresteer_core.settings import NetdevParam, QueueParam, parse_setting

_PACKETS = 300
"""Looked at for a ratio of interrupts: a replay asks for one at each of its views."""


def overlay(view: View, settings: dict[str, str]) -> View:
    """A view as it would be with other affinities of interrupts and processes and other params of netdevs.

    An interrupt or a process stays where it was seen if it may, else it is on the first CPU that it may be on. An
    interrupt takes its part of the softirq time along; a process of several threads takes one CPU's share at most from
    the CPU on which it was seen, as where the others run is not recorded. A netdev that waits longer or shorter
    interrupts as much less or more often as the model of its NIC has it; the CPUs' shares stay.
    """
    if not settings:
        return view
    netdevs = _netdevs(view, settings)
    shift = _Shift(view, _paces(view, netdevs))
    irqs = [shift.irq(irq, settings.get(f"irq/{irq.irq}/affinity")) for irq in view.inventory.irqs]
    tasks = [shift.task(task, settings.get(f"task/{task.pid}/affinity")) for task in view.tasks]
    return replace(view, inventory=replace(view.inventory, irqs=irqs, netdevs=netdevs), tasks=tasks, load=shift.load())


def _netdevs(view: View, settings: dict[str, str]) -> list[Netdev]:
    """The netdevs with params as they would stand, their queues' too; those without a change as they are."""
    changed: dict[tuple[str, str | None], dict[str, str]] = {}
    for key, value in settings.items():
        if key.startswith("netdev/") and isinstance(setting := parse_setting(key), NetdevParam | QueueParam):
            queue = setting.queue_name if isinstance(setting, QueueParam) else None
            changed.setdefault((setting.netdev, queue), {})[setting.param] = value
    names = {name for name, _ in changed}
    return [
        netdev
        if netdev.name not in names
        else replace(
            netdev,
            params=netdev.params | changed.get((netdev.name, None), {}),
            queues=[
                replace(queue, params=queue.params | more)
                if (more := changed.get((netdev.name, queue.name)))
                else queue
                for queue in netdev.queues
            ],
        )
        for netdev in view.inventory.netdevs
    ]


def _paces(view: View, netdevs: list[Netdev]) -> dict[int, float]:
    """How many times as often as seen interrupts of netdevs arrive that wait differently now, by IRQ.

    Before, where the driver set its own pace, what was measured stands; with its own pace now, nothing is known.
    """
    paces: dict[int, float] = {}
    for before, after in zip(view.inventory.netdevs, netdevs, strict=True):
        was, wait = wait_of(before.driver, before.params), wait_of(after.driver, after.params)
        traffic = received(view.inventory, view.load, before) if wait is not None and wait != was else None
        if wait is None or traffic is None or not traffic.interrupts_per_s:
            continue
        seen = traffic.interrupts_per_s
        if was is not None:
            seen = predict_received(before, traffic, was, packets=_PACKETS).interrupts_per_s
        if not seen:
            continue  # the model says that what was measured could not be
        pace = predict_received(after, traffic, wait, packets=_PACKETS).interrupts_per_s / seen
        paces |= dict.fromkeys(receive_irqs(view.inventory, before), pace)
    return paces


class _Shift:
    """Load on its way to other CPUs."""

    def __init__(self, view: View, paces: dict[int, float]) -> None:
        self._load = view.load
        self._paces = paces
        self._online = view.topology.online()
        self._busy = list(view.load.busy)
        self._softirq = list(view.load.softirq)
        self._cells = {(cell.irq, cell.cpu): cell.per_s for cell in view.load.irqs}
        self._at_cpu: dict[int, float] = {}
        for cell in view.load.irqs:
            self._at_cpu[cell.cpu] = self._at_cpu.get(cell.cpu, 0.0) + cell.per_s
        self._landed: dict[int, int] = {}

    def irq(self, irq: Irq, value: str | None) -> Irq:
        """An interrupt with an affinity; its load follows."""
        if value is None or value == irq.requested:
            return irq
        may = parse_cpu_list(value) & self._online
        if not may:
            return replace(irq, requested=value)
        stays = may & parse_cpu_list(irq.effective or irq.requested or "")
        target = min(stays or may)
        self._landed[irq.irq] = target
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
        """A process with an affinity; its load follows, and its flows where their interrupts went."""
        rx_placements = task.rx_placements
        if self._landed and any(rx_placement.irq in self._landed for rx_placement in rx_placements):
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

    def load(self) -> Load:
        """The load where it went; the shares of a CPU within 0 and 1."""
        paces = self._paces
        cells = [IrqLoad(irq, cpu, per_s * paces.get(irq, 1.0)) for (irq, cpu), per_s in sorted(self._cells.items())]
        return replace(self._load, busy=_bounded(self._busy), softirq=_bounded(self._softirq), irqs=cells)

    def _rx_placement(self, rx_placement: RxPlacement) -> RxPlacement:
        target = self._landed.get(rx_placement.irq) if rx_placement.irq is not None else None
        return (
            replace(rx_placement, cpu=target)
            if target is not None and rx_placement.how in ("rss", "queue")
            else rx_placement
        )


def _add(column: list[float | None], cpu: int, part: float) -> None:
    if cpu < len(column) and (share := column[cpu]) is not None:
        column[cpu] = share + part


def _bounded(column: list[float | None]) -> list[float | None]:
    return [None if share is None else min(1.0, max(0.0, share)) for share in column]
