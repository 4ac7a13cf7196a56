"""Rates of one interval, made from the few counters that a test is about."""

import struct
from collections.abc import Sequence

from msgspec.structs import replace

from coresteer_core.node.rates import ABSENT_SHARE, CPU_COUNTS, CPU_SHARES, Rates

UNREAD = Rates(
    1, 0, 1.0, 4, dict.fromkeys(CPU_SHARES), dict.fromkeys(CPU_COUNTS), None, None, None, None, None, None, None
)
"""One second of a node with 4 CPUs, none of whose sources could be read."""


def pack(kind: str, numbers: Sequence[int]) -> bytes:
    """Return a column of Rates. kind: struct's type code, ``I`` (u32) or ``H`` (u16)."""
    return struct.pack(f"<{len(numbers)}{kind}", *numbers)


def make_rates(
    *,
    busy: Sequence[int | None] | None = None,
    softirq: Sequence[int | None] | None = None,
    irq: Sequence[int | None] | None = None,
    cells: Sequence[tuple[int, int, int]] | None = None,
    **fields: object,
) -> Rates:
    """Return Rates of one second in which only what is given was read. fields: of Rates.

    busy, softirq, irq: percent by CPU, None where unknown. cells: (irq_id, CPU, count) of interrupts.
    """
    shares = UNREAD.shares | {
        name: bytes(ABSENT_SHARE if percent is None else 2 * percent for percent in percents)
        for name, percents in (("busy", busy), ("softirq", softirq), ("irq", irq))
        if percents is not None
    }
    if cells is not None:
        fields |= {
            name: pack(kind, [cell[n] for cell in cells])
            for n, (name, kind) in enumerate((("irq_ids", "I"), ("irq_cpus", "H"), ("irq_counts", "I")))
        }
    return replace(UNREAD, **{"cpus": len(busy) if busy else UNREAD.cpus, "shares": shares} | fields)
