"""Suggest for each hot CPU of a node which interrupts and processes to move, by the rules of two policies.

A suggestion is what ``irq-spread`` and ``network-process``, with their defaults, would do about this CPU alone, within
the node's limits. The predicted load is a range, as in previews: half of an interrupt's part of its CPU's softirq
time, or of a process's time, moves at least; more than all of it where an interrupt may need more on another CPU, and
where the hot CPU is saturated.
"""

from msgspec import Struct
from msgspec.structs import replace

from coresteer_core.changes.effect import INTERRUPT_SPREAD, gain_range, loss_range
from coresteer_core.changes.guard import limits_refusal, refusals
from coresteer_core.cpuset import parse_cpu_list
from coresteer_core.node.distance import DISTANCE, Locality, Smt, cpu_distances
from coresteer_core.node.inventory import Irq
from coresteer_core.node.load import Load
from coresteer_core.node.tasks import NetTask
from coresteer_core.node.topology import Topology
from coresteer_core.node.view import View
from coresteer_core.policies.base import Decision, Proposal, Scope
from coresteer_core.policies.irq_spread import policy as irq_spread
from coresteer_core.policies.network_process import policy as network_process
from coresteer_core.policies.network_process.memory import NetworkProcessMemory
from coresteer_core.policies.skipped import name_tasks
from coresteer_core.settings import parse_setting
from coresteer_core.settings.base import format_cpus
from coresteer_core.settings.irq import IrqAffinity
from coresteer_core.settings.overlay import overlay

HOT_PERCENT = irq_spread.IrqSpread().act_percent
"""A CPU this busy is hot: the load from which irq-spread moves interrupts. Softirq time is part of it."""
HOT_SOFTIRQ_PERCENT = 50.0
"""A CPU with this much softirq time is hot, too: bursts fill it although its mean leaves room."""
MAX_HOT = 8
"""Maximum number of hot CPUs, the busiest first, for which moves are sought."""
MIN_SECONDS = 5.0
"""Shortest time in seconds that a load must cover to suggest anything from it."""
_MIN_PART = 0.25
"""Least part of a CPU's load that is softirq time for its interrupts to be the cause."""
_MAX_NAMED = 4
"""Maximum number of moves that a label names."""
_ELSEWHERE = "It arrives on another CPU."


class Forecast(Struct, frozen=True):
    """Predicted change of a CPU's load by the moves of one option.

    before: percent now; least, most: percentage points, the range of what the moves add. Those of options add up.
    """

    cpu: int
    before: float
    least: float
    most: float


class SuggestedMove(Struct, frozen=True):
    """An interrupt or a process to move: key and value of the setting, its CPU now, its new CPUs, and the reason."""

    key: str
    value: str
    subject: str
    origin: int
    target: str
    reason: str


class Crossing(Struct, frozen=True):
    """Percent of a process's bytes that cross to another cache or NUMA node, before and after a move."""

    before: float
    after: float


class Option(Struct, frozen=True):
    """Moves that help together, by the rules of one policy.

    label: ``IRQ 31 → CPU 12``. near: how far the new CPUs are from the hot CPU; empty where not known. forecasts: of
    the hot CPU, then of the destinations. crossing: of an option that moves a process; None for interrupts.
    """

    policy: str
    label: str
    near: str
    moves: list[SuggestedMove]
    forecasts: list[Forecast]
    crossing: Crossing | None = None


class HotSpot(Struct, frozen=True):
    """A hot CPU with its cause, its options, and a sentence with the effect of the best one or why there is none.

    busy, softirq: percent; softirq includes time in interrupts, None where it is not known. options: the best first;
    the others may be added to it.
    """

    cpu: int
    busy: float
    softirq: float | None
    cause: str
    options: list[Option]
    sentence: str


class Suggestions(Struct, frozen=True):
    """The hot CPUs of a node, busiest first, and a sentence that sums them up; seconds: what the load covers."""

    hot: list[HotSpot]
    sentence: str
    seconds: float


