"""Quality of network-process placement: against an exhaustive search on small cases, against published bounds on large.

Cost of an assignment: the distance of each process from its packets (distance.DISTANCE, the mean over its packets;
REMOTE_DISTANCE for a process without a CPU), weighted by the processes' traffic. Constraint: the base load of a CPU and
the shares of the processes on it are at most 1. The generated processes use 0.2 to 0.6 of a CPU each, for which the
policy's rule (capacity.limit) is the same constraint, in any order.

Bounds that hold for every case:

- Within a group of equally distant CPUs, each process goes to the least loaded CPU: list scheduling. The busiest CPU
  is at most 2 - 1/m of the best possible (Graham, Bounds on multiprocessing timing anomalies, 1969).
- Processes are placed in the order of their traffic, and one is left out only when every CPU near it is full. With
  equal shares that is greedy vertex-weighted bipartite matching: at least half of the traffic that any assignment
  could place is placed (Aggarwal, Goel, Karande, Mehta, Online vertex-weighted bipartite matching, 2011, section 1).

There is no bound for the cost with unequal shares: that is the generalised assignment problem, in which finding any
feasible assignment is NP-hard.
"""

from math import inf
from random import Random

from msgspec import Struct
from tests.support.views import make_topology

from coresteer_core.node.distance import REMOTE_DISTANCE, Locality, Smt, cpu_distances
from coresteer_core.node.load import Load
from coresteer_core.node.tasks import NetTask
from coresteer_core.node.topology import Cache, Topology
from coresteer_core.policies.network_process.capacity import CpuCapacity, PacketShares
from coresteer_core.policies.network_process.explain import Candidate, Placement
from coresteer_core.policies.network_process.placement import PlacementRound

_NOWHERE = 1 << 20


class Case(Struct):
    """Processes, heaviest first, and what the CPUs do already."""

    topology: Topology
    base: list[float]
    candidates: list[Candidate]

    def capacity(self) -> CpuCapacity:
        """The CPUs before any process is placed."""
        online = self.topology.online()
        capacity = CpuCapacity(cpu_distances(self.topology, Smt.LAST), Locality.L3, online, 0.8)
        capacity.set_load(Load(busy=list(self.base), softirq=[0.0] * len(self.base)), {})
        return capacity

    def placed(self) -> list[Placement]:
        """What the policy does."""
        return PlacementRound(self.capacity(), Load(busy=list(self.base)), self.candidates).place_all()

    def cost(self, where: dict[int, int]) -> float:
        """Of an assignment, CPU by pid."""
        capacity = self.capacity()
        total = sum(candidate.rate for candidate in self.candidates)
        return (
            sum(
                candidate.rate * _distance(capacity, candidate, where.get(candidate.task.pid))
                for candidate in self.candidates
            )
            / total
        )


def _distance(capacity: CpuCapacity, candidate: Candidate, cpu: int | None) -> float:
    return REMOTE_DISTANCE if cpu is None else candidate.packets.mean_distance(capacity.distances.rows[cpu])


def reachable(capacity: CpuCapacity, candidate: Candidate) -> list[int]:
    """CPUs that the policy would consider for a process."""
    found = {
        c
        for centre in capacity.search_centres(candidate.packets)
        for r in capacity.distances.groups_around(centre, capacity.max_locality)
        for c in r.cpus
    }
    return sorted(found if candidate.allowed is None else found & candidate.allowed)


def chosen(case: Case) -> dict[int, int]:
    """The policy's assignment."""
    return {placement.candidate.task.pid: placement.cpus[0] for placement in case.placed() if placement.cpus}


def best_cost(case: Case) -> float:
    """The least cost of any assignment, by trying all that are not already worse than the best so far."""
    capacity = case.capacity()
    total = sum(candidate.rate for candidate in case.candidates)
    options = []
    for candidate in case.candidates:
        priced: list[tuple[float, int | None]] = [
            (candidate.rate * _distance(capacity, candidate, cpu) / total, cpu)
            for cpu in reachable(capacity, candidate)
        ]
        options.append(
            sorted([*priced, (candidate.rate * REMOTE_DISTANCE / total, None)], key=lambda option: option[0])
        )
    # What the processes from each on cost at the least.
    rest = [0.0]
    for priced in reversed(options):
        rest.append(rest[-1] + priced[0][0])
    rest.reverse()
    load = list(capacity.load)
    best = inf

    def try_from(index: int, cost: float) -> None:
        nonlocal best
        if cost + rest[index] >= best:
            return
        if index == len(options):
            best = cost
            return
        share = case.candidates[index].task.cpu_share
        for more, cpu in options[index]:
            if cpu is None:
                try_from(index + 1, cost + more)
            elif load[cpu] + share <= 1 + 1e-9:
                load[cpu] += share
                try_from(index + 1, cost + more)
                load[cpu] -= share

    try_from(0, 0.0)
    return best


