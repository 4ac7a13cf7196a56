"""Explain in sentences with numbers why a process is placed on CPUs, stays or cannot be placed."""

from collections.abc import Sequence
from math import ceil, inf

from msgspec import Struct

from coresteer_core.cpuset import format_cpu_list
from coresteer_core.node.distance import LOCALITY_NAME, Locality
from coresteer_core.node.tasks import NetTask
from coresteer_core.policies.network_process.capacity import MAX_LOAD_AFTER_MOVE, CpuCapacity, PacketShares
from coresteer_core.policies.skipped import Reason, ReasonText

MIN_DISTANCE_GAIN = 1.0
"""Least fall of the packets' mean distance (see distance.DISTANCE) for which a placed process moves."""
MIN_LOAD_GAIN = 0.2
"""Least fall of the load (0 to 1) of its CPUs for which a process on overloaded CPUs moves."""
FULL_LOAD = 0.95
"""Load (0 to 1) above which a CPU is overloaded: higher demand would not be visible."""

_MIN_UNKNOWN = 0.005
"""Share of bytes handled on unknown CPUs below which sentences do not mention it."""
_RELATION = {
    Locality.SMT: "is a thread of the same core",
    Locality.L2: "shares its L2 cache",
    Locality.L3: "shares its L3 cache",
    Locality.NUMA: "is on its NUMA node",
}
_NO_ROOM_WITHIN = {
    Locality.CPU: "",
    Locality.SMT: ", and no other thread of its core has room",
    Locality.L2: ", and no CPU that shares its L2 cache has room",
    Locality.L3: ", and no CPU that shares its L3 cache has room",
    Locality.NUMA: ", and no CPU of its NUMA node has room",
}

_ON_PACKETS_CPU = ReasonText(
    "It runs on {0:cpus}, which handles {1:.0f} % of its packets, load {2:.2f} ≤ {4} without it.",
    "Each runs on the CPU that handles the most of its packets, {1:.0f} %: {0:cpus}, load {2:.2f} ≤ {4} without it.",
)
_ON_PACKETS_CPU_PARTLY = ReasonText(
    "It runs on {0:cpus}, which handles {1:.0f} % of its packets ({3:.0f} % on unknown CPUs), "
    "load {2:.2f} ≤ {4} without it.",
    "Each runs on the CPU that handles the most of its packets, {1:.0f} % ({3:.0f} % on unknown CPUs): {0:cpus}, "
    "load {2:.2f} ≤ {4} without it.",
)
_NEAR_PACKETS = ReasonText(
    "{0:cpus} handles {1:.0f} % of its packets; it runs on {5:cpus}, load {2:.2f} without it, and no CPU with room "
    "reduces the mean distance {4:.1f} by {6}.",
    "Each runs near its packets on {5:cpus}, load {2:.2f} without it, and no CPU with room reduces its mean distance "
    "{4:.1f} by {6}.",
)
_NEAR_PACKETS_PARTLY = ReasonText(
    "{0:cpus} handles {1:.0f} % of its packets ({3:.0f} % on unknown CPUs); it runs on {5:cpus}, load {2:.2f} without "
    "it, and no CPU with room reduces the mean distance {4:.1f} by {6}.",
    "Each runs near its packets ({3:.0f} % on unknown CPUs) on {5:cpus}, load {2:.2f} without it, and no CPU with room "
    "reduces its mean distance {4:.1f} by {6}.",
)
_LOAD_UNKNOWN = ReasonText(
    "It stays on {0:cpus}, whose load is not known.", "They stay on {0:cpus}, whose load is not known."
)
_OVERLOADED = ReasonText(
    "{0}",
    "They run on {1:cpus} at load {2:.2f}, over the limit, but no CPU near their packets has a load lower by {3}.",
)
_NO_ROOM = ReasonText("{0}", "The CPU that handles most of the packets of each ({1:cpus}) has no room for it{2}.")
_EXCLUDED = ReasonText(
    "{0}", "Most packets of each are handled on {1:cpus}; its cpuset has no CPU within the {2} of that one."
)


