"""How good network-process places: against trying everything on small cases, against published bounds on large ones.

Cost of an assignment: the distance of each process from its packets (rings.DISTANCE, the mean over its packets; FAR for
a process that gets no CPU), weighted by the processes' traffic. Constraint: what a CPU does already and the shares of
the processes on it are at most 1. The processes made here use 0.2 to 0.6 of a CPU each, for which the policy's rule
of room (seats.limit) says just that, in whatever order they come.

Bounds that truly hold for what the policy does, whatever the case:

- Within a ring, where all CPUs are equally far, each process goes to the least loaded CPU: list scheduling. The
  busiest CPU is at most 2 - 1/m of the best possible (Graham, Bounds on multiprocessing timing anomalies, 1969).
- Processes are seated in the order of their traffic, and one is left out only when every CPU in its reach is full. With
  equal shares that is greedy vertex-weighted bipartite matching: at least half of the traffic that any assignment
  could seat is seated (Aggarwal, Goel, Karande, Mehta, Online vertex-weighted bipartite matching, 2011, section 1).

There is none for the cost with unequal shares: that is the generalised assignment problem, where even to find an
assignment that seats everybody is NP-hard.
"""

from math import inf
from random import Random

from msgspec import Struct
from tests.core.policy_machines import make_topology

from coresteer_core.node.load import Load
from coresteer_core.node.tasks import NetTask
from coresteer_core.node.topology import Cache, Topology
from coresteer_core.policies.distance import FAR, Reach, Smt, rings
from coresteer_core.policies.network_process.capacity import Flow, Seats
from coresteer_core.policies.network_process.placement import Placing, Talker, Verdict

_NOWHERE = 1 << 20


class Case(Struct):
    """Processes, heaviest first, and what the CPUs do already."""

    topology: Topology
    base: list[float]
    talkers: list[Talker]

    def seats(self) -> Seats:
        """The CPUs as they are before anybody is placed."""
        online = self.topology.online()
        seats = Seats(rings(self.topology, Smt.LAST), Reach.L3, online, 0.8)
        seats.count(Load(busy=list(self.base), softirq=[0.0] * len(self.base)), {})
        return seats

    def placed(self) -> list[Verdict]:
        """What the policy does."""
        return Placing(self.seats(), Load(busy=list(self.base)), self.talkers).verdicts()

    def cost(self, where: dict[int, int]) -> float:
        """Of an assignment, CPU by pid."""
        seats = self.seats()
        total = sum(talker.rate for talker in self.talkers)
        return (
            sum(talker.rate * _distance(seats, talker, where.get(talker.task.pid)) for talker in self.talkers) / total
        )


def _distance(seats: Seats, talker: Talker, cpu: int | None) -> float:
    return FAR if cpu is None else talker.flow.cost(seats.rings.distances[cpu])


def reachable(seats: Seats, talker: Talker) -> list[int]:
    """CPUs that the policy would consider for a process."""
    found = {
        c for centre in seats.centres(talker.flow) for r in seats.rings.around(centre, seats.reach) for c in r.cpus
    }
    return sorted(found if talker.allowed is None else found & talker.allowed)


def chosen(case: Case) -> dict[int, int]:
    """The policy's assignment."""
    return {verdict.talker.task.pid: verdict.cpus[0] for verdict in case.placed() if verdict.cpus}


def best_cost(case: Case) -> float:
    """The least cost of any assignment, by trying all that are not already worse than the best so far."""
    seats = case.seats()
    total = sum(talker.rate for talker in case.talkers)
    options = []
    for talker in case.talkers:
        priced: list[tuple[float, int | None]] = [
            (talker.rate * _distance(seats, talker, cpu) / total, cpu) for cpu in reachable(seats, talker)
        ]
        options.append(sorted([*priced, (talker.rate * FAR / total, None)], key=lambda option: option[0]))
    # What the processes from each on cost at the least.
    rest = [0.0]
    for priced in reversed(options):
        rest.append(rest[-1] + priced[0][0])
    rest.reverse()
    load = list(seats.load)
    best = inf

    def try_from(index: int, cost: float) -> None:
        nonlocal best
        if cost + rest[index] >= best:
            return
        if index == len(options):
            best = cost
            return
        share = case.talkers[index].task.cpu_share
        for more, cpu in options[index]:
            if cpu is None:
                try_from(index + 1, cost + more)
            elif load[cpu] + share <= 1 + 1e-9:
                load[cpu] += share
                try_from(index + 1, cost + more)
                load[cpu] -= share

    try_from(0, 0.0)
    return best