def suggest(view: View) -> Suggestions:
    """Return the best moves of interrupts and processes for each hot CPU, and why where there are none.

    A CPU is hot that is HOT_PERCENT busy, or has HOT_SOFTIRQ_PERCENT of softirq time. No suggestion names a CPU that is
    offline, isolated, off limits or hot itself, or makes one busier than the hot CPU was. Those for several CPUs may be
    applied together or alone.
    """
    load = view.load
    busy = {cpu: percent for cpu in view.topology.online() if (percent := _percent(load.busy, cpu)) is not None}
    if load.seconds < MIN_SECONDS or not busy:
        return Suggestions([], "The load of this node's CPUs in the last minute is not known.", load.seconds)
    order = sorted(busy, key=lambda cpu: (-busy[cpu], cpu))
    hot = [c for c in order if busy[c] >= HOT_PERCENT or (_percent(load.softirq, c) or 0.0) >= HOT_SOFTIRQ_PERCENT]
    if not hot:
        # without the busiest CPU, which changes with every sample where several are about as busy
        sentence = (
            f"Nothing is hot: no CPU is {HOT_PERCENT:.0f} % busy or spends {HOT_SOFTIRQ_PERCENT:.0f} % in softirq."
        )
        return Suggestions([], sentence, load.seconds)
    found: list[HotSpot] = []
    after = _within_limits(view)
    for cpu in hot[:MAX_HOT]:
        spot, after = _Search(view, after, cpu, frozenset(hot)).find()
        found.append(spot)
    helped = sum(1 for spot in found if spot.options)
    many = "1 CPU is" if len(hot) == 1 else f"{len(hot)} CPUs are"
    first = f", the first {MAX_HOT} are shown" if len(hot) > MAX_HOT else ""
    helps = "no move is known to help" if not helped else f"moves would help {helped} of them"
    if len(hot) == 1 and helped:
        helps = "a move would help"
    limits = f"at least {HOT_PERCENT:.0f} % busy or {HOT_SOFTIRQ_PERCENT:.0f} % in softirq"
    return Suggestions(found, f"{many} hot, {limits}{first}; {helps}.", load.seconds)


def _percent(column: list[float | None], cpu: int) -> float | None:
    share = column[cpu] if cpu < len(column) else None
    return None if share is None else 100 * share


def _within_limits(view: View) -> View:
    """Return a view in which the interrupts that the node's limits keep from any backend cannot be moved."""
    inventory = view.inventory
    irqs = [
        irq if (why := limits_refusal(inventory, IrqAffinity(irq.irq))) is None else _locked(irq, why)
        for irq in inventory.irqs
    ]
    return replace(view, inventory=replace(inventory, irqs=irqs))


def _locked(irq: Irq, why: str) -> Irq:
    return replace(irq, movable=False, locked_reason=why)


def _arrivals(load: Load) -> dict[int, int]:
    """Return by interrupt the CPU where it occurs most."""
    most: dict[int, tuple[float, int]] = {}
    for cell in load.irqs:
        if cell.per_s > 0:
            most[cell.irq] = max(most.get(cell.irq, (0.0, 0)), (cell.per_s, -cell.cpu))
    return {irq: -cpu for irq, (_, cpu) in most.items()}


