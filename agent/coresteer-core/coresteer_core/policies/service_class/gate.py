"""Gate: admit waiting requests, the service class with the lowest attainment F first.

Within a class the accounts take turns, and the requests of each are in order of arrival.

A state machine: events go in, admitted workers come out. No I/O, no clock.
"""

from collections import OrderedDict
from collections.abc import Callable, Sequence
from math import inf

from coresteer_core.node.service_classes import ClassFigures
from coresteer_core.policies.service_class.attainment import Attainment, ClassTarget

MAX_ADMISSIONS_OF_OTHERS = 64
"""Admissions of other classes after which a waiting class is served next, whatever its attainment F.

F alone would starve classes: one that never meets its deadline stays at F = 0, before all with a lower target. So a
request with `ahead` earlier ones of its class and account is admitted after at most (ahead + 1) × accounts ×
(MAX_ADMISSIONS_OF_OTHERS + classes) admissions.
"""


class _Queue:
    """Waiting workers of a class: the accounts take turns, the workers of each are in order of arrival."""

    __slots__ = ("_by_account", "_workers")

    def __init__(self) -> None:
        self._workers: OrderedDict[int, tuple[float, int]] = OrderedDict()
        """Arrival time in s and account by worker, in order of arrival."""
        self._by_account: OrderedDict[int, OrderedDict[int, None]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._workers)

    def append(self, worker: int, arrived_s: float, account: int) -> None:
        self._workers[worker] = arrived_s, account
        self._by_account.setdefault(account, OrderedDict())[worker] = None

    def remove(self, worker: int) -> tuple[float, int]:
        """Remove a worker; return its arrival time and account."""
        arrived_s, account = self._workers.pop(worker)
        own = self._by_account[account]
        del own[worker]
        if not own:
            del self._by_account[account]
        return arrived_s, account

    def pop(self) -> tuple[int, float]:
        """Remove the next worker, and let its account wait until the others had their turn."""
        account, own = next(iter(self._by_account.items()))
        self._by_account.move_to_end(account)
        worker = next(iter(own))
        return worker, self.remove(worker)[0]

    def arrived_s(self, worker: int) -> float:
        return self._workers[worker][0]

    def first_s(self) -> float | None:
        """Return the arrival time of the worker that waits longest; None without one."""
        return next((arrived_s for arrived_s, _ in self._workers.values()), None)


class _ClassState:
    __slots__ = ("active", "attainment", "queue", "since", "used")

    def __init__(self, target: ClassTarget, window_s: float) -> None:
        self.attainment = Attainment(target, window_s)
        self.queue = _Queue()
        self.active = 0
        self.since = 0
        """Number of admissions of the gate at the class's last one, or when its queue became non-empty."""
        self.used = False


