"""The figures that can undo a change by themselves, read from one interval's Rates."""

from msgspec import Struct

from coresteer_core.node.rates import ABSENT_SHARE, ABSENT_U32, SHARES_PER_UNIT, Rates

METRICS = {
    "rtt_p99_us": "TCP round-trip time p99 in µs",
    "dropped_per_s": "dropped packets per second",
    "busiest_cpu_percent": "busiest CPU in percent",
}
"""Every metric a Guardrail may name, with the words for it in a sentence."""


class Guardrail(Struct, frozen=True):
    """Undo at once when metric, a key of METRICS, rises over max."""

    metric: str
    max: float


def measure(rates: Rates) -> dict[str, float | None]:
    """Each metric's value in one interval, None where its source could not be read.

    dropped_per_s counts what the netdevs dropped, in and out; a netdev's count includes the packets
    that softnet's full backlog turned away (kernel: net/core/dev.c, enqueue_to_backlog). Only without
    netdev counters is softnet's own count taken.
    """
    busy = [share for share in rates.shares.get("busy") or b"" if share != ABSENT_SHARE]
    return {
        "rtt_p99_us": float(rates.tcp.rtt_p99_us) if rates.tcp is not None and rates.tcp.sockets else None,
        "dropped_per_s": _dropped_per_s(rates),
        "busiest_cpu_percent": max(busy) * 100 / SHARES_PER_UNIT if busy else None,
    }


def _dropped_per_s(rates: Rates) -> float | None:
    if rates.duration_s <= 0:
        return None
    if rates.netdevs is not None:
        return sum(netdev.rx_dropped + netdev.tx_dropped for netdev in rates.netdevs) / rates.duration_s
    column = rates.counts.get("dropped")
    if column is None:
        return None
    cells = [int.from_bytes(column[at : at + 4], "little") for at in range(0, len(column), 4)]
    return sum(cell for cell in cells if cell != ABSENT_U32) / rates.duration_s
