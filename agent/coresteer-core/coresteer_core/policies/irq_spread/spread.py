"""Move interrupts between CPUs in one round, each for one of the four reasons in policy.py."""

from collections.abc import Iterable
from math import inf

from msgspec import Struct

from coresteer_core.cpuset import format_cpu_list
from coresteer_core.node.view import View
from coresteer_core.policies.base import Proposal
from coresteer_core.policies.irq_load import ActiveIrq, PendingMove
from coresteer_core.policies.skipped import Reason, ReasonText

_FORBIDDEN = ReasonText(
    "{0:cpus}, {1:.0f} % busy, is isolated or excluded, but the load of no CPU of {3} is known.",
    "They arrive on {0:cpus}, isolated or excluded, but the load of no CPU of {3} is known.",
)
_QUIET = ReasonText(
    "It uses {2:.1f} percentage points of {0:cpus}, {1:.0f} % busy: too little to move it.",
    "Each uses {2:.1f} percentage points of {0:cpus}, {1:.0f} % busy: too little to move it.",
)
_RELIEVED = ReasonText(
    "{0:cpus}, {1:.0f} % busy, is relieved by moving other interrupts.",
    "They arrive on {0:cpus}, {1:.0f} % busy, relieved by moving other interrupts.",
)
_NO_OTHER = ReasonText(
    "{0:cpus} is {1:.0f} % busy, but the load of no other CPU of {3} is known.",
    "They arrive on {0:cpus}, {1:.0f} % busy, but the load of no other CPU of {3} is known.",
)
_OTHER_WORK = ReasonText(
    "{0:cpus} is {1:.0f} % busy, but interrupts that may move are only {3} percentage points of that.",
    "They arrive on {0:cpus}, {1:.0f} % busy, of which interrupts that may move are only {3} percentage points.",
)
_STOLEN = ReasonText(
    "{0:cpus} is {1:.0f} % busy, but {3} percentage points of that are steal time, which no move relieves.",
    "They arrive on {0:cpus}, {1:.0f} % busy, of which {3} percentage points are steal time, which no move relieves.",
)
_NO_GAP = ReasonText(
    "{0:cpus} is {1:.0f} % busy{6}: {3:cpus}, {7}, is {4:.0f} % busy, not {8} percentage points less.",
    "They arrive on {0:cpus}, {1:.0f} % busy,{6}: {7} is {4:.0f} % busy, not {8} percentage points less.",
)
_TOO_LARGE = ReasonText(
    "{0:cpus} is {1:.0f} % busy{6}: {3:cpus}, {7}, is {4:.0f} % busy and would reach {5:.0f} % with the {2:.0f} "
    "percentage points of this interrupt.",
    "They arrive on {0:cpus}, {1:.0f} % busy,{6}: {7} is {4:.0f} % busy and would reach {5:.0f} % with the {2:.0f} "
    "percentage points of one of them.",
)
_REMOTE = ReasonText(
    "{0:cpus}, {1:.0f} % busy, is not on the NUMA node of {7}, but the least busy CPU there, {3:cpus}, is {4:.0f} % "
    "busy and would reach {5:.0f} % with it, over {8} %.",
    "They arrive on {0:cpus}, {1:.0f} % busy, not on the NUMA node of {7}, but the least busy CPU there, {3:cpus}, is "
    "{4:.0f} % busy and would reach {5:.0f} % with one of them, over {8} %.",
)
_SHARING = ReasonText(
    "{0:cpus}, {1:.0f} % busy, also handles other queues of {7}, but the least busy CPU without them, {3:cpus}, is "
    "{4:.0f} % busy and would reach {5:.0f} % with this one, over {8} %.",
    "They arrive on {0:cpus}, {1:.0f} % busy, with other queues of {7}, but the least busy CPU without them, {3:cpus}, "
    "is {4:.0f} % busy and would reach {5:.0f} % with one of them, over {8} %.",
)
_ALL_SHARED = ReasonText(
    "{0:cpus}, {1:.0f} % busy, also handles other queues of {4}, as every CPU of {3} does.",
    "They arrive on {0:cpus}, {1:.0f} % busy, with other queues of {4}, which every CPU of {3} handles.",
)
_LATER = ReasonText(
    "{0:cpus} is {1:.0f} % busy: only this round's moves make room for it elsewhere.",
    "They arrive on {0:cpus}, {1:.0f} % busy: only this round's moves make room for one of them elsewhere.",
)
_BELOW = ReasonText("{0:cpus} is {1:.0f} % busy, below {3} %.", "They arrive on {0:cpus}, {1:.0f} % busy, below {3} %.")


