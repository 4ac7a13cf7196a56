"""Where processes should run and have their pages (Lim, Eom, 2016, scheduler).

The order is the paper's: processes by speed-up factor, each to the node that is best for it and has room; then, where
contention is too high, the processes that suffer most are scattered. Ours: room, costs and gains as numbers.

- Room for processes is what the CPUs of a node have left without those that are to move, so two processes may swap.
- Sticky pages are pages that stay behind when a process moves, as the kernel does not move them by itself. Moving them
  costs PAGE_COST_S each and must save that much time within HORIZON_S. Otherwise only the CPUs change; or the process
  stays and its pages come to it, whichever leaves the least predicted time.
- Scattering moves pages, too: the contention factor depends on where the memory is, not on where it is used.
- No move raises the predicted time of all processes together.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property, partial

from msgspec import Struct
from msgspec.structs import replace

from coresteer_core.node.numa import PAGE_BYTES
from coresteer_core.policies.numa.assignment import Assignment
from coresteer_core.policies.numa.factors import Process, on_node
from coresteer_core.settings.memory_nodes import TOLERANCE

HORIZON_S = 30.0
"""A page move must pay off within this time."""
MIN_FREE_SHARE = 0.05
"""Share of a node's memory that page moves leave free."""
MEMORY_MARGIN = 1.1
"""A node needs this many times the moved bytes free."""
MAX_SCATTER_EXAMINED = 8
"""Processes in a round for which the contention of all is predicted; the engine writes fewer moves than this."""
_ROUNDING = 1e-9
"""Sums of shares differ by less than this."""


class Candidate(Struct, gc=False):
    """A process that may be moved. index: in the Assignment. home: index of the node with most of its CPU time.

    nodes: indexes of the nodes that its cpuset allows. pinned: that of the node which a static pin requires, or None.
    bytes_by_node, gains: memory, and the least speed-up factor, by node index. movable: its pages may be moved.
    bound: its affinity keeps it on the pinned node.
    """

    index: int
    process: Process
    home: int
    nodes: tuple[int, ...]
    bytes_by_node: tuple[int, ...]
    gains: tuple[float, ...]
    pinned: int | None = None
    movable: bool = True
    bound: bool = False


class Move(Struct, frozen=True):
    """A process's new place. with_pages: its pages move there, too. run_time, was: predicted τ after and before.

    index: of the process. node: its index, not its number. saved: CPUs that all processes together save. moved_bytes,
    cost_s: of its pages. contention: its factor before, where that is why it moves; else None.
    """

    index: int
    node: int
    with_pages: bool
    was: float
    run_time: float
    saved: float
    moved_bytes: int = 0
    cost_s: float = 0.0
    contention: float | None = None
    pinned: bool = False

    @property
    def speed_up(self) -> float:
        """Return the speed-up factor."""
        return self.was / self.run_time if self.run_time else 1.0


class Room(Struct):
    """What is free on each node. cpus: in CPUs, without the processes that are to be placed. bytes: of its memory."""

    cpus: list[float]
    bytes: list[int]


class Limits(Struct, frozen=True):
    """Limits of page moves and scattering. page_cost_s: of one page. contention: above it, processes are scattered."""

    move_pages: bool
    max_bytes: int
    page_cost_s: float
    contention: float


