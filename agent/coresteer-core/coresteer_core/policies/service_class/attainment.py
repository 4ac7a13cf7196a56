"""How far each service class gets what it was promised: F(i) = S_i / (N_i × P_i) over a sliding window.

Kim, Song and Lee, percentile scheduling for differentiated services. Pure: the time comes from the caller.
"""

from collections import Counter, deque
from math import inf

from msgspec import Struct

from coresteer_core.node.service_classes import ClassFigures

BUCKETS = 20
"""A window fades in so many steps."""


class Promise(Struct, frozen=True):
    """What one class is to get: target_percent of its requests done, within deadline_us of their arrival if given."""

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
    """N, S and response times of one class over the last window_s seconds, in twenty buckets.

    A request counts in N from its arrival for as long as it is there, and for window_s after its end; in S from its
    end for as long. So S is never more than N, what waits is never forgotten, and a class that is passed over sinks to
    F = 0 when its last success fades. A time before the last one given counts as the last one.
    """

    def __init__(self, promise: Promise, window_s: float) -> None:
        self._window_s = window_s
        self._buckets: deque[_Bucket] = deque()
        self._ends_s = -inf
        """When the newest bucket ends; until then none fades."""
        self._requests = 0
        self._satisfied = 0
        self.present = 0
        """Requests that arrived and have not ended."""
        self.keep(promise)

    def keep(self, promise: Promise) -> None:
        """Measure against another target from now on."""
        self.promise = promise
        self._deadline_us = inf if promise.deadline_us is None else promise.deadline_us
        self._share = promise.target_percent / 100

    def arrived(self) -> None:
        """A request came (N)."""
        self.present += 1

    def ended(self, time_s: float, response_us: int | None) -> None:
        """One that came ended: response_us after it came, None when it failed. A success (S) within the deadline."""
        self.present -= 1
        self.told(time_s, 1, 0 if response_us is None or response_us > self._deadline_us else 1, response_us)

    def told(self, time_s: float, requests: int, satisfied: int, response_us: int | None = None) -> None:
        """So many requests ended that somebody else counted, all of them after response_us where that is known."""
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

    def waited(self, time_s: float, wait_us: int) -> None:
        """One was let in after so long."""
        if time_s >= self._ends_s:
            self._turn(time_s)
        bucket = self._buckets[-1]
        if wait_us > bucket.longest_wait_us:  # noqa: PLR1730  max() costs each request more
            bucket.longest_wait_us = wait_us

    def f(self, time_s: float) -> float:
        """S / (N × P), 0.0 without a request."""
        if time_s >= self._ends_s:
            self._turn(time_s)
        requests = self._requests + self.present
        return self._satisfied / (requests * self._share) if requests else 0.0

    def figures(
        self,
        time_s: float,
        source: str | None,
        *,
        waiting: int = 0,
        inside: int = 0,
        waits_us: int | None = None,
        tasks: int = 0,
        percentiles: bool = True,
    ) -> ClassFigures:
        """What there is to tell. waits_us: how long the one that waits longest has waited so far.

        percentiles: of the response times too, which is nearly all of what it costs.
        """
        f = self.f(time_s)
        responses: Counter[int] = Counter()
        for bucket in self._buckets if percentiles else ():
            responses.update(bucket.responses)
        p50_us, p95_us, p99_us = _quantiles(responses, (0.50, 0.95, 0.99))
        longest_us = max((bucket.longest_wait_us for bucket in self._buckets), default=-1)
        longest_us = max(longest_us, -1 if waits_us is None else waits_us)
        return ClassFigures(
            self.promise.name,
            self.promise.target_percent,
            self.promise.deadline_us,
            source,
            self._requests + self.present,
            self._satisfied,
            f,
            waiting,
            inside,
            p50_us,
            p95_us,
            p99_us,
            None if longest_us < 0 else longest_us,
            tasks,
        )

    def _turn(self, time_s: float) -> None:
        """Begin a bucket, and forget those that fade."""
        while self._buckets and time_s >= self._buckets[0].fades_s:
            bucket = self._buckets.popleft()
            self._requests -= bucket.requests
            self._satisfied -= bucket.satisfied
        width_s = self._window_s / BUCKETS
        starts_s = time_s // width_s * width_s
        self._buckets.append(_Bucket(starts_s + self._window_s))
        self._ends_s = starts_s + width_s


def _cell(value: int) -> int:
    """Sixteen cells for each doubling: the cell's middle is within 3 % of the value."""
    shift = value.bit_length() - 5
    return value if shift <= 0 else (shift << 4) + (value >> shift)


def _middle(cell: int) -> int:
    shift = (cell >> 4) - 1
    return cell if shift <= 0 else ((2 * (cell - (shift << 4)) + 1) << shift) >> 1


def _quantiles(cells: dict[int, int], shares: tuple[float, ...]) -> list[int | None]:
    """Nearest rank."""
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
