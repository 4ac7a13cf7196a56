"""Interrupts spread over the CPUs near their devices, by load: what irqbalance does, aware of queues and isolation.

What an interrupt costs is its part, by arrivals, of the softirq time of the CPUs that it arrives on, or what its moves
have shown where that is more. A round goes through four reasons to move one, the most urgent first, and each move
counts in the load that the next one sees. Processes that were bound to the CPU of the interrupt by which they receive
come along, so that this policy and one that places processes do not chase each other:

1. It arrives on a CPU that is isolated or excluded.
2. Its CPU is at act_percent or more. It goes to one that is gap_points less loaded and would, with it, still be half of
   that gap below. So each move lowers the sum of the squares of the loads, and moves end.
3. It is busy on another NUMA node than its device's.
4. It is busy and shares a CPU, or unless any thread will do a core, with another busy queue of its netdev, while one
   without is there. This is done below the trigger too, as bursts fill one queue's CPU sooner than a mean shows, but it
   is done once: nothing of the four brings two queues together while there is such a CPU.

3 and 4 only fill a CPU up to gap_points below act_percent, so that they never start 2, and what 2 did for want of such
a CPU they do not undo. An interrupt for which none of the four holds is left where it is, so a steady load settles.
"""

from collections.abc import Iterable
from math import inf
from typing import Annotated, Literal

from msgspec import Meta, Struct

from coresteer_core.cpuset import CpuListError, format_cpu_list, parse_cpu_list
from coresteer_core.node.view import View
from coresteer_core.policies.base import (
    ALLOW_ISOLATED,
    Decision,
    PolicyKind,
    PolicySpec,
    Proposal,
    Scope,
)
from coresteer_core.policies.irq_load import Arriving, Moving, arriving, learn, placer
from coresteer_core.policies.skipped import Reason, ReasonText, SkippedGroups
from coresteer_core.schema import labelled

_FORBIDDEN = ReasonText(
    "{0:cpus}, {1:.0f} % busy, is to be kept free of interrupts, but of no CPU of {3} the load is known.",
    "They arrive on {0:cpus}, to be kept free of interrupts, but of no CPU of {3} the load is known.",
)
_QUIET = ReasonText(
    "{0:cpus}, {1:.0f} % busy, spends {2:.1f} points on it: too little to move it.",
    "Each takes {2:.1f} points of {0:cpus}, {1:.0f} % busy: too little to move it.",
)
_RELIEVED = ReasonText(
    "{0:cpus}, {1:.0f} % busy, is relieved by moving others.",
    "They arrive on {0:cpus}, {1:.0f} % busy, relieved by moving others.",
)
_TOO_BUSY = ReasonText(
    "{0:cpus}, {1:.0f} % busy, is too busy, but no CPU of {3} is {4} points less busy and stays {5} below with "
    "{2:.0f} more for it.",
    "They arrive on {0:cpus}, {1:.0f} % busy: too busy, but no CPU of {3} is {4} points less busy and stays {5} below "
    "with {2:.0f} more for one of them.",
)
_AWAY = ReasonText(
    "{0:cpus}, {1:.0f} % busy, is not on the NUMA node of {4}, but no CPU of {3} stays under {5} % with {2:.0f} more "
    "for it.",
    "They arrive on {0:cpus}, {1:.0f} % busy, not on the NUMA node of {4}, but no CPU of {3} stays under {5} % with "
    "{2:.0f} more for one of them.",
)
_SHARING = ReasonText(
    "{0:cpus}, {1:.0f} % busy, serves more queues of {4}, but no CPU of {3} is free of them and stays under {5} %.",
    "They arrive on {0:cpus}, {1:.0f} % busy, with more queues of {4}, but no CPU of {3} is free of them and stays "
    "under {5} %.",
)
_BELOW = ReasonText(
    "{0:cpus}, {1:.0f} % busy, is below {3} %.", "They arrive on {0:cpus}, {1:.0f} % busy, below {3} %."
)


