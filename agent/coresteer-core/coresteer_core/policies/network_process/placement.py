"""Which CPUs each of some communicating processes should have, all in one round, so that they do not pile up."""

from collections.abc import Callable, Sequence
from math import ceil, inf

from msgspec import Struct

from coresteer_core.cpuset import format_cpu_list
from coresteer_core.node.load import Load
from coresteer_core.node.tasks import NetTask
from coresteer_core.policies.distance import Reach, Ring
from coresteer_core.policies.network_process.capacity import Flow, Seats
from coresteer_core.policies.skipped import Reason, Why

GAIN = 1.0
"""A placed process moves nearer when its packets' mean distance falls by so much (units of rings.DISTANCE)."""
CALM = 0.6
"""And when its new CPU has at most this load with it.

Less than where irq-spread begins to move interrupts away: a process that followed its interrupt onto a CPU that gets
too busy by that would chase it for ever.
"""
CLEARLY = 0.2
"""For load alone it moves only where it finds so much less of it."""
FULL = 0.95
"""A CPU's load with the process from which on it is over the limit too: what it would use more is not seen."""
QUEUE_SHARE = 0.1
"""A CPU that handles this share of a process's packets is one of those that its threads are spread over."""
_GROWTH = 1.5
_KNOWN_WELL = 0.005
"""With less of its bytes arriving at CPUs that are not known that is not worth a word."""
_RELATION = {
    Reach.SMT: "is a thread of the same core",
    Reach.L2: "shares its L2 cache",
    Reach.L3: "shares its L3 cache",
    Reach.NUMA: "is on its NUMA node",
}
_WITHIN = {
    Reach.CPU: "",
    Reach.SMT: ", and no other thread of its core has room",
    Reach.L2: ", and no CPU that shares its L2 cache has room",
    Reach.L3: ", and no CPU that shares its L3 cache has room",
    Reach.NUMA: ", and no CPU of its NUMA node has room",
}

_HAS_IT = Why(
    "{0:cpus} handles {1:.0f} % of this task's packets and has it, load {2:.2f} ≤ {4} without it.",
    "Each has the CPU that handles the most of its packets, {1:.0f} %: {0:cpus}, load {2:.2f} ≤ {4} without it.",
)
_HAS_IT_PARTLY = Why(
    "{0:cpus} handles {1:.0f} % of this task's packets (where {3:.0f} % arrive is not known) and has it, "
    "load {2:.2f} ≤ {4} without it.",
    "Each has the CPU that handles the most of its packets, {1:.0f} % (where {3:.0f} % arrive is not known): {0:cpus}, "
    "load {2:.2f} ≤ {4} without it.",
)
_NEAR = Why(
    "{0:cpus} handles {1:.0f} % of this task's packets; it has {5:cpus}, load {2:.2f} without it, and nothing with "
    "room is nearer by {6} than its mean distance of {4:.1f}.",
    "Each has CPUs near to its packets: {5:cpus}, load {2:.2f} without it, and nothing with room is nearer by {6} than "
    "its mean distance of {4:.1f}.",
)
_NEAR_PARTLY = Why(
    "{0:cpus} handles {1:.0f} % of this task's packets (where {3:.0f} % arrive is not known); it has {5:cpus}, "
    "load {2:.2f} without it, and nothing with room is nearer by {6} than its mean distance of {4:.1f}.",
    "Each has CPUs near to its packets (where {3:.0f} % arrive is not known): {5:cpus}, load {2:.2f} without it, and "
    "nothing with room is nearer by {6} than its mean distance of {4:.1f}.",
)
_LOAD_UNKNOWN = Why("Stays on {0:cpus}, whose load is not known.", "Stay on {0:cpus}, whose load is not known.")
_CROWDED = Why(
    "{0}", "They run on {1:cpus} at load {2:.2f}, over the limit, but no CPU in reach is lower by {3} for one of them."
)
_NO_ROOM = Why("{0}", "The most packets of each arrive on a CPU of {1:cpus} without room for it{2}.")
_EXCLUDED = Why("{0}", "The most packets of each arrive on a CPU of {1:cpus}; its cpuset has none within {2} of that.")


class Talker(Struct, gc=False):
    """A process to be placed. allowed: None when it may have every usable CPU. cpus: where it is placed, in order.

    favoured: CPUs wanted for it in an earlier round and not written yet. unknown: share of its bytes that arrives at
    CPUs that are not known.
    """

    task: NetTask
    rate: float
    flow: Flow
    unknown: float
    allowed: frozenset[int] | None
    cpus: tuple[int, ...] = ()
    favoured: tuple[int, ...] = ()


