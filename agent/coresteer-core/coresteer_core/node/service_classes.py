"""Attainment of service classes as an agent reports it."""

from typing import Annotated, TypeAlias

from msgspec import Meta, Struct

from coresteer_core.bounds import Count, Name, Quantity

MAX_CLASSES = 16

_Source: TypeAlias = Annotated[str, Meta(pattern=r"\A(gate|histogram|tcp)\Z")]


class ClassFigures(Struct, frozen=True):
    """One service class lately.

    source: where N and S come from, ``gate``, ``histogram`` or ``tcp``; None where nothing tells. requests (N): that
    ended within the window, waiting or inside included; satisfied (S): of them. f: S / (N × P), 0.0 without a request.
    waiting, inside: now. p50_us, p95_us, p99_us: response times within the window, ±3 %, None without one;
    longest_wait_us: at the gate, of those that wait now or were let in within the window. tasks: processes that match.
    """

    name: Name
    target_percent: Annotated[float, Meta(gt=0, le=100)]
    deadline_us: Count | None
    source: _Source | None
    requests: Count
    satisfied: Count
    f: Quantity
    waiting: Count = 0
    inside: Count = 0
    p50_us: Count | None = None
    p95_us: Count | None = None
    p99_us: Count | None = None
    longest_wait_us: Count | None = None
    tasks: Count = 0