class Candidate(Struct, gc=False):
    """A process to be placed on CPUs, with its traffic and the CPUs that handle it.

    rate: its bytes/s. unknown: share of them that is handled on unknown CPUs. allowed: None when it may use every
    usable CPU. cpus: where the policy has placed it, ascending. preferred: CPUs proposed in an earlier round and not
    written yet.
    """

    task: NetTask
    rate: float
    packets: PacketShares
    unknown: float
    allowed: frozenset[int] | None
    cpus: tuple[int, ...] = ()
    preferred: tuple[int, ...] = ()


class Placement(Struct, gc=False):
    """CPUs chosen for a process, and why. cpus: empty without room. excluded: its cpuset has none near its packets."""

    candidate: Candidate
    cpus: tuple[int, ...]
    why: Reason | str
    excluded: bool = False


class Explanations:
    """Sentences that explain the placements of one round; to be called before a placement reserves its CPUs."""

    def __init__(self, capacity: CpuCapacity) -> None:
        self._capacity = capacity

    def needed_cpus(self, task: NetTask) -> int:
        """Return the least number of CPUs with which no thread of a process exceeds max_load; one each if that is 0."""
        if task.threads <= 1:
            return 1
        limit = self._capacity.max_load
        return min(task.threads, ceil(task.cpu_share / limit)) if limit else task.threads

    def placed(self, candidate: Candidate, cpus: tuple[int, ...]) -> str:
        """Return a sentence that says why a process is placed on these CPUs."""
        capacity, limit = self._capacity, self._capacity.max_load
        load = max(capacity.load[cpu] for cpu in cpus)
        if len(cpus) > 1:
            task = candidate.task
            handling = [cpu for cpu in cpus if cpu in candidate.packets.cpus]
            return (
                f"{self._handled(candidate, handling)}; its {task.threads} threads use {task.cpu_share:.2f} CPUs and "
                f"get {name_cpus(cpus)}, load at most {load:.2f} ≤ {limit:.2f}."
            )
        heavy, cpu = candidate.packets.cpus[0], cpus[0]
        if cpu == heavy:
            return f"{self._handled(candidate)}, load {load:.2f} ≤ {limit:.2f}."
        relation = capacity.nearest_shared_unit(heavy, cpu)
        how = _RELATION.get(relation, "") if relation is not None else ""
        return (
            f"{self._handled(candidate)}; {self._against(candidate, heavy)}. "
            f"CPU {cpu} {how or 'has the least mean distance'}, load {load:.2f} ≤ {limit:.2f}."
        )

    def unchanged(self, candidate: Candidate, beside: float, cost: float | None = None) -> Reason:
        """Return why a process stays on its CPUs. beside: their load without it; cost: its packets' mean distance."""
        cpus, packets, unknown = candidate.cpus, candidate.packets, candidate.unknown
        if beside == inf:
            return Reason(_LOAD_UNKNOWN, (cpus,))
        heavy = packets.cpus[:1]
        figures = (heavy, (1.0 - unknown) * packets.shares[0] * 100, beside, unknown * 100)
        known = unknown < _MIN_UNKNOWN
        if cpus == heavy:
            limit = f"{self._capacity.max_load:.2f}"
            return Reason(_ON_PACKETS_CPU if known else _ON_PACKETS_CPU_PARTLY, figures, (limit,))
        distance = self._capacity.mean_distance(packets, cpus) if cost is None else cost
        text = _NEAR_PACKETS if known else _NEAR_PACKETS_PARTLY
        return Reason(text, (*figures, distance, cpus), (f"{MIN_DISTANCE_GAIN:.1f}",))

    def relieved(self, candidate: Candidate, total: float, others: float, cpus: tuple[int, ...]) -> str:
        """Return a sentence that says why a process leaves overloaded CPUs. total, others: load with and without it."""
        load = max(self._capacity.load[cpu] for cpu in cpus)
        return (
            f"{_overloaded(candidate, total, others)} (limits {FULL_LOAD:.2f} and {self._capacity.max_load:.2f}); "
            f"{name_cpus(cpus)} {_verb(cpus, 'has', 'have')} load {load:.2f}. {self._handled(candidate)}."
        )

    def not_relieved(self, candidate: Candidate, total: float, others: float) -> Reason:
        """Return why a process stays on overloaded CPUs."""
        sentence = (
            f"{_overloaded(candidate, total, others)}, but no CPU near its packets has a load lower by "
            f"{MIN_LOAD_GAIN:.2f}."
        )
        return Reason(_OVERLOADED, (sentence, candidate.cpus, total), (f"{MIN_LOAD_GAIN:.2f}",))

    def no_room(self, candidate: Candidate, *, excluded: bool) -> Reason:
        """Return why no CPU near its packets can run a process. excluded: because of its cpuset."""
        capacity = self._capacity
        heavy = candidate.packets.cpus[0]
        against = self._against(candidate, heavy)
        unit = capacity.max_locality
        if excluded:
            name = LOCALITY_NAME[unit]
            sentence = f"{self._handled(candidate)}; {against}, none of them within the {name} of CPU {heavy}."
            return Reason(_EXCLUDED, (sentence, (heavy,)), (name,))
        near = [
            cpu
            for centre in capacity.search_centres(candidate.packets)
            for group in capacity.distances.groups_around(centre, unit)
            for cpu in group.cpus
        ]
        best = capacity.least_loaded(tuple(near), candidate.allowed)
        least = ""
        if best is not None and capacity.load[best] != inf:
            least = f" (CPU {best} has the least load, {capacity.load[best]:.2f})"
        count = self.needed_cpus(candidate.task)
        needs = f"; this task needs {count} CPUs" if count > 1 else ""
        sentence = f"{self._handled(candidate)}; {against}{_NO_ROOM_WITHIN[unit]}{least}{needs}."
        return Reason(_NO_ROOM, (sentence, (heavy,)), (_NO_ROOM_WITHIN[unit],))

    def _handled(self, candidate: Candidate, cpus: Sequence[int] = ()) -> str:
        """Return e.g. ``CPU 3 handles 71 % of this task's packets``; cpus: default the CPU with the most."""
        packets = candidate.packets
        at = cpus or packets.cpus[:1]
        share = packets.shares[0]
        if cpus:
            share = sum(part for cpu, part in zip(packets.cpus, packets.shares, strict=True) if cpu in at)
        percent = (1.0 - candidate.unknown) * share * 100
        text = f"{name_cpus(at)} {_verb(at, 'handles', 'handle')} {percent:.0f} % of this task's packets"
        unknown = candidate.unknown
        return text if unknown < _MIN_UNKNOWN else f"{text} ({unknown * 100:.0f} % are handled on unknown CPUs)"

    def _against(self, candidate: Candidate, cpu: int) -> str:
        """Return why a process does not get the CPU that handles most of its packets."""
        capacity, share = self._capacity, candidate.task.cpu_share
        load = capacity.load[cpu]
        reasons = (
            (cpu not in capacity.usable, "that CPU is isolated or reserved"),
            (
                candidate.allowed is not None and cpu not in candidate.allowed,
                f"its cpuset has only {name_cpus(sorted(candidate.allowed or ()))}",
            ),
            (load == inf, "the load of that CPU is not known"),
            (load > capacity.max_load, f"its load {load:.2f} is over {capacity.max_load:.2f}"),
            (
                load > capacity.load_limit(share),
                f"its load {load:.2f} leaves no room for the {share:.2f} that this task uses",
            ),
            (
                bool(candidate.cpus) and load > capacity.load_limit_after_move(share),
                f"with this task that CPU's load {load:.2f} would be over {MAX_LOAD_AFTER_MOVE:.2f}",
            ),
        )
        return next((why for holds, why in reasons if holds), "another CPU has a lower mean distance")


def _overloaded(candidate: Candidate, total: float, others: float) -> str:
    cpus = candidate.cpus
    return f"{name_cpus(cpus)} {_verb(cpus, 'has', 'have')} load {total:.2f} with this task, {others:.2f} without it"


def name_cpus(cpus: Sequence[int]) -> str:
    """Return ``CPU 3`` or ``CPUs 0-2,8``."""
    if len(cpus) == 1:
        return f"CPU {cpus[0]}"
    return f"CPU{'s' if len(cpus) != 1 else ''} {format_cpu_list(cpus)}"


def _verb(cpus: Sequence[int], one: str, many: str) -> str:
    return one if len(cpus) == 1 else many