def most_seated(case: Case) -> float:
    """The most traffic that can be seated when all shares are equal: matching with augmenting paths, heaviest first."""
    seats = case.seats()
    share = case.talkers[0].task.cpu_share
    slots = {cpu: int((1 - load) / share + 1e-9) for cpu, load in enumerate(seats.load) if load != inf}
    reach = [reachable(seats, talker) for talker in case.talkers]
    sitting: dict[int, list[int]] = {cpu: [] for cpu in slots}

    def seat(index: int, tried: set[int]) -> bool:
        for cpu in reach[index]:
            if cpu in tried or not slots[cpu]:
                continue
            tried.add(cpu)
            if len(sitting[cpu]) < slots[cpu]:
                sitting[cpu].append(index)
                return True
            for place, other in enumerate(sitting[cpu]):
                if seat(other, tried):
                    sitting[cpu][place] = index
                    return True
        return False

    return sum(talker.rate for index, talker in enumerate(case.talkers) if seat(index, set()))


def _talkers(random: Random, count: int, cpus: list[int], interrupts: list[int], share: float | None) -> list[Talker]:
    talkers = []
    for pid in range(1, count + 1):
        at = random.sample(interrupts, min(len(interrupts), random.choice([1, 1, 2, 3])))
        weights = sorted((random.uniform(0.1, 1.0) for _ in at), reverse=True)
        own = share if share is not None else random.uniform(0.2, 0.6)
        task = NetTask(pid, 0, "made", None, 1, "", "", _NOWHERE, own, 0.0, [])
        flow = Flow(tuple(at), tuple(weight / sum(weights) for weight in weights))
        allowed = None if random.random() < 0.8 else frozenset(random.sample(cpus, max(1, len(cpus) // 2)))
        talkers.append(Talker(task, random.uniform(1e5, 1e8), flow, 0.0, allowed))
    return sorted(talkers, key=lambda talker: (-talker.rate, talker.task.pid))


def small_case(random: Random) -> Case:
    """Up to 8 CPUs in one or two L3s, up to 6 processes, interrupts anywhere."""
    topology = make_topology(
        packages=random.choice([1, 2]), nodes_per_package=1, cores_per_node=2, threads=random.choice([1, 2])
    )
    cpus = [cpu.cpu for cpu in topology.cpus]
    base = [random.choice([0.0, random.uniform(0, 0.7)]) for _ in cpus]
    interrupts = random.sample(cpus, random.randint(1, min(4, len(cpus))))
    return Case(topology, base, _talkers(random, random.randint(2, 6), cpus, interrupts, None))


def large_topology() -> Topology:
    """256 CPUs: two packages, each with two NUMA nodes; an L3 for every eight cores of two threads."""
    whole = make_topology(packages=2, nodes_per_package=2, cores_per_node=32, threads=2)
    l3 = [Cache(3, "Unified", 32 << 20, f"{core}-{core + 7},{core + 128}-{core + 135}") for core in range(0, 128, 8)]
    return Topology(whole.cpus, whole.numa_nodes, [*(c for c in whole.caches if c.level == 2), *l3])


def large_case(random: Random, *, processes: int = 500, share: float = 0.25) -> Case:
    """Equal shares on 256 CPUs; interrupts crowd on some L3s, so that not everybody finds a seat."""
    topology = large_topology()
    cpus = [cpu.cpu for cpu in topology.cpus]
    base = [random.uniform(0, 0.7) for _ in cpus]
    interrupts = [cpu for cpu in cpus if cpu % 128 // 8 in range(random.randint(3, 10))]
    return Case(topology, base, _talkers(random, processes, cpus, random.sample(interrupts, 24), share))