class _Search:
    """Search of the options for one hot CPU. measured: the view now; view: after the moves of busier CPUs."""

    def __init__(self, measured: View, view: View, cpu: int, hot: frozenset[int]) -> None:
        self.measured, self.view, self.cpu, self.hot = measured, view, cpu, hot
        self.busy = _percent(measured.load.busy, cpu) or 0.0
        self.softirq = _percent(measured.load.softirq, cpu)
        self.where = _arrivals(view.load)
        self.by_interrupts = cpu in self.where.values() and (
            self.softirq is None or self.softirq >= _MIN_PART * self.busy
        )
        self.why = ""
        """Why interrupts stay, as sentences."""

    def find(self) -> tuple[HotSpot, View]:
        """Return the hot CPU with its options, and the view once they are all applied."""
        moves, after = self._irq_moves()
        options: list[Option] = []
        at = self.view
        for part in self._parts(moves):
            view = overlay(at, {move.key: move.value for move in part})
            options.append(self._option("irq-spread", part, at, view))
            at = view
        process = self._process_move(after)
        if process is not None:
            view = overlay(after, {process.key: process.value})
            task = after.task(_pid(process))
            crossing = _crossing(task, process, after.topology) if isinstance(task, NetTask) else None
            option = replace(self._option("network-process", [process], after, view), crossing=crossing)
            if option.forecasts[0].least < 0 or (crossing is not None and crossing.after < crossing.before):
                options.append(option)
                after = view
        return HotSpot(self.cpu, self.busy, self.softirq, self._cause(), options, self._sentence(options)), after

    def _irq_moves(self) -> tuple[list[SuggestedMove], View]:
        """Return the moves of interrupts away from the CPU, the most urgent first, and the view after them."""
        view = self.view
        if not self.by_interrupts:
            self.why = f"CPU {self.cpu} is {self.busy:.0f} % busy, but not with interrupts."
            return [], view
        here = [irq for irq in view.inventory.irqs if self.where.get(irq.irq) == self.cpu]
        decision = self._spread(here)
        moves: list[SuggestedMove] = []
        after = view
        for proposal in decision.proposals:
            if parse_setting(proposal.key).interrupt is not None:
                moved = self._moved(after, proposal)
                if moved is not None:
                    moves.append(_move(proposal, self.cpu))
                    after = moved
        if not moves:
            self.why = self._why_not(here)
        return moves, after

    def _spread(self, irqs: list[Irq]) -> Decision:
        """Return what irq-spread would do if only these interrupts could be moved."""
        view = self.view
        numbers = {irq.irq for irq in irqs}
        only = [irq if irq.irq in numbers else _locked(irq, _ELSEWHERE) for irq in view.inventory.irqs]
        spec = irq_spread.IrqSpread(act_percent=HOT_PERCENT if self.busy >= HOT_PERCENT else HOT_SOFTIRQ_PERCENT)
        alone = replace(view, inventory=replace(view.inventory, irqs=only))
        return irq_spread.decide(alone, spec, Scope(), irq_spread.IrqSpreadMemory())

    def _why_not(self, here: list[Irq]) -> str:
        """Return why the interrupt that loads the CPU most stays there: a network queue's, then the most frequent."""
        lead = f"No move is known to help CPU {self.cpu}."
        if not here:
            return lead
        per_s = {cell.irq: cell.per_s for cell in self.view.load.irqs if cell.cpu == self.cpu}
        decision = self._spread([max(here, key=lambda irq: (bool(irq.queues), per_s.get(irq.irq, 0.0), -irq.irq))])
        for proposal in decision.proposals:
            return f"{lead} {proposal.subject}: CPU {proposal.value}, the best other CPU, is hot or would be with it."
        return next((f"{lead} {one.subject}: {one.why}" for one in decision.skipped if one.why != _ELSEWHERE), lead)

    def _moved(self, view: View, proposal: Proposal) -> View | None:
        """Return the view after a move; None if it is refused, or loads a CPU as much as the hot one was."""
        targets = parse_cpu_list(proposal.value)
        if targets & self.hot or refusals(view, [(proposal.key, proposal.value)], allow_isolated=False):
            return None
        after = overlay(view, {proposal.key: proposal.value})
        for target in targets:
            now, start, there = (_percent(one.load.busy, target) for one in (self.measured, self.view, after))
            # alone, too: without the moves of busier CPUs, which may have relieved the target
            if now is None or start is None or there is None or max(there, now + there - start) >= self.busy:
                return None
        return after

    def _parts(self, moves: list[SuggestedMove]) -> list[list[SuggestedMove]]:
        """Return the moves in up to two parts: the fewest that are predicted to cool the CPU, then the others."""
        view = self.view
        limit = HOT_PERCENT if self.busy >= HOT_PERCENT else HOT_SOFTIRQ_PERCENT
        for count, move in enumerate(moves, 1):
            view = overlay(view, {move.key: move.value})
            if (_percent(view.load.busy, self.cpu) or 0.0) < limit:
                return [part for part in (moves[:count], moves[count:]) if part]
        return [moves] if moves else []

    def _process_move(self, view: View) -> SuggestedMove | None:
        """Return the move of the busiest process that runs on the CPU or receives its packets there; None without."""
        concerned = {
            task.pid: (task.cpu == self.cpu, task.cpu_share, task.pid)
            for task in self.view.tasks
            if task.cpu == self.cpu or any(one.cpu == self.cpu and one.bytes_per_s for one in task.rx_placements)
        }
        if not concerned:
            return None
        decision = network_process.decide(view, network_process.NetworkProcess(), Scope(), NetworkProcessMemory())
        proposals = {parse_setting(one.key).process: one for one in decision.proposals}
        for pid in sorted(concerned, key=lambda pid: concerned[pid], reverse=True):
            proposal = proposals.get(pid)
            task = view.task(pid)
            if proposal is not None and task is not None and self._moved(view, proposal) is not None:
                return _move(proposal, task.cpu)
        return None

    def _option(self, policy: str, moves: list[SuggestedMove], before: View, after: View) -> Option:
        targets = sorted(frozenset().union(*(parse_cpu_list(move.target) for move in moves)))
        spread = INTERRUPT_SPREAD if policy == "irq-spread" else 1.0  # a process's time is measured
        forecasts = [self._forecast(before, after, cpu, spread) for cpu in dict.fromkeys([self.cpu, *targets])]
        kept = [one for one in forecasts if one.cpu == self.cpu or one.least or one.most]
        return Option(policy, _label(moves), _near(self.view.topology, self.cpu, targets), moves, kept)

    def _forecast(self, before: View, after: View, cpu: int, spread: float) -> Forecast:
        now = _percent(self.measured.load.busy, cpu) or 0.0
        shift = (_percent(after.load.busy, cpu) or 0.0) - (_percent(before.load.busy, cpu) or 0.0)
        if shift > 0:
            return Forecast(cpu, now, *gain_range(shift, self.busy, spread))
        least, most = loss_range(-shift, now, spread)
        here = _percent(self.measured.load.softirq, cpu) if spread > 1 else None
        return Forecast(cpu, now, -most if here is None else -max(least, min(most, here)), -least)

    def _sentence(self, options: list[Option]) -> str:
        if not options:
            return self.why
        best = options[0]
        own = best.forecasts[0]
        if own.least < 0:
            return f"{best.label}: CPU {self.cpu} from {own.before:.0f} % to {_range(own)} %."
        if best.crossing is not None:
            crossing = f"{best.crossing.before:.0f} % to {best.crossing.after:.0f} %"
            return f"{best.label}: its packets that cross a cache, from {crossing}."
        return f"{best.label}."

    def _cause(self) -> str:
        """Return what loads the CPU, in a few words."""
        if self.by_interrupts:
            irqs = [irq for irq in self.measured.inventory.irqs if irq.netdev is not None and irq.queues]
            here = [irq for irq in irqs if self.where.get(irq.irq) == self.cpu]
            queues = {name: _count_queues(here, name) for irq in here if (name := irq.netdev) is not None}
            if not queues:
                return "interrupts of other devices than NICs"
            netdev = max(queues, key=lambda name: (queues[name], name))
            total = _count_queues(irqs, netdev)
            if total == 1:
                return f"the only queue of {netdev}"
            if queues[netdev] == 1:
                return f"one queue of {netdev}"
            every = "both" if total == 2 else f"all {total}"
            count = every if queues[netdev] == total else f"{queues[netdev]} of {total}"
            return f"{count} queues of {netdev} on one CPU"
        runs = [task for task in self.measured.tasks if task.cpu == self.cpu]
        if not runs:
            return "other work than interrupts"
        busiest = max(runs, key=lambda task: task.cpu_share)
        return f"runs {name_tasks([(busiest.name, busiest.pid)])}"


