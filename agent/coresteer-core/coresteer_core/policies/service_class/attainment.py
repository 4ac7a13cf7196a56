"""Attainment of service classes, F(i) = S_i / (N_i × P_i), over a sliding time window.

Source: Kim, Song and Lee, percentile scheduling for differentiated services. Pure: the caller gives the time.
"""

from collections import Counter, deque
from math import inf

from msgspec import Struct

from coresteer_core.node.service_classes import ClassFigures

WINDOW_BUCKETS = 20
"""Number of buckets of the time window; the oldest leaves as a whole."""


class ClassTarget(Struct, frozen=True):
    """Target of one service class: the percentage of its requests to complete, within deadline_us if given."""

    name: str
    target_percent: float
    deadline_us: int | None = None


class _Bucket:
    __slots__ = ("fades_s", "longest_wait_us", "requests", "responses", "satisfied")

    def __init__(self, fades_s: float) -> None:
        self.fades_s = fades_s
        self.requests = 0
        self.satisfied = 0
        self.longest_wait_us = -1
        self.responses: dict[int, int] = {}


class Attainment:
    """Requests (N), satisfied ones (S) and response times of one service class over the last window_s seconds.

    A request counts in N from its arrival until window_s after its end, and in S for window_s after its end. So S never
    exceeds N, waiting requests are never forgotten, and a class that is passed over has F = 0 once its last success
    left the window. A time before the last one given counts as the last one.
    """

    def __init__(self, target: ClassTarget, window_s: float) -> None:
        self._window_s = window_s
        self._buckets: deque[_Bucket] = deque()
        self._ends_s = -inf
        """Time in s at which the newest bucket ends; until then no bucket leaves the window."""
        self._requests = 0
        self._satisfied = 0
        self.pending = 0
        """Number of requests that have arrived and not ended."""
        self.set_target(target)

    def set_target(self, target: ClassTarget) -> None:
        """Replace the class's target; requests counted so far stay."""
        self.target = target
        self._deadline_us = inf if target.deadline_us is None else target.deadline_us
        self._share = target.target_percent / 100

    def record_arrival(self) -> None:
        """Count the arrival of a request (N)."""
        self.pending += 1

    def record_end(self, time_s: float, response_us: int | None) -> None:
        """Count the end of a request; it is satisfied (S) within the deadline. response_us: None if it failed."""
        self.pending -= 1
        self.record(time_s, 1, 0 if response_us is None or response_us > self._deadline_us else 1, response_us)

    def record(self, time_s: float, requests: int, satisfied: int, response_us: int | None = None) -> None:
        """Count requests that another source reports. response_us: of all of them, None where unknown."""
        if time_s >= self._ends_s:
            self._turn(time_s)
        bucket = self._buckets[-1]
        bucket.requests += requests
        bucket.satisfied += satisfied
        self._requests += requests
        self._satisfied += satisfied
        if response_us is not None:
            cell = _cell(response_us)
            bucket.responses[cell] = bucket.responses.get(cell, 0) + requests

    def record_wait(self, time_s: float, wait_us: int) -> None:
        """Record how many µs an admitted request has waited."""
        if time_s >= self._ends_s:
            self._turn(time_s)
        bucket = self._buckets[-1]
        if wait_us > bucket.longest_wait_us:  # noqa: PLR1730  max() costs each request more
            bucket.longest_wait_us = wait_us

    def f(self, time_s: float) -> float:
        """Return the attainment F = S / (N × P) over the window; 0.0 without a request."""
        if time_s >= self._ends_s:
            self._turn(time_s)
        requests = self._requests + self.pending
        return self._satisfied / (requests * self._share) if requests else 0.0

    def figures(
        self,
        time_s: float,
        source: str | None,
        *,
        waiting: int = 0,
        active: int = 0,
        waits_us: int | None = None,
        tasks: int = 0,
        percentiles: bool = True,
    ) -> ClassFigures:
        """Return the class's attainment with all its figures. waits_us: longest wait of the requests that wait now.

        percentiles: include those of response times, which are most of the cost.
        """
        f = self.f(time_s)
        responses: Counter[int] = Counter()
        for bucket in self._buckets if percentiles else ():
            responses.update(bucket.responses)
        p50_us, p95_us, p99_us = _quantiles(responses, (0.50, 0.95, 0.99))
        longest_us = max((bucket.longest_wait_us for bucket in self._buckets), default=-1)
        longest_us = max(longest_us, -1 if waits_us is None else waits_us)
        return ClassFigures(
            self.target.name,
            self.target.target_percent,
            self.target.deadline_us,
            source,
            self._requests + self.pending,
            self._satisfied,
            f,
            waiting,
            active,
            p50_us,
            p95_us,
            p99_us,
            None if longest_us < 0 else longest_us,
            tasks,
        )

    def _turn(self, time_s: float) -> None:
        """Begin a new bucket, and remove those that have left the window."""
        while self._buckets and time_s >= self._buckets[0].fades_s:
            bucket = self._buckets.popleft()
            self._requests -= bucket.requests
            self._satisfied -= bucket.satisfied
        width_s = self._window_s / WINDOW_BUCKETS
        starts_s = time_s // width_s * width_s
        self._buckets.append(_Bucket(starts_s + self._window_s))
        self._ends_s = starts_s + width_s


def _cell(value: int) -> int:
    """Return the histogram cell of a value; there are 16 per doubling, so a cell's middle is within 3 % of it."""
    shift = value.bit_length() - 5
    return value if shift <= 0 else (shift << 4) + (value >> shift)


def _middle(cell: int) -> int:
    shift = (cell >> 4) - 1
    return cell if shift <= 0 else ((2 * (cell - (shift << 4)) + 1) << shift) >> 1


def _quantiles(cells: dict[int, int], shares: tuple[float, ...]) -> list[int | None]:
    """Return quantiles of a histogram by nearest rank; None without values."""
    if not cells:
        return [None] * len(shares)
    total = sum(cells.values())
    found: list[int | None] = []
    seen = 0
    ordered = iter(sorted(cells.items()))
    cell = -1
    for share in shares:
        while seen < share * total:
            cell, count = next(ordered)
            seen += count
        found.append(_middle(cell))
    return found
