"""Active interrupts: the CPUs they arrive on, the CPU time they cost there, and the CPUs they may move to."""

from collections.abc import Callable
from fnmatch import fnmatchcase

from msgspec import Struct

from coresteer_core.changes.guard import limits_refusal
from coresteer_core.cpuset import parse_cpu_list
from coresteer_core.node.inventory import Irq, Netdev
from coresteer_core.node.limits import Limits
from coresteer_core.node.view import View
from coresteer_core.policies.base import Scope
from coresteer_core.policies.skipped import Reason, ReasonText
from coresteer_core.settings.irq import IrqAffinity

MIN_BUSY_POINTS = 1.0
"""Minimum CPU use of an interrupt, in percentage points of a CPU, for a policy to move it because of its load."""

_SATURATED_PERCENT = 98.0
_UNKNOWN = ReasonText(
    "It arrives on {0:cpus}, whose load is not known.", "They arrive on {0:cpus}, whose load is not known."
)
_JUST_MOVED = ReasonText(
    "It was just moved from {0:cpus} to {1}; its load there is not known yet.",
    "They were just moved from {0:cpus}; their load on the new CPUs is not known yet.",
)


class ActiveIrq(Struct):
    """An interrupt that occurred in the last seconds, with the CPU time that it costs.

    cpu: the one where it occurs most. parts: percentage points of each CPU that it uses; cost: their sum; both as far
    as known. per_s: occurrences. followers: percentage points of processes bound to that CPU alone whose packets it
    receives; they move along with it. allowed: CPUs that it may use. alone: no other interrupt occurs on its CPU.
    blocked: why it cannot be moved, None where it can.
    """

    irq: Irq
    cpu: int
    parts: dict[int, float]
    cost: float
    per_s: float
    allowed: frozenset[int]
    alone: bool = False
    followers: float = 0.0
    blocked: Reason | str | None = None

    @property
    def busy(self) -> bool:
        """Return whether the interrupt uses enough CPU time to be worth a move."""
        return self.cost >= MIN_BUSY_POINTS

    @property
    def subject(self) -> str:
        """Return the interrupt's number and name for a sentence: ``IRQ 41 (eth0-rx-0)``."""
        return f"IRQ {self.irq.irq} ({self.irq.name})" if self.irq.name else f"IRQ {self.irq.irq}"

    @property
    def device(self) -> str:
        """Return the name of the interrupt's network device for a sentence."""
        return self.irq.netdev or "its device"


def active_irqs(view: View, scope: Scope, near: Callable[[int | None], frozenset[int]]) -> list[ActiveIrq]:
    """Return the interrupts in scope that occurred. near: maps a device's NUMA node to the CPUs they may use."""
    netdevs = {netdev.name: netdev for netdev in view.inventory.netdevs}
    all_softirq, all_busy = view.load.softirq, view.load.busy
    known = min(len(all_softirq), len(all_busy))
    by_irq: dict[int, dict[int, float]] = {}
    at_cpu: dict[int, float] = {}
    for cell in view.load.irqs:
        if cell.per_s > 0:
            cells = by_irq.setdefault(cell.irq, {})
            cells[cell.cpu] = cells.get(cell.cpu, 0.0) + cell.per_s
            at_cpu[cell.cpu] = at_cpu.get(cell.cpu, 0.0) + cell.per_s
    followers = _followers(view)
    inventory, everything = view.inventory, not scope.netdevs and not scope.drivers
    unlimited = inventory.limits == Limits()
    found = []
    for number, cells in by_irq.items():
        irq = inventory.irq(number)
        if irq is None or not (everything or _in_scope(irq, netdevs, scope)):
            continue
        netdev = netdevs.get(irq.netdev or "")
        home = irq.numa_node if netdev is None or netdev.numa_node is None else netdev.numa_node
        parts = {}
        for cpu, per_s in cells.items():
            softirq = all_softirq[cpu] if cpu < known else None
            if softirq is not None and all_busy[cpu] is not None:
                parts[cpu] = 100 * softirq * per_s / at_cpu[cpu]
        if len(cells) > 1:
            per_s, cpu = max((per_s, -cpu) for cpu, per_s in cells.items())
            cpu = -cpu
        alone = at_cpu[cpu] == per_s and len(cells) == 1
        each = ActiveIrq(irq, cpu, parts, sum(parts.values()), sum(cells.values()), near(home), alone)
        each.followers = followers.get((number, cpu), 0.0)
        limited = None if unlimited else limits_refusal(inventory, IrqAffinity(number))
        each.blocked = limited or _blocked(each)
        found.append(each)
    return found


