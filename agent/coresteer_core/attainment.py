"""How far each service class gets what it was promised: F(i) = S_i / (N_i × P_i) over a sliding window.

Kim, Song and Lee, percentile scheduling for differentiated services. Pure: the time comes from the caller.
"""

from msgspec import Struct


class ClassFigures(Struct, frozen=True):
    """One service class lately.

    source: where N and S come from, ``gate``, ``histogram`` or ``tcp``; None where nothing tells. requests (N) and
    satisfied (S): within the window. f: S / (N × P), 0.0 without a request. waiting, inside: now. p50_us, p95_us,
    p99_us: response times within the window, None without one; longest_wait_us: at the gate, of those that wait now
    or were let in within the window. tasks: processes that match.
    """

    name: str
    target_percent: float
    deadline_us: int | None
    source: str | None
    requests: int
    satisfied: int
    f: float
    waiting: int = 0
    inside: int = 0
    p50_us: int | None = None
    p95_us: int | None = None
    p99_us: int | None = None
    longest_wait_us: int | None = None
    tasks: int = 0


class Attainment:
    """N, S and response times of one class over the last window_s seconds, in twenty buckets."""

    def __init__(self, target_percent: float, window_s: float) -> None:
        raise NotImplementedError

    def arrived(self, time_s: float) -> None:
        """A request came (N)."""
        raise NotImplementedError

    def satisfied(self, time_s: float, response_us: int, *, counts: bool) -> None:
        """One ended after response_us. counts: as a success (S)."""
        raise NotImplementedError

    def f(self, time_s: float) -> float:
        """S / (N × P), 0.0 without a request."""
        raise NotImplementedError