class Verdict(Struct, gc=False):
    """Where a process should be. cpus: empty where nothing in reach has room. stuck: its cpuset leaves it nothing."""

    talker: Talker
    cpus: tuple[int, ...]
    why: Reason | str
    stuck: bool = False


class Placing:
    """One round's placements; every one takes room on its CPUs."""

    def __init__(self, seats: Seats, load: Load, talkers: list[Talker]) -> None:
        own: dict[int, float] = {}
        for talker in talkers:
            task = talker.task
            if talker.cpus:
                for cpu in talker.cpus:
                    own[cpu] = own.get(cpu, 0.0) + task.cpu_share / len(talker.cpus)
            else:
                own[task.cpu] = own.get(task.cpu, 0.0) + min(task.cpu_share, 1.0)
        self.seats = seats
        self.talkers = talkers
        self._limit = f"{seats.max_load:.2f}"
        self.seats.count(load, own)

    def verdicts(self) -> list[Verdict]:
        """On every process: first those that leave a CPU over the limit, then by traffic, the most first."""
        for talker in self.talkers:
            if talker.cpus:
                self.seats.take(talker.cpus, talker.task.cpu_share)
        over: list[Talker] = []
        others: list[tuple[Talker, float]] = []
        staying: list[Verdict] = []
        for talker in self.talkers:
            if not talker.cpus:
                others.append((talker, inf))
                continue
            cost = self.seats.cost(talker.flow, talker.cpus)
            beside = self._beside(talker)
            if self._astray(talker):
                others.append((talker, inf))
            elif self._is_over(talker, beside):
                over.append(talker)
            elif cost < GAIN or (talker.task.threads == 1 and cost - self.seats.lowest(talker.flow) < GAIN):
                staying.append(Verdict(talker, talker.cpus, self._stays(talker, beside, cost)))
            else:
                others.append((talker, cost))
        over.sort(key=lambda talker: (talker.rate, talker.task.pid))
        others.sort(key=lambda other: (-other[0].rate, other[0].task.pid))
        found = [self._relieve(talker) for talker in over]
        for talker, cost in others:
            found.append(self._seat(talker) if cost == inf else self._nearer(talker, cost))
        return found + staying

    def _beside(self, talker: Talker) -> float:
        """Load of a process's CPUs without itself, the mean of several."""
        cpus, load = talker.cpus, self.seats.load
        if len(cpus) == 1:
            return load[cpus[0]] - talker.task.cpu_share
        return (sum([load[cpu] for cpu in cpus]) - talker.task.cpu_share) / len(cpus)

    def _is_over(self, talker: Talker, beside: float) -> bool:
        """Whether its CPUs are over a limit, with that load beside it."""
        if beside == inf:
            return False
        return beside > self.seats.max_load or beside + talker.task.cpu_share / len(talker.cpus) > FULL

    def _astray(self, talker: Talker) -> bool:
        """It has a CPU that it may not have, or that is near to none of its packets."""
        seats, allowed, flow = self.seats, talker.allowed, talker.flow
        for cpu in talker.cpus:
            if cpu not in seats.usable or (allowed is not None and cpu not in allowed):
                return True
            if cpu != flow.cpus[0] and not seats.in_reach(flow, cpu):
                return True
        return False

    def _count(self, talker: Talker) -> int:
        """How many CPUs it asks for: by what its threads use, or by those that handle its packets."""
        task = talker.task
        if task.threads <= 1:
            return 1
        queues = sum(1 for share in talker.flow.shares if share >= QUEUE_SHARE)
        return max(1, min(task.threads, max(self._least(task), queues)))

    def _least(self, task: NetTask) -> int:
        return 1 if task.threads <= 1 else min(task.threads, ceil(task.cpu_share / self.seats.max_load))

    def _find(
        self, talker: Talker, count: int, limit: Callable[[float], float], below: float = inf
    ) -> tuple[tuple[int, ...], Ring | None]:
        """The best CPUs for a process under a limit of load, none when there are too few or their cost is not below."""
        seats, share = self.seats, talker.task.cpu_share
        if count == 1:
            favour = talker.favoured[0] if len(talker.favoured) == 1 else None
            seat = seats.nearest(talker.flow, limit(share), talker.allowed, below, favour)
            return ((), None) if seat is None else ((seat.cpu,), seat.ring)
        least = self._least(talker.task)
        while count >= max(least, 1):
            cpus = seats.spread(talker.flow, count, limit(share / count), talker.allowed)
            if len(cpus) == count:
                cost = seats.cost(talker.flow, cpus)
                favoured = talker.favoured
                if len(favoured) == count and all(seats.load[cpu] <= limit(share / count) for cpu in favoured):
                    favoured_cost = seats.cost(talker.flow, favoured)
                    if favoured_cost < min(cost + GAIN, below):
                        return favoured, None
                return (cpus, None) if cost < below else ((), None)
            count = len(cpus)
        return (), None

    def _seat(self, talker: Talker) -> Verdict:
        """A first placement, or a new one in the place of one that will not do."""
        if talker.cpus:
            self.seats.take(talker.cpus, -talker.task.cpu_share)
        count = self._count(talker)
        cpus, ring = self._find(talker, count, self._calm) if talker.cpus else ((), None)
        if not cpus:
            cpus, ring = self._find(talker, count, self.seats.limit)
        if not cpus:
            excluded = talker.allowed is not None and self._excluded(talker, talker.allowed)
            return Verdict(talker, (), self._no_room(talker, excluded=excluded), excluded)
        why = self._why(talker, cpus, ring)
        self.seats.take(cpus, talker.task.cpu_share)
        return Verdict(talker, cpus, why)

    def _calm(self, need: float) -> float:
        """The limit of load for a process that has been placed before."""
        return min(self.seats.limit(need), CALM - min(need, CALM) + 1e-9)

    def _nearer(self, talker: Talker, cost: float) -> Verdict:
        share = talker.task.cpu_share
        self.seats.take(talker.cpus, -share)
        cpus, ring = self._find(talker, self._count(talker), self._calm, cost - GAIN + 1e-9)
        if cpus:
            why = self._why(talker, cpus, ring)
            self.seats.take(cpus, share)
            return Verdict(talker, cpus, why)
        self.seats.take(talker.cpus, share)
        return Verdict(talker, talker.cpus, self._stays(talker, self._beside(talker), cost))

    def _relieve(self, talker: Talker) -> Verdict:
        """Away from CPUs over the limit, where others have clearly less load; more of them for many threads."""
        others = self._beside(talker)
        if not self._is_over(talker, others):  # another process has left
            return Verdict(talker, talker.cpus, self._stays(talker, others))
        task, count = talker.task, len(talker.cpus)
        share = task.cpu_share
        total = others + share / count
        crowded = (
            f"{name_cpus(talker.cpus)} {_verb(talker.cpus, 'is', 'are')} at load {total:.2f} with this task, "
            f"{others:.2f} without it"
        )
        limit = self.seats.limit
        self.seats.take(talker.cpus, -share)
        more = min(task.threads, max(count + 1, ceil(count * _GROWTH)))
        for wanted in dict.fromkeys((more, count) if total > FULL else (count,)):
            cpus, _ = self._find(talker, wanted, lambda need: min(limit(need), total - need - CLEARLY))
            if cpus and set(cpus) != set(talker.cpus):
                loads = max(self.seats.load[cpu] for cpu in cpus)
                self.seats.take(cpus, share)
                why = (
                    f"{crowded} (limits {FULL:.2f} and {self.seats.max_load:.2f}); "
                    f"{name_cpus(cpus)} {_verb(cpus, 'is', 'are')} at {loads:.2f}. {self._handled(talker)}."
                )
                return Verdict(talker, cpus, why)
        self.seats.take(talker.cpus, share)
        why_not = f"{crowded}, but no CPU in reach is lower by {CLEARLY:.2f}."
        return Verdict(talker, talker.cpus, Reason(_CROWDED, (why_not, talker.cpus, total), (f"{CLEARLY:.2f}",)))

    def _excluded(self, talker: Talker, allowed: frozenset[int]) -> bool:
        seats = self.seats
        return not any(
            cpu in allowed and cpu in seats.usable
            for centre in seats.centres(talker.flow)
            for ring in seats.rings.around(centre, seats.reach)
            for cpu in ring.cpus
        )

    # Sentences

    def _handled(self, talker: Talker, cpus: Sequence[int] = ()) -> str:
        flow = talker.flow
        at = cpus or flow.cpus[:1]
        share = flow.shares[0]
        if cpus:
            share = sum(part for cpu, part in zip(flow.cpus, flow.shares, strict=True) if cpu in at)
        percent = (1.0 - talker.unknown) * share * 100
        text = f"{name_cpus(at)} {_verb(at, 'handles', 'handle')} {percent:.0f} % of this task's packets"
        return (
            text if talker.unknown < _KNOWN_WELL else f"{text} (where {talker.unknown * 100:.0f} % arrive is not known)"
        )

    def _why(self, talker: Talker, cpus: tuple[int, ...], ring: Ring | None) -> str:
        """Why these CPUs; to be asked before they are taken."""
        seats, limit = self.seats, self.seats.max_load
        load = max(seats.load[cpu] for cpu in cpus)
        if len(cpus) > 1:
            task = talker.task
            handling = [cpu for cpu in cpus if cpu in talker.flow.cpus]
            handled = self._handled(talker, handling)
            return (
                f"{handled}; its {task.threads} threads use {task.cpu_share:.2f} CPUs and get "
                f"{name_cpus(cpus)}, load at most {load:.2f} ≤ {limit:.2f}."
            )
        heavy, cpu = talker.flow.cpus[0], cpus[0]
        if cpu == heavy:
            return f"{self._handled(talker)}, load {load:.2f} ≤ {limit:.2f}."
        relation = seats.relation(heavy, cpu)
        how = _RELATION.get(relation, "is nearest to all") if relation is not None else "is nearest to all"
        return (
            f"{self._handled(talker)}; {self._against(talker, heavy)}. CPU {cpu} {how}, load {load:.2f} ≤ {limit:.2f}."
        )

    def _against(self, talker: Talker, cpu: int) -> str:
        """Why a process does not get the CPU that handles the most of its packets."""
        seats, share = self.seats, talker.task.cpu_share
        load = seats.load[cpu]
        reasons = (
            (cpu not in seats.usable, "that CPU is kept free by isolcpus or nohz_full"),
            (
                talker.allowed is not None and cpu not in talker.allowed,
                f"its cpuset has only {name_cpus(sorted(talker.allowed or ()))}",
            ),
            (load == inf, "the load of that CPU is not known"),
            (load > seats.max_load, f"its load {load:.2f} is over {seats.max_load:.2f}"),
            (load > seats.limit(share), f"its load {load:.2f} leaves no room for the {share:.2f} that this task uses"),
            (
                bool(talker.cpus) and load > self._calm(share),
                f"with it that CPU's load {load:.2f} would be over {CALM:.2f}",
            ),
        )
        return next((why for holds, why in reasons if holds), "another is nearer to all of them")

    def _no_room(self, talker: Talker, *, excluded: bool) -> Reason:
        seats = self.seats
        heavy = talker.flow.cpus[0]
        against = self._against(talker, heavy)
        if excluded:
            sentence = f"{self._handled(talker)}; {against}, none of them within {seats.reach.value} of it."
            return Reason(_EXCLUDED, (sentence, (heavy,)), (seats.reach.value,))
        reach = [
            c for centre in seats.centres(talker.flow) for r in seats.rings.around(centre, seats.reach) for c in r.cpus
        ]
        best = seats.least(tuple(reach), talker.allowed)
        least = (
            ""
            if best is None or seats.load[best] == inf
            else f" (CPU {best} has the least load, {seats.load[best]:.2f})"
        )
        count = self._least(talker.task)
        needs = f"; this task needs {count} CPUs" if count > 1 else ""
        sentence = f"{self._handled(talker)}; {against}{_WITHIN[seats.reach]}{least}{needs}."
        return Reason(_NO_ROOM, (sentence, (heavy,)), (_WITHIN[seats.reach],))

    def _stays(self, talker: Talker, beside: float, cost: float | None = None) -> Reason:
        cpus, flow, unknown = talker.cpus, talker.flow, talker.unknown
        if beside == inf:
            return Reason(_LOAD_UNKNOWN, (cpus,))
        heavy = flow.cpus[:1]
        figures = (heavy, (1.0 - unknown) * flow.shares[0] * 100, beside, unknown * 100)
        if cpus == heavy:
            return Reason(_HAS_IT if unknown < _KNOWN_WELL else _HAS_IT_PARTLY, figures, (self._limit,))
        distance = self.seats.cost(flow, cpus) if cost is None else cost
        return Reason(_NEAR if unknown < _KNOWN_WELL else _NEAR_PARTLY, (*figures, distance, cpus), (f"{GAIN:.1f}",))


def name_cpus(cpus: Sequence[int]) -> str:
    """``CPU 3`` or ``CPUs 0-2,8``."""
    if len(cpus) == 1:
        return f"CPU {cpus[0]}"
    return f"CPU{'s' if len(cpus) != 1 else ''} {format_cpu_list(cpus)}"


def _verb(cpus: Sequence[int], one: str, many: str) -> str:
    return one if len(cpus) == 1 else many