class Gate:
    """Admission control for requests by service class. slots: the concurrency limit. The caller numbers the workers.

    targets: in order of precedence, which decides between equal F and equal targets. An active request is never
    interrupted, even if the concurrency limit is lowered.
    """

    def __init__(self, targets: Sequence[ClassTarget], *, slots: int, window_s: float) -> None:
        self._active: dict[int, tuple[_ClassState, float]] = {}
        self._waiting: dict[int, _ClassState] = {}
        self._admissions = 0
        self._slots = slots
        self._window_s = window_s
        self._classes = {target.name: _ClassState(target, window_s) for target in targets}
        self._ordered = _by_target(self._classes)

    @property
    def slots(self) -> int:
        """Return the concurrency limit."""
        return self._slots

    def enter(self, worker: int, name: str, time_s: float, account: int = 0) -> list[int]:
        """Handle the arrival of a worker's request; return the workers admitted now.

        account: those of different accounts take turns within a class, so that none can fill its queue. Raises KeyError
        for an unknown class, ValueError for a worker that waits or is active already.
        """
        state = self._classes[name]
        if worker in self._active or worker in self._waiting:
            raise ValueError(f"Worker {worker} already has a waiting or active request.")
        state.used = True
        state.attainment.record_arrival()
        if not self._waiting and len(self._active) < self._slots:
            self._admit(state, worker, time_s, time_s)
            return [worker]
        self._enqueue(state, worker, time_s, account)
        return []

    def leave(self, worker: int, time_s: float, *, ok: bool) -> list[int]:
        """Handle the end of a worker's active or waiting request; return the workers admitted now."""
        if (entered := self._active.pop(worker, None)) is not None:
            state, arrived_s = entered
            state.active -= 1
            state.attainment.record_end(time_s, max(0, int((time_s - arrived_s) * 1e6)) if ok else None)
            return self._fill(time_s) if self._waiting else []
        if (waited := self._waiting.pop(worker, None)) is not None:
            waited.queue.remove(worker)
            waited.attainment.record_end(time_s, None)
        return []

    def set_slots(self, slots: int, time_s: float) -> list[int]:
        """Set the concurrency limit; return the workers admitted now."""
        self._slots = slots
        return self._fill(time_s)

    def replace_classes(
        self,
        targets: Sequence[ClassTarget],
        *,
        slots: int,
        window_s: float,
        time_s: float,
        classify: Callable[[int], str | None],
    ) -> tuple[list[int], list[int]]:
        """Replace the service classes; return the workers admitted now, and the waiting ones whose class is removed.

        A class with the same name, deadline and window keeps its history. classify: returns a waiting worker's class.
        Active requests keep their slots.
        """
        before = self._classes
        self._classes = {}
        for target in targets:
            state = before.get(target.name)
            if state is None or window_s != self._window_s or state.attainment.target.deadline_us != target.deadline_us:
                state = _ClassState(target, window_s)
            state.attainment.set_target(target)
            self._classes[target.name] = state
        self._ordered = _by_target(self._classes)
        self._slots, self._window_s = slots, window_s
        waiting = []
        for worker, state in self._waiting.items():
            waiting.append((worker, *state.queue.remove(worker)))
            state.attainment.pending -= 1
        self._waiting.clear()
        gone = []
        for worker, arrived_s, account in waiting:
            name = classify(worker)
            if name is None or name not in self._classes:
                gone.append(worker)
                continue
            state = self._classes[name]
            state.used = True
            state.attainment.record_arrival()
            self._enqueue(state, worker, arrived_s, account)
        return self._fill(time_s), gone

    def waiting(self) -> list[tuple[int, float]]:
        """Return (worker, arrival time in s) of the waiting requests, in order of arrival."""
        return [(worker, state.queue.arrived_s(worker)) for worker, state in self._waiting.items()]

    def class_of(self, worker: int) -> str | None:
        """Return the name of the service class of a worker's active request; None for other workers."""
        entered = self._active.get(worker)
        return None if entered is None else entered[0].attainment.target.name

    def figures(self, time_s: float, *, percentiles: bool = True) -> list[ClassFigures]:
        """Return the attainment of all service classes in order of precedence. percentiles: see Attainment.figures().

        source is ``gate`` for classes with a request at this gate so far, else None.
        """
        found = []
        for state in self._classes.values():
            first_s = state.queue.first_s()
            found.append(
                state.attainment.figures(
                    time_s,
                    "gate" if state.used else None,
                    waiting=len(state.queue),
                    active=state.active,
                    waits_us=None if first_s is None else max(0, int((time_s - first_s) * 1e6)),
                    percentiles=percentiles,
                )
            )
        return found

    def _enqueue(self, state: _ClassState, worker: int, arrived_s: float, account: int) -> None:
        if not state.queue:
            state.since = self._admissions
        state.queue.append(worker, arrived_s, account)
        self._waiting[worker] = state

    def _fill(self, time_s: float) -> list[int]:
        admitted = []
        while self._waiting and len(self._active) < self._slots:
            state = self._next_class(time_s)
            worker, arrived_s = state.queue.pop()
            del self._waiting[worker]
            self._admit(state, worker, arrived_s, time_s)
            admitted.append(worker)
        return admitted

    def _admit(self, state: _ClassState, worker: int, arrived_s: float, time_s: float) -> None:
        self._active[worker] = (state, arrived_s)
        self._admissions += 1
        state.active += 1
        state.since = self._admissions
        state.attainment.record_wait(time_s, max(0, int((time_s - arrived_s) * 1e6)))

    def _next_class(self, time_s: float) -> _ClassState:
        """Return the class to serve next: that longest over MAX_ADMISSIONS_OF_OTHERS, else that with the lowest F."""
        overdue_since = self._admissions - MAX_ADMISSIONS_OF_OTHERS
        chosen: _ClassState | None = None
        lowest = inf
        overdue = False
        for state in self._ordered:
            if not state.queue:
                continue
            if state.since <= overdue_since:
                if not overdue or chosen is None or state.since < chosen.since:
                    chosen, overdue = state, True
            elif not overdue:
                f = state.attainment.f(time_s)
                if f < lowest:
                    chosen, lowest = state, f
        if chosen is None:
            raise AssertionError("A request waits, but no class has a queue.")
        return chosen


def _by_target(classes: dict[str, _ClassState]) -> list[_ClassState]:
    """Return the classes by descending target, then in the given order: the first with the lowest F is served."""
    return sorted(classes.values(), key=lambda state: -state.attainment.target.target_percent)
