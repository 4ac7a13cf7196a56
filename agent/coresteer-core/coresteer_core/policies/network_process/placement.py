"""Choose CPUs for all communicating processes in one round without overloading one CPU."""

from collections.abc import Callable
from math import ceil, inf

from coresteer_core.node.load import Load
from coresteer_core.policies.network_process.capacity import CpuCapacity
from coresteer_core.policies.network_process.explain import (
    FULL_LOAD,
    MIN_DISTANCE_GAIN,
    MIN_LOAD_GAIN,
    Candidate,
    Explanations,
    Placement,
)

MIN_QUEUE_SHARE = 0.1
"""Least share of a process's packets that a CPU must handle for the threads to be spread to it."""
_GROWTH = 1.5
"""Factor by which the number of CPUs of an overloaded process with many threads grows."""


class PlacementRound:
    """Placement of all communicating processes in one round; each reserves capacity on its CPUs."""

    def __init__(self, capacity: CpuCapacity, load: Load, candidates: list[Candidate]) -> None:
        own: dict[int, float] = {}
        for candidate in candidates:
            task = candidate.task
            if candidate.cpus:
                for cpu in candidate.cpus:
                    own[cpu] = own.get(cpu, 0.0) + task.cpu_share / len(candidate.cpus)
            else:
                own[task.cpu] = own.get(task.cpu, 0.0) + min(task.cpu_share, 1.0)
        self.capacity = capacity
        self.candidates = candidates
        self.capacity.set_load(load, own)
        self._explain = Explanations(capacity)

    def place_all(self) -> list[Placement]:
        """Return a placement for every process: first those on overloaded CPUs, then the others by traffic."""
        for candidate in self.candidates:
            if candidate.cpus:
                self.capacity.reserve(candidate.cpus, candidate.task.cpu_share)
        overloaded: list[Candidate] = []
        others: list[tuple[Candidate, float]] = []
        unchanged: list[Placement] = []
        for candidate in self.candidates:
            if not candidate.cpus:
                others.append((candidate, inf))
                continue
            cost = self.capacity.mean_distance(candidate.packets, candidate.cpus)
            beside = self._load_beside(candidate)
            if self._is_misplaced(candidate):
                others.append((candidate, inf))
            elif self._is_overloaded(candidate, beside):
                overloaded.append(candidate)
            elif cost < MIN_DISTANCE_GAIN or (
                candidate.task.threads == 1
                and cost - self.capacity.min_mean_distance(candidate.packets) < MIN_DISTANCE_GAIN
            ):
                why = self._explain.unchanged(candidate, beside, cost)
                unchanged.append(Placement(candidate, candidate.cpus, why))
            else:
                others.append((candidate, cost))
        overloaded.sort(key=lambda candidate: (candidate.rate, candidate.task.pid))
        others.sort(key=lambda other: (-other[0].rate, other[0].task.pid))
        found = [self._relieve(candidate) for candidate in overloaded]
        for candidate, cost in others:
            found.append(self._place(candidate) if cost == inf else self._move_nearer(candidate, cost))
        return found + unchanged

    def _load_beside(self, candidate: Candidate) -> float:
        """Return the mean load of a process's CPUs without the process."""
        cpus, load = candidate.cpus, self.capacity.load
        if len(cpus) == 1:
            return load[cpus[0]] - candidate.task.cpu_share
        return (sum([load[cpu] for cpu in cpus]) - candidate.task.cpu_share) / len(cpus)

    def _is_overloaded(self, candidate: Candidate, beside: float) -> bool:
        """Return whether a process's CPUs exceed a limit, given their load without it."""
        if beside == inf:
            return False
        return beside > self.capacity.max_load or beside + candidate.task.cpu_share / len(candidate.cpus) > FULL_LOAD

    def _is_misplaced(self, candidate: Candidate) -> bool:
        """Return whether one of a process's CPUs is not allowed or is near none of its packets."""
        capacity, allowed, packets = self.capacity, candidate.allowed, candidate.packets
        for cpu in candidate.cpus:
            if cpu not in capacity.usable or (allowed is not None and cpu not in allowed):
                return True
            if cpu != packets.cpus[0] and not capacity.is_near(packets, cpu):
                return True
        return False

    def _wanted_cpus(self, candidate: Candidate) -> int:
        """Return how many CPUs a process needs for what its threads use, or has CPUs that handle its packets."""
        task = candidate.task
        if task.threads <= 1:
            return 1
        queues = sum(1 for share in candidate.packets.shares if share >= MIN_QUEUE_SHARE)
        return max(1, min(task.threads, max(self._explain.needed_cpus(task), queues)))

    def _find(
        self, candidate: Candidate, count: int, limit: Callable[[float], float], below: float = inf
    ) -> tuple[int, ...]:
        """Return the CPUs nearest to a process's packets under a load limit; none if too few.

        below: exclusive bound of their mean distance from the packets.
        """
        capacity, share = self.capacity, candidate.task.cpu_share
        if count == 1:
            preferred = candidate.preferred[0] if len(candidate.preferred) == 1 else None
            choice = capacity.nearest(candidate.packets, limit(share), candidate.allowed, below, preferred)
            return () if choice is None else (choice.cpu,)
        least = self._explain.needed_cpus(candidate.task)
        while count >= max(least, 1):
            cpus = capacity.nearest_cpus(candidate.packets, count, limit(share / count), candidate.allowed)
            if len(cpus) == count:
                cost = capacity.mean_distance(candidate.packets, cpus)
                preferred_cpus = candidate.preferred
                if len(preferred_cpus) == count and all(
                    capacity.load[cpu] <= limit(share / count) for cpu in preferred_cpus
                ):
                    preferred_cost = capacity.mean_distance(candidate.packets, preferred_cpus)
                    if preferred_cost < min(cost + MIN_DISTANCE_GAIN, below):
                        return preferred_cpus
                return cpus if cost < below else ()
            count = len(cpus)
        return ()

    def _place(self, candidate: Candidate) -> Placement:
        """Choose CPUs for a process that the policy has not placed yet, or whose present CPUs are unsuitable."""
        if candidate.cpus:
            self.capacity.reserve(candidate.cpus, -candidate.task.cpu_share)
        count = self._wanted_cpus(candidate)
        cpus = self._find(candidate, count, self.capacity.load_limit_after_move) if candidate.cpus else ()
        if not cpus:
            cpus = self._find(candidate, count, self.capacity.load_limit)
        if not cpus:
            excluded = candidate.allowed is not None and self._is_excluded(candidate, candidate.allowed)
            return Placement(candidate, (), self._explain.no_room(candidate, excluded=excluded), excluded)
        why = self._explain.placed(candidate, cpus)
        self.capacity.reserve(cpus, candidate.task.cpu_share)
        return Placement(candidate, cpus, why)

    def _move_nearer(self, candidate: Candidate, cost: float) -> Placement:
        """Return a placement nearer to the packets by at least MIN_DISTANCE_GAIN, else the present one."""
        share = candidate.task.cpu_share
        self.capacity.reserve(candidate.cpus, -share)
        below = cost - MIN_DISTANCE_GAIN + 1e-9
        cpus = self._find(candidate, self._wanted_cpus(candidate), self.capacity.load_limit_after_move, below)
        if cpus:
            why = self._explain.placed(candidate, cpus)
            self.capacity.reserve(cpus, share)
            return Placement(candidate, cpus, why)
        self.capacity.reserve(candidate.cpus, share)
        beside = self._load_beside(candidate)
        return Placement(candidate, candidate.cpus, self._explain.unchanged(candidate, beside, cost))

    def _relieve(self, candidate: Candidate) -> Placement:
        """Return a placement on CPUs with clearly less load than the present, overloaded ones, else the present one."""
        others = self._load_beside(candidate)
        if not self._is_overloaded(candidate, others):  # another process has left
            return Placement(candidate, candidate.cpus, self._explain.unchanged(candidate, others))
        task, count = candidate.task, len(candidate.cpus)
        share = task.cpu_share
        total = others + share / count
        limit = self.capacity.load_limit
        self.capacity.reserve(candidate.cpus, -share)
        more = min(task.threads, max(count + 1, ceil(count * _GROWTH)))
        for wanted in dict.fromkeys((more, count) if total > FULL_LOAD else (count,)):
            cpus = self._find(candidate, wanted, lambda need: min(limit(need), total - need - MIN_LOAD_GAIN))
            if cpus and set(cpus) != set(candidate.cpus):
                why = self._explain.relieved(candidate, total, others, cpus)
                self.capacity.reserve(cpus, share)
                return Placement(candidate, cpus, why)
        self.capacity.reserve(candidate.cpus, share)
        return Placement(candidate, candidate.cpus, self._explain.not_relieved(candidate, total, others))

    def _is_excluded(self, candidate: Candidate, allowed: frozenset[int]) -> bool:
        """Return whether a process's cpuset has no usable CPU near its packets."""
        capacity = self.capacity
        return not any(
            cpu in allowed and cpu in capacity.usable
            for centre in capacity.search_centres(candidate.packets)
            for group in capacity.distances.groups_around(centre, capacity.max_locality)
            for cpu in group.cpus
        )