class _QueueCounts(Struct):
    """Busy queue interrupts of one netdev on each CPU, and on each CPU's whole core: their number by _pair()."""

    cpus: dict[int, dict[str, int]]
    cores: dict[int, dict[str, int]]


class SpreadRound:
    """Interrupts of a node and the load of its CPUs while one round moves interrupts.

    found: most expensive first. load: of the CPUs, in percent. stolen: how much of it is steal time, which counts on a
    destination, but is no reason to move an interrupt away. forbidden: CPUs that must not handle interrupts. closed:
    CPUs to which none is moved, but where those that arrive there may stay. any_thread: the threads of a core count as
    separate CPUs.
    """

    def __init__(
        self,
        view: View,
        found: list[ActiveIrq],
        load: dict[int, float],
        stolen: dict[int, float],
        *,
        forbidden: frozenset[int],
        closed: frozenset[int],
        act_percent: float,
        gap_points: float,
        any_thread: bool,
    ) -> None:
        self._act_percent, self._gap_points = act_percent, gap_points
        self._found = found
        self._forbidden, self._closed = forbidden, closed
        self._before = load
        self._load = dict(load)
        self._stolen = stolen
        self._node = view.topology.nodes
        self._several_nodes = len(view.topology.numa_nodes) > 1
        itself = {cpu: frozenset((cpu,)) for cpu in view.topology.cores}
        self._cores = itself if any_thread else view.topology.cores
        """The CPUs that count as one with a CPU: those of its core, or only itself."""
        self._on: dict[int, list[ActiveIrq]] = {}
        self._queues: dict[str | None, _QueueCounts] = {}
        for each in found:
            self._on.setdefault(each.cpu, []).append(each)
            if each.busy:
                self._count(each, 1)
        self._hottest = max((self._before.get(each.cpu, 0.0) for each in found), default=0.0)
        self._lists: dict[frozenset[int], str] = {}
        self._least: dict[frozenset[int], float] = {}
        """Least load in percent of sets of CPUs, cached until the next move."""
        self._less_shared_cpus: dict[tuple[str | None, str, int, frozenset[int]], frozenset[int]] = {}
        """Results of _less_shared(), cached until the next move."""
        self._next: dict[tuple[frozenset[int], int], int | None] = {}
        """By allowed CPUs and present CPU, after the round: the least busy other one."""
        self.moving: dict[int, PendingMove] = {}
        self.proposals: list[Proposal] = []

    @property
    def _full(self) -> float:
        """Maximum load in percent of a destination CPU for moves for NUMA locality or queue separation."""
        return self._act_percent - self._gap_points

    def _work(self, cpu: int) -> float:
        """Return the load of a CPU in percent without steal time."""
        return self._load.get(cpu, 0.0) - self._stolen.get(cpu, 0.0)

    def moved(self, each: ActiveIrq) -> bool:
        """Return whether this round moves an interrupt."""
        return each.irq.irq in self.moving

    def vacate_forbidden(self) -> None:
        """Move all interrupts away from isolated and excluded CPUs."""
        for each in self._movable(self._found):
            if each.cpu in self._forbidden and (target := self._best(each, each.allowed)) is not None:
                self._move(each, target, f"It arrives on CPU {each.cpu}, which is isolated or excluded;")

    def relieve(self) -> None:
        """Move interrupts away from CPUs at or above the load threshold, busiest CPU and costliest interrupt first."""
        hot = [cpu for cpu in self._on if self._work(cpu) >= self._act_percent]
        for cpu in sorted(hot, key=lambda cpu: (-self._load[cpu], cpu)):
            movable = list(self._movable(self._on[cpu]))
            if self._together(movable) < self._gap_points / 2:
                continue
            for each in movable:
                load = self._load[cpu]
                if self._work(cpu) < self._act_percent:
                    break
                if each.busy and (target := self._best(each, self._relief(each))) is not None:
                    part = f"{each.cost:.0f} percentage points by this interrupt ({each.per_s:,.0f}/s)"
                    self._move(each, target, f"CPU {cpu} is {load:.0f} % busy, {part};")

    def move_to_local_node(self) -> None:
        """Move busy interrupts to their device's NUMA node while there is room."""
        for each in self._movable(self._found):
            if not each.busy or self._is_local(each):
                continue
            if (target := self._best(each, self._room(each, each.allowed))) is not None:
                node = self._node.get(each.cpu)
                self._move(each, target, f"It arrives on NUMA node {node}, not on that of {each.device};")

    def _is_local(self, each: ActiveIrq) -> bool:
        return each.cpu in each.allowed or each.cpu in self._closed

    def separate_queues(self) -> None:
        """Move busy queues of one netdev to separate CPUs while there is room; the most expensive one stays."""
        for each in self._movable(self._found):
            if not each.busy or each.irq.netdev is None or not (here := self._sharing_level(each, each.cpu)):
                continue
            room = self._room(each, self._less_shared(each, here))
            if not room or self._is_stationary(each, sharing := self._sharing(each)):
                continue
            if (target := self._best(each, room)) is not None:
                shared = f"CPU {each.cpu}" if here == 2 else f"the core of CPU {each.cpu}"
                many = f"{len(sharing)} other busy interrupt{'' if len(sharing) == 1 else 's'}"
                self._move(each, target, f"It shares {shared} with {many} of {each.device};")

    def why_not(self, each: ActiveIrq) -> Reason:
        """Return why this round does not move an interrupt."""
        load, act = self._before[each.cpu], self._act_percent
        common: tuple[str, ...]
        if each.cpu in self._forbidden:
            text, common = _FORBIDDEN, (self._cpus(each.allowed),)
        elif not each.busy:
            return Reason(_QUIET, ((each.cpu,), load, each.cost))
        elif load >= act > load - self._stolen.get(each.cpu, 0.0):
            text, common = _STOLEN, (f"{self._stolen[each.cpu]:.0f}",)
        elif load >= act and self._work(each.cpu) < act:
            text, common = _RELIEVED, ()
        elif load >= act:
            return self._why_not_relieved(each)
        elif not self._is_local(each):
            return self._why_no_room(each, each.allowed, _REMOTE, _NO_OTHER)
        elif here := self._sharing_level(each, each.cpu):
            return self._why_no_room(each, self._less_shared(each, here), _SHARING, _ALL_SHARED)
        else:
            text, common = _BELOW, (f"{act:g}",)
        return Reason(text, ((each.cpu,), load, each.cost + each.followers), common)

    def _why_not_relieved(self, each: ActiveIrq) -> Reason:
        """Return why an interrupt stays on a CPU above the load threshold, with the least busy CPU it may move to."""
        load, cost = self._load[each.cpu], each.cost + each.followers
        key = each.allowed, each.cpu
        if key not in self._next:
            others = [cpu for cpu in each.allowed if cpu != each.cpu and cpu in self._load]
            self._next[key] = min(others, key=lambda cpu: (self._load[cpu], cpu), default=None)
        target = self._next[key]
        if target is None:
            return Reason(_NO_OTHER, ((each.cpu,), load, cost), (self._cpus(each.allowed),))
        if (together := self._together(self._movable(self._on[each.cpu]))) < self._gap_points / 2:
            return Reason(_OTHER_WORK, ((each.cpu,), load, cost), (f"{together:.0f}",))
        there = self._load[target]
        text = _NO_GAP if there > load - self._gap_points else _TOO_LARGE
        only = len(each.allowed - {each.cpu}) == 1
        common = (
            " after this round's moves, and no further move would help"
            if self.proposals
            else " and no move would help",
            "the only other allowed CPU" if only else f"the least busy other CPU of {self._cpus(each.allowed)}",
            f"{self._gap_points:g}",
        )
        return Reason(text, ((each.cpu,), load, cost, (target,), there, there + cost), common)

    def _why_no_room(self, each: ActiveIrq, cpus: frozenset[int], full: ReasonText, none: ReasonText) -> Reason:
        """Return why an interrupt does not move to one of these CPUs. full: too busy with it; none: there is none."""
        cost = each.cost + each.followers
        own = ((each.cpu,), self._before[each.cpu], cost)
        known = [cpu for cpu in cpus if cpu != each.cpu and cpu in self._load]
        target = min(known, key=lambda cpu: (self._load[cpu], cpu), default=None)
        if target is None:
            return Reason(none, own, (self._cpus(each.allowed), each.device))
        there = self._load[target]
        if there + cost <= self._full:
            return Reason(_LATER, own)
        figures = (*own, (target,), there, there + cost)
        return Reason(full, figures, (self._cpus(each.allowed), each.device, f"{self._full:g}"))

    def _cpus(self, allowed: frozenset[int]) -> str:
        if allowed not in self._lists:
            self._lists[allowed] = format_cpu_list(allowed)
        return self._lists[allowed]

    def sentence(self) -> str:
        """Return a sentence with the number of active and moved interrupts and the highest CPU load."""
        movable = [each for each in self._found if each.blocked is None]
        if not movable:
            return "Nothing is moved: no movable interrupt was active."
        many = f"{len(movable)} active interrupt{'' if len(movable) == 1 else 's'}"
        return (
            f"{many}: {len(self.proposals)} to move; their CPUs are up to {self._hottest:.0f} % busy, the threshold is "
            f"{self._act_percent:g} %."
        )

    def _movable(self, some: list[ActiveIrq]) -> Iterable[ActiveIrq]:
        moving = self.moving
        return (each for each in some if each.blocked is None and each.irq.irq not in moving)

    @staticmethod
    def _together(some: Iterable[ActiveIrq]) -> float:
        """Return the percentage points that interrupts use; a CPU without a few is as busy as before."""
        return sum(each.cost + each.followers for each in some)

    def _relief(self, each: ActiveIrq) -> list[int]:
        load, gap = self._load[each.cpu], self._gap_points
        return self._up_to(min(load - gap, load - gap / 2 - each.cost - each.followers), each.allowed)

    def _room(self, each: ActiveIrq, cpus: frozenset[int]) -> list[int]:
        return self._up_to(self._full - each.cost - each.followers, cpus)

    def _up_to(self, percent: float, cpus: frozenset[int]) -> list[int]:
        """Return the CPUs whose load is at most this percentage; there is often none, so the least load is cached."""
        load = self._load
        if cpus not in self._least:
            self._least[cpus] = min((load[cpu] for cpu in cpus if cpu in load), default=inf)
        if self._least[cpus] > percent:
            return []
        return [cpu for cpu in cpus if cpu in load and load[cpu] <= percent]

    def _best(self, each: ActiveIrq, cpus: Iterable[int]) -> int | None:
        """Return the best destination: without a queue of the same netdev, then on a free core, then least loaded."""

        def order(cpu: int) -> tuple[int, bool, float, int]:
            beside = (other for sibling in self._cores[cpu] if sibling != cpu for other in self._on.get(sibling, ()))
            taken = any(other.busy and other is not each for other in beside)
            return self._sharing_level(each, cpu), taken, self._load[cpu], cpu

        return min((cpu for cpu in cpus if cpu != each.cpu and cpu in self._load), key=order, default=None)

    def _sharing(self, each: ActiveIrq) -> list[ActiveIrq]:
        """Return other busy queues of the netdev on the interrupt's CPU or (unless any_thread) core."""
        there = (other for one in sorted(self._core(each.cpu)) for other in self._on.get(one, ()))
        of_netdev = (other for other in there if other.busy and other.irq.netdev == each.irq.netdev)
        return [other for other in of_netdev if other is not each and _pair(other) != _pair(each)]

    def _core(self, cpu: int) -> frozenset[int]:
        return self._cores.get(cpu) or frozenset((cpu,))

    def _count(self, each: ActiveIrq, one: int) -> None:
        """Add a busy queue interrupt to (1) or remove it from (-1) the counts of its CPU and core."""
        queues = self._queues.setdefault(each.irq.netdev, _QueueCounts({}, {}))
        pair = _pair(each)
        for where, cpus in ((queues.cpus, (each.cpu,)), (queues.cores, self._core(each.cpu))):
            for cpu in cpus:
                pairs = where.setdefault(cpu, {})
                pairs[pair] = pairs.get(pair, 0) + one
                if not pairs[pair]:
                    del pairs[pair]
                if not pairs:
                    del where[cpu]

    def _sharing_level(self, each: ActiveIrq, cpu: int) -> int:
        """Return 2 where another busy queue of the netdev is on the CPU, 1 where one is on its core, else 0."""
        queues = self._queues.get(each.irq.netdev)
        if queues is None or each.irq.netdev is None:
            return 0
        pair = _pair(each)
        on_cpu, on_core = queues.cpus.get(cpu, {}), queues.cores.get(cpu, {})
        return 2 if len(on_cpu) > (pair in on_cpu) else int(len(on_core) > (pair in on_core))

    def _less_shared(self, each: ActiveIrq, here: int) -> frozenset[int]:
        """Return the allowed CPUs with a lower sharing level than the present one (here)."""
        pair = _pair(each)
        key = each.irq.netdev, pair, here, each.allowed
        if key not in self._less_shared_cpus:
            queues = self._queues[each.irq.netdev]
            there = queues.cpus if here == 2 else queues.cores
            taken = {cpu for cpu, pairs in there.items() if len(pairs) > (pair in pairs)}
            self._less_shared_cpus[key] = each.allowed - taken
        return self._less_shared_cpus[key]

    def _is_stationary(self, each: ActiveIrq, sharing: list[ActiveIrq]) -> bool:
        """Return whether an interrupt stays on its CPU while the others that share it move away."""

        def order(one: ActiveIrq) -> tuple[bool, float, int]:
            return one.blocked is None and not self.moved(one), -one.cost, one.irq.irq

        return all(order(each) < order(other) for other in sharing)

    def _move(self, each: ActiveIrq, target: int, why: str) -> None:
        node = self._node.get(target)
        on_node = f", on NUMA node {node}," if self._several_nodes and node is not None else ""
        reason = f"{why} CPU {target}{on_node} is {self._load[target]:.0f} % busy."
        self.proposals.append(Proposal(f"irq/{each.irq.irq}/affinity", str(target), each.subject, reason))
        self.moving[each.irq.irq] = PendingMove(each.cpu, target, self._before[each.cpu], self._before[target])
        self._least.clear()
        self._less_shared_cpus.clear()
        if each.busy:
            self._count(each, -1)
        for cpu, part in each.parts.items():
            self._load[cpu] -= part
        self._load[each.cpu] -= each.followers
        self._load[target] += each.cost + each.followers
        self._on[each.cpu].remove(each)
        self._on.setdefault(target, []).append(each)
        each.cpu = target
        if each.busy:
            self._count(each, 1)


def _pair(each: ActiveIrq) -> str:
    """Return what the receive and the send interrupt of two queues share that drivers place together: their number."""
    return each.irq.queues[0].rpartition("-")[2] if len(each.irq.queues) == 1 else f"IRQ {each.irq.irq}"