def _count_queues(irqs: list[Irq], netdev: str) -> int:
    """Return the number of a netdev's queues that interrupts serve; ``rx-3`` and ``tx-3`` are one."""
    return len({name.partition("-")[2] for irq in irqs if irq.netdev == netdev for name in irq.queues})


def _move(proposal: Proposal, origin: int) -> SuggestedMove:
    return SuggestedMove(proposal.key, proposal.value, proposal.subject, origin, proposal.value, proposal.reason)


def _pid(move: SuggestedMove) -> int:
    return parse_setting(move.key).process or 0


def _label(moves: list[SuggestedMove]) -> str:
    """Return the moves in a few words, each interrupt with its CPU: ``IRQ 25 → CPU 10, 29 → 4, 31 → 38``."""
    first, *others = moves[:_MAX_NAMED]
    target = format_cpus(parse_cpu_list(first.target))
    number = parse_setting(first.key).interrupt
    if number is None:
        return f"{first.subject} → {target}"
    pairs = [f"IRQ {number} → {target}", *(f"{parse_setting(one.key).interrupt} → {one.target}" for one in others)]
    more = f" and {len(moves) - _MAX_NAMED} more" if len(moves) > _MAX_NAMED else ""
    return ", ".join(pairs) + more


def _near(topology: Topology, cpu: int, targets: list[int]) -> str:
    """Return how far the farthest of some CPUs is from a CPU; empty where the kernel does not report it."""
    distances = cpu_distances(topology, Smt.FIRST)
    row = distances.rows[cpu]
    farthest = max((row[target] for target in targets), default=0)
    if farthest <= DISTANCE[Locality.SMT]:
        return "same core"
    if farthest <= DISTANCE[Locality.L3]:
        return "same cache"
    if farthest <= DISTANCE[Locality.NUMA]:
        return "same NUMA node"
    return "another NUMA node" if len(topology.numa_nodes) > 1 else ""


def _crossing(task: NetTask, move: SuggestedMove, topology: Topology) -> Crossing | None:
    """Return how much of a process's bytes cross to another cache before and after a move; None if not known."""
    rows = cpu_distances(topology, Smt.FIRST).rows
    known = [(one.cpu, one.bytes_per_s) for one in task.rx_placements if one.cpu is not None and one.bytes_per_s > 0]
    total = sum(bytes_per_s for _, bytes_per_s in known)
    if not total:
        return None

    def crosses(cpus: frozenset[int]) -> float:
        far = [b for cpu, b in known if min(rows[cpu][own] for own in cpus) > DISTANCE[Locality.L3]]
        return 100 * sum(far) / total

    return Crossing(crosses(frozenset([task.cpu])), crosses(parse_cpu_list(move.target)))


def _range(forecast: Forecast) -> str:
    ends = (forecast.before + forecast.least, forecast.before + forecast.most)
    least, most = (f"{min(100.0, max(0.0, end)):.0f}" for end in ends)
    return least if least == most else f"between {least} and {most}"