def _followers(view: View) -> dict[tuple[int, int], float]:
    """Return by IRQ and CPU the percentage points of processes bound to that CPU alone that it has packets for."""
    online = view.topology.online()
    found: dict[tuple[int, int], float] = {}
    for task in view.tasks:
        total = sum(rx_placement.bytes_per_s for rx_placement in task.rx_placements)
        if not total or task.affinity == task.allowed:
            continue
        cpus = parse_cpu_list(task.affinity) & online
        if len(cpus) > 1:
            continue
        for rx_placement in task.rx_placements:
            if rx_placement.irq is not None and rx_placement.cpu in cpus:
                where = rx_placement.irq, rx_placement.cpu
                points = found.get(where, 0.0) + 100 * task.cpu_share * rx_placement.bytes_per_s / total
                found[where] = min(100.0, points)
    return found


def local_cpus_finder(view: View, allowed: frozenset[int], *, local: bool) -> Callable[[int | None], frozenset[int]]:
    """Return a function that maps a device's NUMA node to the allowed CPUs there, or on the nearest node with one.

    It returns all allowed CPUs where the node is not known, or if local is False.
    """
    of_node: dict[int, set[int]] = {}
    for cpu in view.topology.cpus:
        if cpu.cpu in allowed and cpu.numa_node is not None:
            of_node.setdefault(cpu.numa_node, set()).add(cpu.cpu)
    ids = sorted(node.id for node in view.topology.numa_nodes)
    nearest = {node: frozenset(cpus) for node, cpus in of_node.items()}
    distances = {node.id: dict(zip(ids, node.distances, strict=False)) for node in view.topology.numa_nodes}

    def near(home: int | None) -> frozenset[int]:
        if not local or home is None or not of_node:
            return allowed
        if home in nearest:
            return nearest[home]
        far = distances.get(home, {})
        return nearest[min(of_node, key=lambda node: (far.get(node, 255), node))]

    return near


class PendingMove(Struct, frozen=True):
    """A proposed move of an interrupt from one CPU to another, with the load of both before it, in percent."""

    origin: int
    target: int
    origin_percent: float
    target_percent: float


def correct_costs(
    found: list[ActiveIrq], load: dict[int, float], moving: dict[int, PendingMove], learned: dict[int, float]
) -> dict[int, float]:
    """Correct the CPU time of interrupts by what their moves showed; return the learned cost per occurrence by IRQ.

    A CPU's softirq time is divided among its interrupts by occurrences. That is wrong where one brings more packets
    than another, and a policy that relied on it would move an interrupt repeatedly. The learned cost is the load that
    the new CPU gained or the old one lost, the lesser of the two because other work may have changed as well, unless
    the old CPU is still saturated. Alone on a CPU the division is right. load: of the CPUs now, in percent. The costs
    in found are corrected in place.
    """
    learned = dict(learned)
    for each in found:
        number, cost = each.irq.irq, each.cost
        if not cost:
            continue
        move = moving.get(number)
        if move is not None and each.cpu == move.target:
            gain = load[each.cpu] - move.target_percent
            rest = load.get(move.origin, 0.0)
            shown = gain if rest >= _SATURATED_PERCENT else min(gain, move.origin_percent - rest)
            if shown > cost:
                learned[number] = max(shown / each.per_s, learned.get(number, 0.0))
        if each.alone:
            learned.pop(number, None)
        factor = learned.get(number, 0.0) * each.per_s / cost
        if factor > 1:
            each.parts = {cpu: part * factor for cpu, part in each.parts.items()}
            each.cost *= factor
    return learned


def _blocked(arriving: ActiveIrq) -> Reason | str | None:
    irq, cpu = arriving.irq, arriving.cpu
    if irq.movable is False:
        return irq.locked_reason or "The kernel manages its affinity."
    if irq.requested is None:
        return "Its affinity cannot be read."
    if cpu not in arriving.parts:
        return Reason(_UNKNOWN, ((cpu,),))
    if irq.requested != str(cpu) and cpu not in parse_cpu_list(irq.requested):
        return Reason(_JUST_MOVED, ((cpu,), irq.requested))
    if not arriving.allowed:
        return "No CPU may handle interrupts."
    return None


def _in_scope(irq: Irq, netdevs: dict[str, Netdev], scope: Scope) -> bool:
    """Return whether an interrupt's network device matches the netdevs and drivers of a scope."""
    netdev = netdevs.get(irq.netdev or "")
    if netdev is None:
        return False
    return _matches(netdev.name, scope.netdevs) and _matches(netdev.driver or "", scope.drivers)


def _matches(text: str, patterns: list[str]) -> bool:
    return not patterns or any(fnmatchcase(text, pattern) for pattern in patterns)
