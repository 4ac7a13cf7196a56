"""Predicted time of all processes together, and what changing one of them saves, without recomputing the others."""

from collections.abc import Sequence

from coresteer_core.policies.numa.factors import Machine, Process, contention, delay, run_time, traffic


class Assignment:
    """Where every process runs and has its pages, with the total predicted time of factors.total_time().

    The total is Σ base_p + Σ_j κ_j·sensitivity_j: base is the time without contention, sensitivity how much of the
    contending processes' time each node's delay multiplies. So a change costs the square of the number of nodes.
    """

    def __init__(self, machine: Machine, processes: Sequence[Process]) -> None:
        self.machine = machine
        self.processes = list(processes)
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

    def contention(self, index: int) -> float | None:
        """Return the contention degradation factor of a process; None where its bandwidth is unknown."""
        return contention(self.machine, self.processes[index], self._traffic)

    def total_contention(self, index: int, changed: Process) -> float:
        """Return the sum of all known contention degradation factors if one process were changed."""
        used = self._traffic_with(index, changed)
        found = 0.0
        for at, process in enumerate(self.processes):
            found += contention(self.machine, changed if at == index else process, used) or 0.0
        return found

    def time_saved(self, index: int, changed: Process) -> float:
        """Return the CPU time per second that a change saves in total, in CPUs; negative where it costs time."""
        before = self.processes[index]
        saved = self._base(before) - self._base(changed)
        if before.contends:
            sensitivity = _sum(self._sensitivity, self._sensitivity_of(before), -1.0)
            sensitivity = _sum(sensitivity, self._sensitivity_of(changed))
            delays = delay(self.machine, self._traffic_with(index, changed))
            saved += sum(a * b for a, b in zip(self._delays, self._sensitivity, strict=True))
            saved -= sum(a * b for a, b in zip(delays, sensitivity, strict=True))
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
        distance = self.machine.distance
        cpus = [(node, weight) for node, weight in enumerate(process.cpus) if weight]
        return [
            demand * share * sum(weight * distance[node][at] for node, weight in cpus) if share else 0.0
            for at, share in enumerate(process.pages)
        ]


def _sum(first: list[float], second: list[float], factor: float = 1.0) -> list[float]:
    return [a + factor * b for a, b in zip(first, second, strict=True)]
