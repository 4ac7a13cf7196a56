"""Predicted run time of processes on NUMA nodes: speed-up and contention degradation (Lim, Eom, 2016, reporter).

The paper names both factors and gives no formulas; these are ours:

    κ_j = ρ_j / (1 − min(ρ_j, 0.95)), the delay that traffic at utilization ρ_j adds to an access to node j
    τ_p = (1 − m_p)·Σ_n w_pn/power_n + m_p·Σ_n w_pn·Σ_j share_pj·d(n, j)·(1 + κ_j)

w_pn is the share of p's CPU time on node n, share_pj that of its pages on node j, d the SLIT distance ÷ 10 and m_p the
share of its time in which it waits for memory. Without m_p, distance alone counts: m = 1 and κ = 0.
"""

from collections.abc import Sequence

from msgspec import Struct

_MOST_UTILIZATION = 0.95


class Machine(Struct, frozen=True):
    """NUMA nodes by index. distance: SLIT ÷ 10. power: of a CPU, 1.0 for the strongest. bandwidth: bytes/s or None."""

    nodes: list[int]
    distance: list[list[float]]
    power: list[float]
    bandwidth: list[float | None]


class Process(Struct, frozen=True, gc=False):
    """What the factors need of a process. cpus, pages: shares by node index that add up to 1.

    cpu_share: in CPUs. memory_bound, bytes_per_s: None where unknown. weight: of its predicted time in comparisons.
    """

    cpu_share: float
    cpus: tuple[float, ...]
    pages: tuple[float, ...]
    memory_bound: float | None = None
    bytes_per_s: float | None = None
    weight: float = 1.0

    @property
    def contends(self) -> bool:
        """Return whether its demand for memory bandwidth is known."""
        return self.memory_bound is not None and self.bytes_per_s is not None


def on_node(process: Process, index: int, *, with_pages: bool) -> Process:
    """Return the process with all of its CPU time on a node, and with all of its pages there if with_pages."""
    only = (*[0.0] * index, 1.0, *[0.0] * (len(process.cpus) - index - 1))
    return Process(
        process.cpu_share, only, only if with_pages else process.pages,
        process.memory_bound, process.bytes_per_s, process.weight,
    )  # fmt: skip


def traffic(machine: Machine, processes: Sequence[Process]) -> list[float]:
    """Return the known memory traffic on each node in bytes/s."""
    found = [0.0] * len(machine.nodes)
    for process in processes:
        if process.bytes_per_s:
            for at, share in enumerate(process.pages):
                found[at] += process.bytes_per_s * share
    return found


def delay(machine: Machine, bytes_per_s: Sequence[float]) -> list[float]:
    """Return κ of each node for its traffic; 0.0 where its bandwidth is unknown."""
    return [delay_of(machine, at, used) for at, used in enumerate(bytes_per_s)]


def delay_of(machine: Machine, at: int, bytes_per_s: float) -> float:
    """Return κ of one node, by index, for its traffic; 0.0 where its bandwidth is unknown."""
    bandwidth = machine.bandwidth[at]
    utilization = bytes_per_s / bandwidth if bandwidth else 0.0
    return utilization / (1.0 - min(utilization, _MOST_UTILIZATION))


def run_time(machine: Machine, process: Process, delays: Sequence[float]) -> float:
    """Return τ: predicted run time as a multiple of that with all memory local and no contention."""
    bound = 1.0 if process.memory_bound is None else process.memory_bound
    found = 0.0
    for node, weight in enumerate(process.cpus):
        if not weight:
            continue
        row = machine.distance[node]
        memory = 0.0
        for at, share in enumerate(process.pages):
            if share:
                memory += share * row[at] * (1.0 + delays[at] if process.contends else 1.0)
        found += weight * ((1.0 - bound) / machine.power[node] + bound * memory)
    return found


def contention(machine: Machine, process: Process, bytes_per_s: Sequence[float]) -> float | None:
    """Return the contention degradation factor: the delay that the others' traffic adds, relative to no contention.

    bytes_per_s: by node, this process's included. None where its demand is unknown, or what its memory can transfer.
    """
    unknown = any(share and not most for share, most in zip(process.pages, machine.bandwidth, strict=True))
    if process.memory_bound is None or process.bytes_per_s is None or unknown:
        return None
    others = [used - process.bytes_per_s * share for used, share in zip(bytes_per_s, process.pages, strict=True)]
    delays = delay(machine, [max(used, 0.0) for used in others])
    return process.memory_bound * sum(share * each for share, each in zip(process.pages, delays, strict=True))


def total_time(machine: Machine, processes: Sequence[Process]) -> float:
    """Return the predicted run time of all processes together, weighted by their CPU shares and weights."""
    delays = delay(machine, traffic(machine, processes))
    return sum(each.weight * each.cpu_share * run_time(machine, each, delays) for each in processes)