class IrqSpread(PolicySpec, frozen=True, tag="irq-spread"):
    """Fields of the policy that spreads interrupts over the CPUs near their devices."""

    label = "Spread interrupts"
    summary = "Moves interrupts from busy CPUs to less busy CPUs near their device."

    act_percent: Annotated[
        float,
        Meta(ge=1, le=100),
        labelled("Load threshold", "Interrupts are moved away from a CPU that is at least this busy.", unit="%"),
    ] = 65.0
    gap_points: Annotated[
        float,
        Meta(ge=1, le=100),
        labelled(
            "Minimum load difference",
            "The destination CPU is at least this much less busy than the source CPU.",
            unit="percentage points",
        ),
    ] = 20.0
    numa: Annotated[
        Literal["local", "any"],
        labelled(
            "NUMA placement",
            "Whether an interrupt may leave the NUMA node of its device (or the nearest one with a usable CPU).",
            options={"local": "the device's NUMA node", "any": "any NUMA node"},
        ),
    ] = "local"
    smt: Annotated[
        Literal["last", "any"],
        labelled(
            "SMT siblings",
            "Whether the second hardware thread of a core counts as a CPU of its own.",
            options={"last": "only when no core is free", "any": "like any other CPU"},
        ),
    ] = "last"
    exclude: Annotated[
        str,
        Meta(pattern="^[0-9,:/ -]*$", max_length=4096),
        labelled(
            "Excluded CPUs", "No interrupt is moved to these CPUs.", format="cpu-list", placeholder="none, or 0-1,8"
        ),
    ] = ""
    allow_isolated: Annotated[bool, ALLOW_ISOLATED] = False


class IrqSpreadMemory(Struct, frozen=True, tag="irq-spread"):
    """What a round leaves for the next, by IRQ: moves it proposed, and what moves have taught of costs per arrival."""

    moving: dict[int, Moving] = {}
    learned: dict[int, float] = {}


def decide(view: View, spec: IrqSpread, scope: Scope, memory: IrqSpreadMemory) -> Decision:
    """What is to move, and why each of the others is not."""
    try:
        excluded = parse_cpu_list(spec.exclude)
    except CpuListError as error:
        return Decision(f"Nothing is moved, as the list of excluded CPUs cannot be read. {error}", memory)
    forbidden = excluded if spec.allow_isolated else excluded | view.topology.isolated_cpus
    if not view.load.irqs:
        return Decision("Nothing is moved, as no interrupt is known to have arrived.", memory)
    near = placer(view, view.topology.online() - forbidden, local=spec.numa == "local")
    found = arriving(view, scope, near)
    load = {cpu: 100 * busy for cpu, busy in enumerate(view.load.busy) if busy is not None}
    known = {irq.irq for irq in view.inventory.irqs}
    before = {number: cost for number, cost in memory.learned.items() if number in known}
    learned = learn(found, load, memory.moving, before)
    found.sort(key=lambda each: (-each.cost, each.irq.irq))
    spread = _Spread(view, spec, found, forbidden, load)
    for step in (spread.free_forbidden, spread.relieve, spread.bring_home, spread.part):
        step()
    moving = {number: move for number, move in memory.moving.items() if _under_way(found, number, move)}
    skipped = SkippedGroups(_name)
    for each in found:
        if not spread.moved(each):
            skipped.add(each.irq.name, each.irq.irq, each.stuck or spread.why_not(each))
    told = skipped.skipped()
    return Decision(spread.sentence(), IrqSpreadMemory(moving | spread.moving, learned), spread.proposals, told)


def _name(irqs: list[tuple[str, int]]) -> str:
    """Interrupts in a sentence."""
    if len(irqs) > 1:
        return f"IRQs {format_cpu_list(number for _, number in irqs)}"
    ((name, number),) = irqs
    return f"IRQ {number} ({name})" if name else f"IRQ {number}"


def _under_way(found: list[Arriving], number: int, move: Moving) -> bool:
    """Whether an interrupt was moved but its load is still known from before."""
    return any(
        each.irq.irq == number and each.irq.requested == str(move.target) and each.cpu == move.origin for each in found
    )


class _Crowd(Struct):
    """Busy interrupts of one netdev: their number by CPU, and by CPU the number of those on its core."""

    cpus: dict[int, int]
    cores: dict[int, int]


