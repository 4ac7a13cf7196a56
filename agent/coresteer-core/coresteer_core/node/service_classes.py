"""Attainment of service classes as an agent reports it."""

from msgspec import Struct


class ClassFigures(Struct, frozen=True):
    """One service class lately.

    source: where N and S come from, ``gate``, ``histogram`` or ``tcp``; None where nothing tells. requests (N): that
    ended within the window, waiting or inside included; satisfied (S): of them. f: S / (N × P), 0.0 without a request.
    waiting, inside: now. p50_us, p95_us, p99_us: response times within the window, ±3 %, None without one;
    longest_wait_us: at the gate, of those that wait now or were let in within the window. tasks: processes that match.
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