def most_placed(case: Case) -> float:
    """The most traffic that can be placed when all shares are equal: matching with augmenting paths, heaviest first."""
    capacity = case.capacity()
    share = case.candidates[0].task.cpu_share
    slots = {cpu: int((1 - load) / share + 1e-9) for cpu, load in enumerate(capacity.load) if load != inf}
    reach = [reachable(capacity, candidate) for candidate in case.candidates]
    placed_on: dict[int, list[int]] = {cpu: [] for cpu in slots}

    def place(index: int, tried: set[int]) -> bool:
        for cpu in reach[index]:
            if cpu in tried or not slots[cpu]:
                continue
            tried.add(cpu)
            if len(placed_on[cpu]) < slots[cpu]:
                placed_on[cpu].append(index)
                return True
            for position, other in enumerate(placed_on[cpu]):
                if place(other, tried):
                    placed_on[cpu][position] = index
                    return True
        return False

    return sum(candidate.rate for index, candidate in enumerate(case.candidates) if place(index, set()))


def _candidates(
    random: Random, count: int, cpus: list[int], interrupts: list[int], share: float | None
) -> list[Candidate]:
    candidates = []
    for pid in range(1, count + 1):
        at = random.sample(interrupts, min(len(interrupts), random.choice([1, 1, 2, 3])))
        weights = sorted((random.uniform(0.1, 1.0) for _ in at), reverse=True)
        own = share if share is not None else random.uniform(0.2, 0.6)
        task = NetTask(pid, 0, "made", None, 1, "", "", _NOWHERE, own, 0.0, [])
        flow = PacketShares(tuple(at), tuple(weight / sum(weights) for weight in weights))
        allowed = None if random.random() < 0.8 else frozenset(random.sample(cpus, max(1, len(cpus) // 2)))
        candidates.append(Candidate(task, random.uniform(1e5, 1e8), flow, 0.0, allowed))
    return sorted(candidates, key=lambda candidate: (-candidate.rate, candidate.task.pid))


def small_case(random: Random) -> Case:
    """Up to 8 CPUs in one or two L3s, up to 6 processes, interrupts anywhere."""
    topology = make_topology(
        packages=random.choice([1, 2]), nodes_per_package=1, cores_per_node=2, threads=random.choice([1, 2])
    )
    cpus = [cpu.cpu for cpu in topology.cpus]
    base = [random.choice([0.0, random.uniform(0, 0.7)]) for _ in cpus]
    interrupts = random.sample(cpus, random.randint(1, min(4, len(cpus))))
    return Case(topology, base, _candidates(random, random.randint(2, 6), cpus, interrupts, None))


def large_topology() -> Topology:
    """256 CPUs: two packages, each with two NUMA nodes; an L3 for every eight cores of two threads."""
    whole = make_topology(packages=2, nodes_per_package=2, cores_per_node=32, threads=2)
    l3 = [Cache(3, "Unified", 32 << 20, f"{core}-{core + 7},{core + 128}-{core + 135}") for core in range(0, 128, 8)]
    return Topology(whole.cpus, whole.numa_nodes, [*(c for c in whole.caches if c.level == 2), *l3])


def large_case(random: Random, *, processes: int = 500, share: float = 0.25) -> Case:
    """Equal shares on 256 CPUs; interrupts crowd on some L3s, so that some processes find no CPU."""
    topology = large_topology()
    cpus = [cpu.cpu for cpu in topology.cpus]
    base = [random.uniform(0, 0.7) for _ in cpus]
    interrupts = [cpu for cpu in cpus if cpu % 128 // 8 in range(random.randint(3, 10))]
    return Case(topology, base, _candidates(random, processes, cpus, random.sample(interrupts, 24), share))