class _Spread:
    """Where the interrupts are while one round moves them. found: the dearest first; load: of the CPUs, in percent."""

    def __init__(
        self, view: View, spec: IrqSpread, found: list[Arriving], forbidden: frozenset[int], load: dict[int, float]
    ) -> None:
        self._spec = spec
        self._found = found
        self._forbidden = forbidden
        self._before = load
        self._load = dict(load)
        self._node = view.topology.nodes
        self._several_nodes = len(view.topology.numa_nodes) > 1
        any_thread = {cpu: frozenset((cpu,)) for cpu in view.topology.cores}
        self._cores = any_thread if spec.smt == "any" else view.topology.cores
        """The CPUs that are one with a CPU: its core, or itself where any thread will do."""
        self._on: dict[int, list[Arriving]] = {}
        self._queues: dict[str | None, _Crowd] = {}
        for each in found:
            self._on.setdefault(each.cpu, []).append(each)
            if each.busy:
                self._count(each, 1)
        self._hottest = max((self._before.get(each.cpu, 0.0) for each in found), default=0.0)
        self._lists: dict[frozenset[int], str] = {}
        self._least: dict[frozenset[int], float] = {}
        self._apart: dict[tuple[str | None, int, frozenset[int]], frozenset[int]] = {}
        """As _least until the next move: what _less_close found."""
        self.moving: dict[int, Moving] = {}
        self.proposals: list[Proposal] = []

    @property
    def _full(self) -> float:
        """What a CPU is filled up to where nothing is urgent."""
        return self._spec.act_percent - self._spec.gap_points

    def moved(self, each: Arriving) -> bool:
        """Whether an interrupt moves in this round."""
        return each.irq.irq in self.moving

    def free_forbidden(self) -> None:
        """Isolated and excluded CPUs give up all their interrupts."""
        for each in self._movable(self._found):
            if each.cpu in self._forbidden and (target := self._best(each, each.wanted)) is not None:
                self._move(each, target, f"It arrives on CPU {each.cpu}, which is to be kept free of interrupts;")

    def relieve(self) -> None:
        """CPUs at the trigger give interrupts away, the hottest CPU first and its dearest interrupt first."""
        hot = [cpu for cpu in self._on if self._load.get(cpu, 0.0) >= self._spec.act_percent]
        for cpu in sorted(hot, key=lambda cpu: (-self._load[cpu], cpu)):
            for each in self._movable(list(self._on[cpu])):
                load = self._load[cpu]
                if load < self._spec.act_percent:
                    break
                if each.busy and (target := self._best(each, self._relief(each))) is not None:
                    part = f"{each.cost:.0f} points of it for this interrupt ({each.per_s:,.0f}/s)"
                    self._move(each, target, f"CPU {cpu} is {load:.0f} % busy, {part};")

    def bring_home(self) -> None:
        """Busy interrupts go to their device's NUMA node while there is room."""
        for each in self._movable(self._found):
            if not each.busy or each.cpu in each.wanted:
                continue
            if (target := self._best(each, self._room(each, each.wanted))) is not None:
                node = self._node.get(each.cpu)
                self._move(each, target, f"It arrives on NUMA node {node}, which is not that of {each.device};")

    def part(self) -> None:
        """Busy queues of one netdev go apart while there is room; what cannot move stays, else the dearest does."""
        for each in self._movable(self._found):
            if not each.busy or each.irq.netdev is None or not (here := self._closeness(each, each.cpu)):
                continue
            room = self._room(each, self._less_close(each, here))
            if not room or self._stays(each, sharing := self._sharing(each)):
                continue
            if (target := self._best(each, room)) is not None:
                shared = f"CPU {each.cpu}" if here == 2 else f"the core of CPU {each.cpu}"
                many = f"{len(sharing)} other busy interrupt{'' if len(sharing) == 1 else 's'}"
                self._move(each, target, f"It shares {shared} with {many} of {each.device};")

    def why_not(self, each: Arriving) -> Reason:
        """Why an interrupt that could be moved is left where it is."""
        load, act, gap = self._before[each.cpu], self._spec.act_percent, self._spec.gap_points
        common: tuple[str, ...]
        if each.cpu in self._forbidden:
            why, common = _FORBIDDEN, (self._cpus(each.wanted),)
        elif not each.busy:
            return Reason(_QUIET, ((each.cpu,), load, each.cost))
        elif load >= act and self._load[each.cpu] < act:
            why, common = _RELIEVED, ()
        elif load >= act:
            why, common = _TOO_BUSY, (self._cpus(each.wanted), f"{gap:g}", f"{gap / 2:g}")
        elif each.cpu not in each.wanted:
            why, common = _AWAY, (self._cpus(each.wanted), each.device, f"{self._full:g}")
        elif self._closeness(each, each.cpu):
            why, common = _SHARING, (self._cpus(each.wanted), each.device, f"{self._full:g}")
        else:
            why, common = _BELOW, (f"{act:g}",)
        return Reason(why, ((each.cpu,), load, each.cost + each.followers), common)

    def _cpus(self, wanted: frozenset[int]) -> str:
        if wanted not in self._lists:
            self._lists[wanted] = format_cpu_list(wanted)
        return self._lists[wanted]

    def sentence(self) -> str:
        """The whole round in one line."""
        movable = [each for each in self._found if each.stuck is None]
        if not movable:
            return "Nothing is moved: no interrupt arrived that can be."
        many = f"{len(movable)} interrupt{'' if len(movable) == 1 else 's'} that arrived"
        what = f"{len(self.proposals) or 'None'} of {many} should move"
        limit = f"the limit is {self._spec.act_percent:g} %"
        return f"{what}; the CPUs of those are up to {self._hottest:.0f} % busy, {limit}."

    def _movable(self, some: list[Arriving]) -> Iterable[Arriving]:
        moving = self.moving
        return (each for each in some if each.stuck is None and each.irq.irq not in moving)

    def _relief(self, each: Arriving) -> list[int]:
        load, gap = self._load[each.cpu], self._spec.gap_points
        return self._up_to(min(load - gap, load - gap / 2 - each.cost - each.followers), each.wanted)

    def _room(self, each: Arriving, cpus: frozenset[int]) -> list[int]:
        return self._up_to(self._full - each.cost - each.followers, cpus)

    def _up_to(self, percent: float, cpus: frozenset[int]) -> list[int]:
        """Those of some CPUs that are not more loaded; mostly there is none, so the least load is kept."""
        load = self._load
        if cpus not in self._least:
            self._least[cpus] = min((load[cpu] for cpu in cpus if cpu in load), default=inf)
        if self._least[cpus] > percent:
            return []
        return [cpu for cpu in cpus if cpu in load and load[cpu] <= percent]

    def _best(self, each: Arriving, cpus: Iterable[int]) -> int | None:
        """Of some CPUs the one with no queue of the netdev, then on a free core, then with the least load."""

        def order(cpu: int) -> tuple[int, bool, float, int]:
            beside = (other for sibling in self._cores[cpu] if sibling != cpu for other in self._on.get(sibling, ()))
            taken = any(other.busy and other is not each for other in beside)
            return self._closeness(each, cpu), taken, self._load[cpu], cpu

        return min((cpu for cpu in cpus if cpu != each.cpu and cpu in self._load), key=order, default=None)

    def _sharing(self, each: Arriving) -> list[Arriving]:
        """Other busy interrupts of the netdev on its CPU, or on its core unless any thread will do."""
        there = (other for one in sorted(self._core(each.cpu)) for other in self._on.get(one, ()))
        return [other for other in there if other is not each and other.busy and other.irq.netdev == each.irq.netdev]

    def _core(self, cpu: int) -> frozenset[int]:
        return self._cores.get(cpu) or frozenset((cpu,))

    def _count(self, each: Arriving, one: int) -> None:
        """A busy queue is on its CPU (1), or no longer (-1)."""
        crowd = self._queues.setdefault(each.irq.netdev, _Crowd({}, {}))
        for where, cpus in ((crowd.cpus, (each.cpu,)), (crowd.cores, self._core(each.cpu))):
            for cpu in cpus:
                where[cpu] = where.get(cpu, 0) + one
                if not where[cpu]:
                    del where[cpu]

    def _closeness(self, each: Arriving, cpu: int) -> int:
        """2 where another busy queue of the netdev is on the CPU, 1 where one is on its core, 0 otherwise."""
        crowd = self._queues.get(each.irq.netdev)
        if crowd is None or each.irq.netdev is None:
            return 0
        if crowd.cpus.get(cpu, 0) > (each.busy and each.cpu == cpu):
            return 2
        return int(crowd.cores.get(cpu, 0) > (each.busy and cpu in self._core(each.cpu)))

    def _less_close(self, each: Arriving, here: int) -> frozenset[int]:
        """Of the CPUs for an interrupt those less close to other busy queues than the one it is on, which is here."""
        key = each.irq.netdev, here, each.wanted
        if key not in self._apart:
            crowd = self._queues[each.irq.netdev]
            self._apart[key] = frozenset(each.wanted - (crowd.cpus if here == 2 else crowd.cores).keys())
        return self._apart[key]

    def _stays(self, each: Arriving, sharing: list[Arriving]) -> bool:
        """Whether an interrupt is the one that the others go away from."""

        def order(one: Arriving) -> tuple[bool, float, int]:
            return one.stuck is None and not self.moved(one), -one.cost, one.irq.irq

        return all(order(each) < order(other) for other in sharing)

    def _move(self, each: Arriving, target: int, why: str) -> None:
        node = self._node.get(target)
        on_node = f", on NUMA node {node}," if self._several_nodes and node is not None else ""
        reason = f"{why} CPU {target}{on_node} is {self._load[target]:.0f} % busy."
        self.proposals.append(Proposal(f"irq/{each.irq.irq}/affinity", str(target), each.subject, reason))
        self.moving[each.irq.irq] = Moving(each.cpu, target, self._before[each.cpu], self._before[target])
        self._least.clear()
        self._apart.clear()
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


KIND = PolicyKind(IrqSpread, IrqSpreadMemory, decide)
