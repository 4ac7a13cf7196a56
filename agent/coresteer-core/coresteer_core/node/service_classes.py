"""Measured attainment of service classes, as an agent sends it to the backend."""

from typing import Annotated, TypeAlias

from msgspec import Meta, Struct

from coresteer_core.bounds import Count, Name, Quantity

MAX_CLASSES = 16

_Source: TypeAlias = Annotated[str, Meta(pattern=r"\A(gate|histogram|tcp)\Z")]


class ClassFigures(Struct, frozen=True):
    """Attainment F of one service class over its time window, with its requests and response times.

    source: of N and S, ``gate``, ``histogram`` or ``tcp``; None where there is none. requests (N): ended within the
    window, plus those waiting or active; satisfied (S): of them. f: S / (N × P), 0.0 without a request. waiting,
    active: at the gate now. p50_us, p95_us, p99_us: response times within the window, ±3 %, None without a request.
    longest_wait_us: at the gate, of requests that wait now or were admitted within the window. tasks: matching
    processes.
    """

    name: Name
    target_percent: Annotated[float, Meta(gt=0, le=100)]
    deadline_us: Count | None
    source: _Source | None
    requests: Count
    satisfied: Count
    f: Quantity
    waiting: Count = 0
    active: Count = 0
    p50_us: Count | None = None
    p95_us: Count | None = None
    p99_us: Count | None = None
    longest_wait_us: Count | None = None
    tasks: Count = 0