class Scheduler:
    """One round. room: counts every process where it runs now."""

    def __init__(self, assignment: Assignment, candidates: Sequence[Candidate], room: Room, limits: Limits) -> None:
        self._now = assignment
        self._before = list(assignment.processes)
        self._candidates = candidates
        self._room = room
        self._limits = limits
        self.moves: dict[int, Move] = {}
        self.no_room: set[int] = set()
        """Candidates, by index, that would gain but for which no node has room."""

    def run(self) -> list[Move]:
        """Return the moves, the most useful first."""
        self._pin()
        self._place()
        self._scatter()
        return self._verified(sorted(self.moves.values(), key=lambda move: (not move.pinned, -move.saved, move.index)))

    def _verified(self, moves: list[Move]) -> list[Move]:
        """Return the moves without those that raise the total time, after all those before them."""
        by_index = {candidate.index: candidate for candidate in self._candidates}
        then = Assignment(self._now.machine, self._before)
        kept = []
        for move in moves:
            changed = on_node(by_index[move.index].process, move.node, with_pages=move.with_pages)
            if move.pinned or then.time_saved(move.index, changed) >= 0.0:
                then.change(move.index, changed)
                kept.append(move)
        return kept

    @cached_property
    def ideal(self) -> dict[int, Move]:
        """Return by index the best move of each candidate without a pin, if every node had room."""
        free = [candidate for candidate in self._candidates if candidate.pinned is None]
        return {each.index: move for each in free if (move := self._best(each, lambda _: True)) is not None}

    def _best(self, candidate: Candidate, fits: Callable[[int], bool]) -> Move | None:
        """Return the move of a process with the least predicted time of all, None where none reaches its gain."""
        was = self._now.run_time(candidate.index)
        if was < self._now.least_run_time(candidate.index) * min(candidate.gains):
            return None
        found: Move | None = None
        best = 0.0
        for move in self._options(candidate, was):
            net = move.saved * HORIZON_S - move.cost_s
            if net > best and fits(move.node) and move.speed_up >= candidate.gains[move.node]:
                found, best = move, net
        return found

    def _options(self, candidate: Candidate, was: float) -> Iterator[Move]:
        process = self._now.processes[candidate.index]
        times = self._now.run_times(candidate.index)
        for node in candidate.nodes:
            if times[node] * candidate.gains[node] <= was and process.cpus[node] < 1.0 - _ROUNDING:
                saved = process.weight * process.cpu_share * (was - times[node])
                yield Move(candidate.index, node, False, was, times[node], saved)
        yield from self._with_pages(candidate, candidate.nodes, was)

    def _with_pages(self, candidate: Candidate, nodes: Sequence[int], was: float) -> Iterator[Move]:
        """Yield the moves of a process with all its pages that save more than they cost."""
        if not (self._limits.move_pages and candidate.movable):
            return
        total = sum(candidate.bytes_by_node)
        held = [at for at, size in enumerate(candidate.bytes_by_node) if size and size >= TOLERANCE * total]
        local = self._now.local_moves(candidate.index)
        for node in nodes:
            if held == [node]:  # the setting has this value, so nothing would be written
                continue
            moved = total - candidate.bytes_by_node[node]
            fits = moved <= self._limits.max_bytes and moved * MEMORY_MARGIN <= self._room.bytes[node]
            cost_s = moved / PAGE_BYTES * self._limits.page_cost_s
            saved, after = local[node]
            if fits and cost_s <= saved * HORIZON_S:
                yield Move(candidate.index, node, True, was, after, saved, moved, cost_s)

    def _without_pages(self, candidate: Candidate, node: int, was: float) -> Move | None:
        """Return the move of a process whose pages stay, None where it runs there already."""
        before = self._now.processes[candidate.index]
        changed = on_node(before, node, with_pages=False)
        if changed.cpus == before.cpus:
            return None
        saved = self._now.time_saved(candidate.index, changed)
        return Move(candidate.index, node, False, was, self._now.run_time(candidate.index, changed), saved)

    # Steps

    def _pin(self) -> None:
        """Move processes to the node that a rule requires, whatever it costs."""
        for candidate in self._candidates:
            node = candidate.pinned
            if node is None:
                continue
            was = self._now.run_time(candidate.index)
            move = next(self._with_pages(candidate, [node], was), None) or self._without_pages(candidate, node, was)
            if move is None and not candidate.bound:  # it runs there by chance
                move = Move(candidate.index, node, False, was, was, 0.0)
            if move is not None:
                self._vacate(candidate)
                self._room.cpus[node] -= candidate.process.cpu_share
                self._accept(candidate, replace(move, pinned=True))

    def _place(self) -> None:
        """Place processes by their speed-up factor, most first, where there is room."""
        ideal = self.ideal
        movers = [candidate for candidate in self._candidates if candidate.index in ideal]
        movers.sort(key=lambda c: (-ideal[c.index].speed_up * c.process.weight, c.index))
        for mover in movers:
            self._vacate(mover)
        placed: list[Candidate] = []
        for mover in movers:
            move = self._best(mover, partial(self._has_room, mover))
            if move is None:
                self.no_room.add(mover.index)
                self._occupy(mover)
                continue
            self._room.cpus[move.node] -= mover.process.cpu_share
            self._accept(mover, move)
            placed.append(mover)
        self._evict(placed)

    def _evict(self, placed: list[Candidate]) -> None:
        """Cancel moves to nodes that have no room left for the processes that stay there."""
        while placed:
            over = {node for node, cpus in enumerate(self._room.cpus) if cpus < -_ROUNDING}
            last = next((c for c in reversed(placed) if self.moves[c.index].node in over), None)
            if last is None:
                return
            placed.remove(last)
            move = self.moves.pop(last.index)
            self._room.cpus[move.node] += last.process.cpu_share
            self._room.bytes[move.node] += move.moved_bytes
            self._occupy(last)
            self._now.change(last.index, last.process)
            self.no_room.add(last.index)

    def _scatter(self) -> None:
        """Move processes with their pages away from the node with most contention, those that suffer most first."""
        factors = {c.index: self._now.contention(c.index) or 0.0 for c in self._candidates if c.pinned is None}
        if not factors or max(factors.values()) <= self._limits.contention:
            return
        suffering = sorted(
            (c for c in self._candidates if factors.get(c.index, 0.0) > self._limits.contention),
            key=lambda c: -factors[c.index],
        )
        worst = suffering[0].home
        examined = 0
        for candidate in suffering:
            factor = self._now.contention(candidate.index) or 0.0
            if candidate.home != worst or candidate.index in self.moves or factor <= self._limits.contention:
                continue
            nodes = [node for node in candidate.nodes if node != worst and self._has_room(candidate, node)]
            was = self._now.run_time(candidate.index)
            found = [move for move in self._with_pages(candidate, nodes, was) if move.saved > 0.0]
            if found and examined < MAX_SCATTER_EXAMINED:
                examined += 1
                self._scatter_one(candidate, found, factor)

    def _scatter_one(self, candidate: Candidate, moves: list[Move], factor: float) -> None:
        """Accept the move that leaves the least contention of all processes, if it is less than now.

        factor: of this process now.
        """
        before, after = self._now.total_contention(candidate.index, [move.node for move in moves])
        least = min(after)
        if least < before:
            move = moves[after.index(least)]
            self._vacate(candidate)
            self._room.cpus[move.node] -= candidate.process.cpu_share
            self._accept(candidate, replace(move, contention=factor))

    def _has_room(self, candidate: Candidate, node: int) -> bool:
        return candidate.process.cpu_share <= self._room.cpus[node] + _ROUNDING

    # Bookkeeping

    def _accept(self, candidate: Candidate, move: Move) -> None:
        self._room.bytes[move.node] -= move.moved_bytes
        self._now.change(candidate.index, on_node(candidate.process, move.node, with_pages=move.with_pages))
        self.moves[candidate.index] = move

    def _vacate(self, candidate: Candidate) -> None:
        for node, share in enumerate(candidate.process.cpus):
            self._room.cpus[node] += share * candidate.process.cpu_share

    def _occupy(self, candidate: Candidate) -> None:
        for node, share in enumerate(candidate.process.cpus):
            self._room.cpus[node] -= share * candidate.process.cpu_share
