"""Predicted time of all processes together, and what changing one of them saves, without recomputing the others."""

from collections.abc import Sequence
from operator import mul

from coresteer_core.policies.numa.factors import Machine, Process, contention, delay, delay_of, run_time, traffic


class Assignment:
    """Where every process runs and has its pages, with the total predicted time of factors.total_time().

    The total is Σ base_p + Σ_j κ_j·sensitivity_j: base is the time without contention, sensitivity how much of the
    contending processes' time each node's delay multiplies. So a change costs the square of the number of nodes.
    """

    def __init__(self, machine: Machine, processes: Sequence[Process]) -> None:
        self.machine = machine
        self.processes = list(processes)
        self._most_power = max(machine.power, default=1.0)
        self._still = [0.0] * len(machine.nodes)
        self._traffic = traffic(machine, processes)
        self._delays = delay(machine, self._traffic)
        self._sensitivity = list(self._still)
        for process in processes:
            self._sensitivity = _sum(self._sensitivity, self._sensitivity_of(process))

    def run_time(self, index: int, changed: Process | None = None) -> float:
        """Return τ of a process, as it is or if it alone were changed."""
        if changed is None:
            return run_time(self.machine, self.processes[index], self._delays)
        return run_time(self.machine, changed, delay(self.machine, self._traffic_with(index, changed)))

    def run_times(self, index: int) -> list[float]:
        """Return τ of a process by node if its CPU time were there and its pages stayed. No other's changes then."""
        process = self.processes[index]
        bound = 1.0 if process.memory_bound is None else process.memory_bound
        contends, delays = process.contends, self._delays
        pages = [
            (at, share * (1.0 + delays[at]) if contends else share) for at, share in enumerate(process.pages) if share
        ]
        return [
            (1.0 - bound) / power + bound * sum([cost * row[at] for at, cost in pages])
            for row, power in zip(self.machine.distance, self.machine.power, strict=True)
        ]

    def local_moves(self, index: int) -> list[tuple[float, float]]:
        """Return by node what moving a process there with all its pages saves, as time_saved(), and its τ then."""
        process, distance = self.processes[index], self.machine.distance
        bound = 1.0 if process.memory_bound is None else process.memory_bound
        demand = process.weight * process.cpu_share
        alone = [(1.0 - bound) / power + bound * distance[at][at] for at, power in enumerate(self.machine.power)]
        before = self._base(process)
        if not process.contends:
            return [(before - demand * each, each) for each in alone]
        own = process.bytes_per_s or 0.0
        left = [max(0.0, used - own * share) for used, share in zip(self._traffic, process.pages, strict=True)]
        delays = delay(self.machine, left)
        others = _sum(self._sensitivity, self._sensitivity_of(process), -1.0)
        before += sum(map(mul, self._delays, self._sensitivity)) - sum(map(mul, delays, others))
        found = []
        for at, still in enumerate(alone):
            delayed = delay_of(self.machine, at, left[at] + own)
            accesses = bound * distance[at][at]
            after = demand * (still + delayed * accesses) + (delayed - delays[at]) * others[at]
            found.append((before - after, still + delayed * accesses))
        return found

    def least_run_time(self, index: int) -> float:
        """Return a τ that no move goes below: all memory on the node with the least traffic, the strongest CPUs."""
        process = self.processes[index]
        bound = 1.0 if process.memory_bound is None else process.memory_bound
        return (1.0 - bound) / self._most_power + bound * (1.0 + min(self._delays) if process.contends else 1.0)

    def contention(self, index: int) -> float | None:
        """Return the contention degradation factor of a process; None where its bandwidth is unknown."""
        return contention(self.machine, self.processes[index], self._traffic)

    def total_contention(self, index: int, nodes: Sequence[int]) -> tuple[float, list[float]]:
        """Return the sum of all known contention degradation factors: now, and with all of a process's pages on a node.

        nodes: the indexes for which the second is returned. Costs one pass over all processes, and one for each node.
        """
        process = self.processes[index]
        own = process.bytes_per_s or 0.0
        left = [used - own * share for used, share in zip(self._traffic, process.pages, strict=True)]
        without = [self._node_contention(at, used, index) for at, used in enumerate(left)]
        now = sum(self._node_contention(at, used, None) for at, used in enumerate(self._traffic))
        bound = process.memory_bound or 0.0
        found = []
        for at in nodes:
            alone = bound * delay_of(self.machine, at, left[at])
            found.append(sum(without) - without[at] + self._node_contention(at, left[at] + own, index) + alone)
        return now, found

    def _node_contention(self, at: int, used: float, without: int | None) -> float:
        """Return the part of all contention degradation factors that accesses to one node cause at its traffic."""
        found = 0.0
        for index, process in enumerate(self.processes):
            share = process.pages[at]
            if share and process.contends and index != without:
                others = max(0.0, used - (process.bytes_per_s or 0.0) * share)
                found += (process.memory_bound or 0.0) * share * delay_of(self.machine, at, others)
        return found

    def time_saved(self, index: int, changed: Process) -> float:
        """Return the CPU time per second that a change saves in total, in CPUs; negative where it costs time."""
        before = self.processes[index]
        saved = self._base(before) - self._base(changed)
        if before.contends:
            sensitivity = _sum(self._sensitivity, self._sensitivity_of(before), -1.0)
            sensitivity = _sum(sensitivity, self._sensitivity_of(changed))
            delays = delay(self.machine, self._traffic_with(index, changed))
            saved += sum(map(mul, self._delays, self._sensitivity)) - sum(map(mul, delays, sensitivity))
        return saved

    def change(self, index: int, changed: Process) -> None:
        """Replace a process by itself in another place."""
        before = self.processes[index]
        self._traffic = self._traffic_with(index, changed)
        self._delays = delay(self.machine, self._traffic)
        self._sensitivity = _sum(self._sensitivity, self._sensitivity_of(before), -1.0)
        self._sensitivity = _sum(self._sensitivity, self._sensitivity_of(changed))
        self.processes[index] = changed

    def _traffic_with(self, index: int, changed: Process) -> list[float]:
        before, per_s = self.processes[index], changed.bytes_per_s
        if not per_s or before.pages == changed.pages:
            return self._traffic
        return [
            max(0.0, used + per_s * (after - was))
            for used, after, was in zip(self._traffic, changed.pages, before.pages, strict=True)
        ]

    def _base(self, process: Process) -> float:
        return process.weight * process.cpu_share * run_time(self.machine, process, self._still)

    def _sensitivity_of(self, process: Process) -> list[float]:
        if not process.contends:
            return self._still
        demand = process.weight * process.cpu_share * (process.memory_bound or 0.0)
        row = self._distances(process)
        return [demand * share * each for share, each in zip(process.pages, row, strict=True)]

    def _distances(self, process: Process) -> list[float]:
        """Return the mean distance from a process's CPUs to each node."""
        distance = self.machine.distance
        if 1.0 in process.cpus:
            return distance[process.cpus.index(1.0)]
        return [sum(map(mul, process.cpus, column)) for column in zip(*distance, strict=True)]


def _sum(first: list[float], second: list[float], factor: float = 1.0) -> list[float]:
    return [a + factor * b for a, b in zip(first, second, strict=True)]
