"""Simulated service classes of a node: a closed queueing network of clients, a gate and servers."""

import math
import random
from collections.abc import Iterable
from heapq import heappop, heappush

from coresteer_agent.simulate.seeded_random import seeded_random
from coresteer_core.node.service_classes import ClassFigures
from coresteer_core.policies.service_class.gate import Gate
from coresteer_core.policies.service_class.policy import ServiceClasses

_CLIENTS = 8
"""Clients per class; each sends its next request a think time after its last response, which bounds the queue."""
_MAX_SLOTS = 4
_SERVICE_S = 0.025
_MIN_THINK_S, _MAX_THINK_S = 0.02, 0.5
_WAVE_S = 240.0
_FAILED = 0.01
_MAX_GAP_S = 5.0


class SimulatedClasses:
    """Simulates clients at the gate of one service-class policy. Times are Unix seconds and must not decrease."""

    def __init__(self, spec: ServiceClasses, seed: int, *, cpus: int) -> None:
        self.spec = spec
        self._random = seeded_random("classes", seed)
        self._names = [graded.name for graded in spec.classes]
        slots = min(spec.slots or cpus, _MAX_SLOTS)
        self._gate = Gate([graded.target for graded in spec.classes], slots=slots, window_s=spec.window_s)
        self._events: list[tuple[float, int, bool]] = []
        self._now_s: float | None = None

    def figures(self, now_s: float) -> list[ClassFigures]:
        """Simulate until now_s and return each class's attainment; a gap of over 5 s between calls is not simulated."""
        if self._now_s is None:
            for worker in range(_CLIENTS * len(self._names)):
                heappush(self._events, (now_s + self._random.random(), worker, True))
        elif now_s - self._now_s > _MAX_GAP_S:
            gap_s = now_s - self._now_s
            self._events = [(time_s + gap_s, worker, arrives) for time_s, worker, arrives in self._events]
        self._now_s = max(now_s, self._now_s or 0.0)
        while self._events[0][0] <= self._now_s:
            self._process(*heappop(self._events))
        return self._gate.figures(self._now_s)

    def _process(self, time_s: float, worker: int, arrives: bool) -> None:
        """Process a worker's arrival at the gate, or the end of its request."""
        if arrives:
            self._serve(self._gate.enter(worker, self._names[worker // _CLIENTS], time_s), time_s)
            return
        self._serve(self._gate.leave(worker, time_s, ok=self._random.random() >= _FAILED), time_s)
        wave = 0.5 - 0.5 * math.cos(2 * math.pi * time_s / _WAVE_S)
        think_s = _MIN_THINK_S + (_MAX_THINK_S - _MIN_THINK_S) * wave
        heappush(self._events, (time_s + _exponential(self._random, think_s), worker, True))

    def _serve(self, admitted: Iterable[int], time_s: float) -> None:
        for worker in admitted:
            heappush(self._events, (time_s + _exponential(self._random, _SERVICE_S), worker, False))


def _exponential(source: random.Random, mean: float) -> float:
    return source.expovariate(1 / mean)
