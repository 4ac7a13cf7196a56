"""Who of those that wait goes in next: the class with the lowest F, first come first served within it.

A state machine: what happened goes in, who is to be let in comes out. No I/O, no clock.
"""

from collections import OrderedDict
from collections.abc import Callable, Sequence
from math import inf

from coresteer_core.node.service_classes import ClassFigures
from coresteer_core.policies.service_class.attainment import Attainment, Promise

PASSED_OVER = 64
"""A class that waits goes next, whatever its F, when so many others went in since its own last one.

F alone would starve: a class that never meets its deadline stays at F = 0, before all with a lower target. So a request
with `ahead` others of its class before it goes in after at most (ahead + 1) × (PASSED_OVER + classes) admissions.
"""


class _Class:
    __slots__ = ("attainment", "inside", "queue", "since", "used")

    def __init__(self, promise: Promise, window_s: float) -> None:
        self.attainment = Attainment(promise, window_s)
        self.queue: OrderedDict[int, float] = OrderedDict()
        """Workers that wait and when they came, the first come first."""
        self.inside = 0
        self.since = 0
        """The gate's count of admissions when one of the class went in last, or began to wait at an empty queue."""
        self.used = False


class Gate:
    """slots: how many may be inside at once. Workers are numbers that the caller gives.

    promises: in order of precedence, which decides between equal F and equal targets. Nobody who is inside is taken
    out, also when slots become fewer.
    """

    def __init__(self, promises: Sequence[Promise], *, slots: int, window_s: float) -> None:
        self._inside: dict[int, tuple[_Class, float]] = {}
        self._waiting: dict[int, _Class] = {}
        self._admissions = 0
        self._slots = slots
        self._window_s = window_s
        self._classes = {promise.name: _Class(promise, window_s) for promise in promises}
        self._ordered = _by_target(self._classes)

    @property
    def slots(self) -> int:
        """How many may be inside at once."""
        return self._slots

    def enter(self, worker: int, name: str, time_s: float) -> list[int]:
        """A worker asks. Returns who is let in now. Raises KeyError for a class that there is not."""
        its = self._classes[name]
        if worker in self._inside or worker in self._waiting:
            raise ValueError(f"Worker {worker} asks again before it left.")
        its.used = True
        its.attainment.arrived()
        if not self._waiting and len(self._inside) < self._slots:
            self._let_in(its, worker, time_s, time_s)
            return [worker]
        self._wait(its, worker, time_s)
        return []

    def leave(self, worker: int, time_s: float, *, ok: bool) -> list[int]:
        """A worker that was inside, or waited, is done. Returns who is let in now; nobody for one that was neither."""
        if (went_in := self._inside.pop(worker, None)) is not None:
            its, came_s = went_in
            its.inside -= 1
            its.attainment.ended(time_s, max(0, int((time_s - came_s) * 1e6)) if ok else None)
            return self._fill(time_s) if self._waiting else []
        if (waited := self._waiting.pop(worker, None)) is not None:
            del waited.queue[worker]
            waited.attainment.ended(time_s, None)
        return []

    def set_slots(self, slots: int, time_s: float) -> list[int]:
        """So many may be inside from now on. Returns who is let in now."""
        self._slots = slots
        return self._fill(time_s)

    def change(
        self,
        promises: Sequence[Promise],
        *,
        slots: int,
        window_s: float,
        time_s: float,
        grade: Callable[[int], str | None],
    ) -> tuple[list[int], list[int]]:
        """Other classes from now on. Returns who is let in now and who waits no longer, as it has no class any more.

        A class that keeps its name, deadline and the window keeps its history. grade: a waiting worker's class now.
        Those inside keep their slots.
        """
        before = self._classes
        self._classes = {}
        for promise in promises:
            its = before.get(promise.name)
            if its is None or window_s != self._window_s or its.attainment.promise.deadline_us != promise.deadline_us:
                its = _Class(promise, window_s)
            its.attainment.keep(promise)
            self._classes[promise.name] = its
        self._ordered = _by_target(self._classes)
        self._slots, self._window_s = slots, window_s
        waiting = self.waiting()
        for worker, _ in waiting:
            its = self._waiting.pop(worker)
            del its.queue[worker]
            its.attainment.present -= 1
        gone = []
        for worker, came_s in waiting:
            name = grade(worker)
            if name is None or name not in self._classes:
                gone.append(worker)
                continue
            its = self._classes[name]
            its.used = True
            its.attainment.arrived()
            self._wait(its, worker, came_s)
        return self._fill(time_s), gone

    def waiting(self) -> list[tuple[int, float]]:
        """Who waits and when it came, the first come first."""
        return [(worker, its.queue[worker]) for worker, its in self._waiting.items()]

    def class_of(self, worker: int) -> str | None:
        """The class of a worker that is inside."""
        went_in = self._inside.get(worker)
        return None if went_in is None else went_in[0].attainment.promise.name

    def figures(self, time_s: float, *, percentiles: bool = True) -> list[ClassFigures]:
        """In order of precedence. source: ``gate`` for classes that ever asked here. percentiles: see Attainment."""
        told = []
        for its in self._classes.values():
            first_s = next(iter(its.queue.values()), None)
            told.append(
                its.attainment.figures(
                    time_s,
                    "gate" if its.used else None,
                    waiting=len(its.queue),
                    inside=its.inside,
                    waits_us=None if first_s is None else max(0, int((time_s - first_s) * 1e6)),
                    percentiles=percentiles,
                )
            )
        return told

    def _wait(self, its: _Class, worker: int, came_s: float) -> None:
        if not its.queue:
            its.since = self._admissions
        its.queue[worker] = came_s
        self._waiting[worker] = its

    def _fill(self, time_s: float) -> list[int]:
        let_in = []
        while self._waiting and len(self._inside) < self._slots:
            its = self._next(time_s)
            worker, came_s = its.queue.popitem(last=False)
            del self._waiting[worker]
            self._let_in(its, worker, came_s, time_s)
            let_in.append(worker)
        return let_in

    def _let_in(self, its: _Class, worker: int, came_s: float, time_s: float) -> None:
        self._inside[worker] = (its, came_s)
        self._admissions += 1
        its.inside += 1
        its.since = self._admissions
        its.attainment.waited(time_s, max(0, int((time_s - came_s) * 1e6)))

    def _next(self, time_s: float) -> _Class:
        """The class that was passed over too often, the longest of them; else the one with the lowest F."""
        overdue_since = self._admissions - PASSED_OVER
        chosen: _Class | None = None
        lowest = inf
        overdue = False
        for its in self._ordered:
            if not its.queue:
                continue
            if its.since <= overdue_since:
                if not overdue or chosen is None or its.since < chosen.since:
                    chosen, overdue = its, True
            elif not overdue:
                f = its.attainment.f(time_s)
                if f < lowest:
                    chosen, lowest = its, f
        if chosen is None:
            raise AssertionError("Somebody waits, but no class has a queue.")
        return chosen


def _by_target(classes: dict[str, _Class]) -> list[_Class]:
    """The higher target first, then the order given: so the first with the lowest F is the one to choose."""
    return sorted(classes.values(), key=lambda its: -its.attainment.promise.target_percent)
