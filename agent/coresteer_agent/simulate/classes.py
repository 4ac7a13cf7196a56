"""What the service classes of a simulated node get: clients that ask at a gate, wait, are served and think."""

import math
import random
from collections.abc import Iterable
from heapq import heappop, heappush

from coresteer_agent.simulate.seeded import seeded
from coresteer_core.node.service_classes import ClassFigures
from coresteer_core.policies.service_class.gate import Gate
from coresteer_core.policies.service_class.policy import ServiceClasses

_CLIENTS = 8
"""Of each class; each asks again some time after its last answer, so that never more wait."""
_MOST_SLOTS = 4
_SERVICE_S = 0.025
_LEAST_THINK_S, _MOST_THINK_S = 0.02, 0.5
_WAVE_S = 240.0
_FAILED = 0.01
_LONGEST_PAUSE_S = 5.0


class SimulatedClasses:
    """The gate of one policy. Times are Unix seconds and grow."""

    def __init__(self, spec: ServiceClasses, seed: int, *, cpus: int) -> None:
        self.spec = spec
        self._random = seeded("classes", seed)
        self._names = [graded.name for graded in spec.classes]
        slots = min(spec.slots or cpus, _MOST_SLOTS)
        self._gate = Gate([graded.promise for graded in spec.classes], slots=slots, window_s=spec.window_s)
        self._events: list[tuple[float, int, bool]] = []
        self._now_s: float | None = None

    def figures(self, now_s: float) -> list[ClassFigures]:
        """After everything that happened up to now; a long pause did not happen."""
        if self._now_s is None:
            for worker in range(_CLIENTS * len(self._names)):
                heappush(self._events, (now_s + self._random.random(), worker, True))
        elif now_s - self._now_s > _LONGEST_PAUSE_S:
            paused_s = now_s - self._now_s
            self._events = [(time_s + paused_s, worker, asks) for time_s, worker, asks in self._events]
        self._now_s = max(now_s, self._now_s or 0.0)
        while self._events[0][0] <= self._now_s:
            self._happen(*heappop(self._events))
        return self._gate.figures(self._now_s)

    def _happen(self, time_s: float, worker: int, asks: bool) -> None:
        if asks:
            self._serve(self._gate.enter(worker, self._names[worker // _CLIENTS], time_s), time_s)
            return
        self._serve(self._gate.leave(worker, time_s, ok=self._random.random() >= _FAILED), time_s)
        wave = 0.5 - 0.5 * math.cos(2 * math.pi * time_s / _WAVE_S)
        think_s = _LEAST_THINK_S + (_MOST_THINK_S - _LEAST_THINK_S) * wave
        heappush(self._events, (time_s + _about(self._random, think_s), worker, True))

    def _serve(self, let_in: Iterable[int], time_s: float) -> None:
        for worker in let_in:
            heappush(self._events, (time_s + _about(self._random, _SERVICE_S), worker, False))


def _about(source: random.Random, mean: float) -> float:
    return source.expovariate(1 / mean)
