"""Move an interrupt near the process that receives its packets, where the process must not move."""

from collections.abc import Callable, Mapping

from msgspec.structs import replace

from coresteer_core.cpuset import parse_cpu_list
from coresteer_core.node.distance import LOCALITY_NAME
from coresteer_core.node.inventory import Irq
from coresteer_core.node.tasks import NetTask
from coresteer_core.node.view import View
from coresteer_core.policies.base import Proposal
from coresteer_core.policies.network_process.capacity import CpuCapacity, PacketShares
from coresteer_core.policies.network_process.memory import PlacedAffinity
from coresteer_core.settings import parse_setting

MIN_BYTE_SHARE = 0.5
"""Share of an interrupt's bytes that a process must exceed for the interrupt to move to it."""


class IrqMover:
    """Interrupt moves of one round; each reserves capacity on its new CPU.

    before: the affinities that the policy has set or proposed before, by key.
    """

    def __init__(self, view: View, capacity: CpuCapacity, before: Mapping[str, PlacedAffinity]) -> None:
        self.view = view
        self.capacity = capacity
        self.moved: set[int] = set()
        self._placed = [placed for key, placed in before.items() if parse_setting(key).interrupt is not None]

    def propose(
        self, task: NetTask, covers: Callable[[str], bool] | None, last_s: float
    ) -> tuple[Proposal, PlacedAffinity] | str:
        """Return the move of an interrupt near a process, and the affinity to remember; or a sentence why none moves.

        covers: which netdevs are in scope (None: all). last_s: view time of the process's last traffic.
        """
        who = (task.pid, task.started_ticks)
        placed = next((each for each in self._placed if (each.pid, each.started_ticks) == who), None)
        found = self.move_to(task, covers, None if placed is None else parse_cpu_list(placed.value))
        if isinstance(found, str):
            return found
        irq, cpu, reason = found
        key, value = f"irq/{irq.irq}/affinity", str(cpu)
        original = irq.requested or ""
        if placed is None or placed.key != key:
            placed = PlacedAffinity(key, task.pid, task.started_ticks, original, original, value, last_s)
        return Proposal(key, value, f"IRQ {irq.irq} ({irq.name})", reason), replace(placed, value=value)

    def move_to(
        self, task: NetTask, covers: Callable[[str], bool] | None, preferred: frozenset[int] | None
    ) -> tuple[Irq, int, str] | str:
        """Return the interrupt to move near a process, its new CPU and the reason; or a sentence why none moves.

        covers: which netdevs are in scope (None: all). preferred: CPUs proposed for it in an earlier round.
        """
        found = self._interrupt(task, covers)
        if isinstance(found, str):
            return found
        irq, old, own_bytes_per_s = found
        capacity, unit = self.capacity, LOCALITY_NAME[self.capacity.max_locality]
        affinity = parse_cpu_list(task.affinity)
        cpus = (affinity & parse_cpu_list(task.allowed) or affinity) & capacity.usable
        if not cpus or any(capacity.nearest_shared_unit(old, cpu) is not None for cpu in cpus):
            why = f"it is within the {unit} of CPU {old}" if cpus else "its CPUs are isolated"
            return f"IRQ {irq.irq} is not moved to it, because {why}."
        share = self._share_of(irq.irq, own_bytes_per_s)
        if share <= MIN_BYTE_SHARE or irq.irq in self.moved:
            return f"It has only {share * 100:.0f} % of the bytes of IRQ {irq.irq}, so IRQ {irq.irq} is not moved."
        need = self._softirq_share(irq.irq, old)
        centre = task.cpu if task.cpu in cpus else min(cpus)
        favourite = min(preferred) if preferred else None
        choice = capacity.nearest(PacketShares((centre,), (1.0,)), capacity.load_limit(need), None, preferred=favourite)
        if choice is not None and irq.requested == str(choice.cpu):
            return f"IRQ {irq.irq} is set to CPU {choice.cpu} already, but still arrives on CPU {old}."
        if choice is None:
            return f"No CPU within the {unit} of it has room for IRQ {irq.irq}, which needs {need:.2f} of a CPU."
        load = capacity.load[choice.cpu]
        capacity.reserve((choice.cpu,), need)
        self.moved.add(irq.irq)
        return (
            irq,
            choice.cpu,
            f"All its packets arrive by IRQ {irq.irq} on CPU {old} and are {share * 100:.0f} % of that interrupt's "
            f"bytes; CPU {choice.cpu} is within the {unit} of the process, load {load:.2f} ≤ {capacity.max_load:.2f}.",
        )

    def _interrupt(self, task: NetTask, covers: Callable[[str], bool] | None) -> tuple[Irq, int, float] | str:
        """Return the one movable interrupt of a process's packets, its CPU and the process's bytes/s; or why none."""
        rx_placements = [
            each for each in task.rx_placements if each.bytes_per_s > 0 and (covers is None or covers(each.netdev))
        ]
        numbers = {rx_placement.irq for rx_placement in rx_placements}
        cpus = {rx_placement.cpu for rx_placement in rx_placements}
        number, cpu = next(iter(numbers)), next(iter(cpus))
        if len(numbers) != 1 or number is None:
            return "Its packets do not all arrive by one known interrupt, so no interrupt is moved to it."
        if any(rx_placement.how not in ("rss", "rule", "queue") for rx_placement in rx_placements):
            return f"Its packets are not handled on the CPU of IRQ {number}, so moving IRQ {number} would not help."
        irq = self.view.inventory.irq(number)
        if irq is None or irq.requested is None or len(cpus) != 1 or cpu is None:
            return f"The affinity of IRQ {number} is not known, so it is not moved."
        if irq.movable is not True:
            return f"IRQ {number} cannot be moved. {irq.locked_reason or ''}".rstrip()
        return irq, cpu, sum(rx_placement.bytes_per_s for rx_placement in rx_placements)

    def _share_of(self, irq: int, own_bytes_per_s: float) -> float:
        total = sum(
            rx_placement.bytes_per_s
            for task in self.view.tasks
            for rx_placement in task.rx_placements
            if rx_placement.irq == irq
        )
        return own_bytes_per_s / total

    def _softirq_share(self, irq: int, cpu: int) -> float:
        """Return the share of a CPU that an interrupt's packets use: its part, by occurrences, of the softirq time.

        Without a known softirq time all of the CPU's busy time counts instead, and 1.0 without that.
        """
        load = self.view.load
        known = [column[cpu] for column in (load.softirq, load.busy) if cpu < len(column)]
        softirq = next((value for value in known if value is not None), 1.0)
        per_s = {row.irq: row.per_s for row in load.irqs if row.cpu == cpu}
        total = sum(per_s.values())
        return softirq * per_s.get(irq, 0.0) / total if total > 0 else softirq
