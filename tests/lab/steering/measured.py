"""Locality and cost of one run of the bench of policies, from readings. Pure."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from tests.lab.machines import Machine
from tests.lab.steering.readings import Cell, Reading, changed


@dataclass(frozen=True)
class Measured:
    """One run. Shares are of received bytes whose protocol work, or polling, was near the CPU that read them.

    core: the same core, which has an L2 of its own. best_core: the most that could be polled on the consumers' cores
    wherever they ran, each on one CPU at a time: a process whose flows are polled on several CPUs cannot be next to
    all of them. moves: of settings. busiest: share of its time that the busiest CPU was not idle. rtt_p99_us: None if
    no request was answered. isolated: share of bytes that were polled, processed or read on the isolated CPU.
    """

    regime: str
    mix: str
    mib: float
    protocol_core: float
    protocol_l3: float
    protocol_node: float
    polling_core: float
    polling_best_core: float
    polling_l3: float
    polling_node: float
    rtt_p99_us: float | None
    out_of_order_per_s: float
    retransmitted_per_s: float
    ipis_per_s: float
    received_rps_per_s: float
    moves_per_min: float
    busiest: float
    isolated: float


@dataclass(frozen=True)
class Readings:
    """Of one run: at several moments, the first and the last of which are its ends. napi_irqs: interrupt by NAPI."""

    cells: Sequence[Cell]
    napi_irqs: dict[int, str]
    moments: Sequence[Reading]
    rtt_p99_us: float | None


def measured(regime: str, mix: str, run: Readings, machine: Machine, isolated: int) -> Measured:
    """Return the figures of a run. isolated: a CPU on which nothing may run."""
    first, last = run.moments[0], run.moments[-1]
    within = [cell for cell in run.cells if first.at_s < cell.at_s <= last.at_s + 1]
    polled = [(cell, _polling_cpu(cell, run)) for cell in within]
    total = sum(cell.bytes for cell in within) or 1
    per_package, per_node = machine.cpus // machine.packages, machine.cpus // machine.numa_nodes
    by_port: dict[int, Counter[int]] = {}
    for cell, cpu in polled:
        if cpu is not None:
            by_port.setdefault(cell.port, Counter())[cpu] += cell.bytes

    def protocol(group: Callable[[int], int]) -> float:
        return sum(cell.bytes for cell in within if group(cell.protocol_cpu) == group(cell.task_cpu)) / total

    def polling(group: Callable[[int], int]) -> float:
        near = (cell.bytes for cell, cpu in polled if cpu is not None and group(cpu) == group(cell.task_cpu))
        return sum(near) / total

    seconds = last.at_s - first.at_s
    busy = [new - old for new, old in zip(last.busy, first.busy, strict=True)]
    there = sum(cell.bytes for cell, cpu in polled if isolated in (cell.protocol_cpu, cell.task_cpu, cpu))
    moves = sum(len(changed(before, after)) for before, after in pairwise(run.moments))
    return Measured(
        regime=regime,
        mix=mix,
        mib=total / (1 << 20),
        protocol_core=protocol(lambda cpu: cpu // machine.threads),
        protocol_l3=protocol(lambda cpu: cpu // per_package),
        protocol_node=protocol(lambda cpu: cpu // per_node),
        polling_core=polling(lambda cpu: cpu // machine.threads),
        polling_best_core=sum(max(handled.values()) for handled in by_port.values()) / total,
        polling_l3=polling(lambda cpu: cpu // per_package),
        polling_node=polling(lambda cpu: cpu // per_node),
        rtt_p99_us=run.rtt_p99_us,
        out_of_order_per_s=(last.out_of_order - first.out_of_order) / seconds,
        retransmitted_per_s=(last.retransmitted - first.retransmitted) / seconds,
        ipis_per_s=(last.ipis - first.ipis) / seconds,
        received_rps_per_s=(last.received_rps - first.received_rps) / seconds,
        moves_per_min=moves * 60 / seconds,
        busiest=max(busy) / (seconds * 100),
        isolated=there / total,
    )


def _polling_cpu(cell: Cell, run: Readings) -> int | None:
    """Return the CPU of the interrupt of a cell's NAPI by the last reading before it; None if it is unknown."""
    irq = run.napi_irqs.get(cell.napi)
    before = [each for each in run.moments if each.at_s <= cell.at_s]
    return None if irq is None else (before[-1] if before else run.moments[0]).irq_cpus.get(irq)
