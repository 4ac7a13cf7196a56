"""The interrupt comes to the process, where the process may not go to the interrupt."""

from collections.abc import Callable

from coresteer_core.cpuset import parse_cpu_list
from coresteer_core.node.inventory import Irq
from coresteer_core.node.tasks import NetTask
from coresteer_core.node.view import View
from coresteer_core.policies.network_process.capacity import Flow, Seats

MAJORITY = 0.5
"""Of an interrupt's bytes a process has more than this share when the interrupt is moved for it."""


class IrqMoves:
    """One round's moves of interrupts; each takes room on its new CPU."""

    def __init__(self, view: View, seats: Seats) -> None:
        self.view = view
        self.seats = seats
        self.moved: set[int] = set()

    def bring(
        self, task: NetTask, covers: Callable[[str], bool] | None, favoured: frozenset[int] | None
    ) -> tuple[Irq, int, str] | str:
        """The interrupt to move, its new CPU and why; or why it is not moved. favoured: CPUs wanted for it before."""
        found = self._interrupt(task, covers)
        if isinstance(found, str):
            return found
        irq, old, mine = found
        home = (
            parse_cpu_list(task.affinity) & parse_cpu_list(task.allowed) or parse_cpu_list(task.affinity)
        ) & self.seats.usable
        if not home or any(self.seats.relation(old, cpu) is not None for cpu in home):
            near = f"it is within {self.seats.reach.value} of CPU {old}" if home else "its CPUs are kept free"
            return f"IRQ {irq.irq} is not moved to it, because {near}."
        share = self._share_of(irq.irq, mine)
        if share <= MAJORITY or irq.irq in self.moved:
            return f"It has only {share * 100:.0f} % of the bytes of IRQ {irq.irq}, so that is not moved to it."
        need = self._softirq(irq.irq, old)
        centre = task.cpu if task.cpu in home else min(home)
        favour = min(favoured) if favoured else None
        seat = self.seats.nearest(Flow((centre,), (1.0,)), self.seats.limit(need), None, favour=favour)
        if seat is not None and irq.requested == str(seat.cpu):
            return f"IRQ {irq.irq} is set to CPU {seat.cpu} already, but still arrives on CPU {old}."
        if seat is None:
            return f"No CPU within {self.seats.reach.value} of it has room for IRQ {irq.irq}, which takes {need:.2f}."
        load = self.seats.load[seat.cpu]
        self.seats.take((seat.cpu,), need)
        self.moved.add(irq.irq)
        return (
            irq,
            seat.cpu,
            f"All its packets come through IRQ {irq.irq} on CPU {old}, {share * 100:.0f} % of that interrupt's bytes; "
            f"CPU {seat.cpu} is near it, load {load:.2f} ≤ {self.seats.max_load:.2f}.",
        )

    def _interrupt(self, task: NetTask, covers: Callable[[str], bool] | None) -> tuple[Irq, int, float] | str:
        """The movable interrupt that brings all packets of a process, its CPU and the bytes; or why there is none."""
        rx_placements = [
            la for la in task.rx_placements if la.bytes_per_s > 0 and (covers is None or covers(la.netdev))
        ]
        numbers = {rx_placement.irq for rx_placement in rx_placements}
        at = {rx_placement.cpu for rx_placement in rx_placements}
        number, cpu = next(iter(numbers)), next(iter(at))
        if len(numbers) != 1 or number is None:
            return "Its packets do not all come through one known interrupt, so none is moved to it."
        if any(rx_placement.how not in ("rss", "queue") for rx_placement in rx_placements):
            return f"Its packets are handled elsewhere than where IRQ {number} arrives, so moving that would not help."
        irq = self.view.inventory.irq(number)
        if irq is None or irq.requested is None or len(at) != 1 or cpu is None:
            return f"Where IRQ {number} stands is not known, so it is not moved to it."
        if irq.movable is not True:
            return f"IRQ {number} cannot be moved. {irq.locked_reason or ''}".rstrip()
        return irq, cpu, sum(rx_placement.bytes_per_s for rx_placement in rx_placements)

    def _share_of(self, irq: int, mine: float) -> float:
        every = sum(
            rx_placement.bytes_per_s
            for task in self.view.tasks
            for rx_placement in task.rx_placements
            if rx_placement.irq == irq
        )
        return mine / every

    def _softirq(self, irq: int, cpu: int) -> float:
        """What an interrupt's packets cost its CPU: of the softirq time its part among the numbered interrupts.

        All that the CPU does where the kernel does not tell its softirq time, a whole CPU where it tells nothing.
        """
        load = self.view.load
        known = [column[cpu] for column in (load.softirq, load.busy) if cpu < len(column)]
        softirq = next((value for value in known if value is not None), 1.0)
        here = {row.irq: row.per_s for row in load.irqs if row.cpu == cpu}
        total = sum(here.values())
        return softirq * here.get(irq, 0.0) / total if total > 0 else softirq
