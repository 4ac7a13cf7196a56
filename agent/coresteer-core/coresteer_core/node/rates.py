"""Rates: how much a node's counters increased in one interval, as sent and stored. Absent is None, never 0."""

import sys
from array import array
from typing import Annotated

from msgspec import Meta, Struct

from coresteer_core.bounds import Count, Name
from coresteer_core.cpuset import MAX_CPUS

MAX_COLUMNS = 32
MAX_NETDEVS = 4096
MAX_COUNTERS = 256
MAX_IRQ_CELLS = 262_144
MAX_DURATION_S = 86_400.0
"""Of one interval."""
MAX_AGENT_CPU_S = 1e6


class NetdevCounts(Struct, frozen=True, array_like=True):
    """How much a netdev's counters increased during an interval (kernel: struct rtnl_link_stats64)."""

    name: Name
    rx_bytes: Count
    tx_bytes: Count
    rx_packets: Count
    tx_packets: Count
    rx_dropped: Count
    tx_dropped: Count
    rx_errors: Count
    tx_errors: Count


class TcpLatency(Struct, frozen=True, array_like=True):
    """Percentiles in µs of the kernel's smoothed RTT of TCP sockets to other hosts, active in the interval."""

    sockets: Count
    rtt_p50_us: Count
    rtt_p95_us: Count
    rtt_p99_us: Count


ABSENT_SHARE = 255
"""Value in a column of Rates.shares for a CPU that was offline or could not be read."""


SHARES_PER_UNIT = 200
"""Value in a column of Rates.shares for 100 %: the unit is 0.5 % of the interval, at 1 Hz half a kernel tick."""


ABSENT_U32 = 0xFFFF_FFFF
"""Value in a column of Rates.counts for a CPU whose count is unknown."""


CPU_SHARES = ("busy", "user", "system", "irq", "softirq", "steal", "iowait")


SOFTIRQ_COUNTS = ("net_rx", "net_tx", "softirq_other")
SOFTNET_COUNTS = ("processed", "dropped", "time_squeeze")
CPU_COUNTS = (*SOFTIRQ_COUNTS, *SOFTNET_COUNTS)


class Rates(Struct, frozen=True):
    """How much each counter of a node increased between two Samples. Divide by duration_s for a rate.

    Wrap, reset and hot-plug are already handled (coresteer_core.node.derive). Columns are raw
    little-endian arrays, one element a CPU number from 0 to the highest present CPU; None means
    the source could not be read.

    shares: u8 columns named as in CPU_SHARES, in units of 0.5 %, ABSENT_SHARE where unknown.
    busy is everything but idle and iowait; user includes nice and guest.
    counts: u32 columns named as in CPU_COUNTS, ABSENT_U32 where unknown. net_rx, net_tx and
    softirq_other count softirqs raised; SOFTNET_COUNTS are softnet_stat's.
    irq_ids (u32), irq_cpus (u16), irq_counts (u32): the IRQ × CPU cells that moved, others are 0.
    An irq_id is the interrupt's number, or for architecture rows such as LOC four ASCII bytes
    (see encode_irq_id).
    counters: the node's counters by name (coresteer_core.metrics.COUNTER_SOURCES), without those that could not be
    read.
    """

    seq: Count
    time_ms: int
    duration_s: Annotated[float, Meta(gt=0, le=MAX_DURATION_S)]
    cpus: Annotated[int, Meta(ge=1, le=MAX_CPUS)]
    shares: Annotated[dict[str, bytes | None], Meta(max_length=MAX_COLUMNS)]
    counts: Annotated[dict[str, bytes | None], Meta(max_length=MAX_COLUMNS)]
    irq_ids: Annotated[bytes, Meta(max_length=4 * MAX_IRQ_CELLS)] | None
    irq_cpus: Annotated[bytes, Meta(max_length=2 * MAX_IRQ_CELLS)] | None
    irq_counts: Annotated[bytes, Meta(max_length=4 * MAX_IRQ_CELLS)] | None
    netdevs: Annotated[list[NetdevCounts], Meta(max_length=MAX_NETDEVS)] | None
    tcp: TcpLatency | None
    agent_cpu_s: Annotated[float, Meta(ge=0, le=MAX_AGENT_CPU_S)] | None
    agent_rss_bytes: Count | None
    counters: Annotated[dict[str, Count], Meta(max_length=MAX_COUNTERS)] = {}


FIRST_LABEL_ID = 0x2100_0000
"""Smallest irq_id that encodes a row label of /proc/interrupts such as LOC; ids below are interrupt numbers."""


def encode_irq_id(label: str) -> int | None:
    """Return the irq_id of a row of /proc/interrupts: 41 for ``41``, for ``LOC`` its four padded ASCII bytes.

    Labels start at 0x21000000, far above any interrupt number. None for a label that is neither.
    """
    if label.isdecimal():
        number = int(label)
        return number if number < FIRST_LABEL_ID else None
    if not 0 < len(label) <= 4 or not label.isascii() or not label.isprintable() or " " in label:
        return None
    return int.from_bytes(label.ljust(4).encode(), "big")


def decode_irq_id(irq_id: int) -> str:
    """Return the row label of /proc/interrupts (``41``, ``LOC``) that encode_irq_id() encoded as this irq_id."""
    if irq_id < FIRST_LABEL_ID:
        return str(irq_id)
    return irq_id.to_bytes(4, "big").decode("ascii", "replace").rstrip()


def unpack_column(column: bytes, kind: str) -> "array[int]":
    """Return the numbers in a little-endian column of Rates. kind: type code of array, ``H`` (u16) or ``I`` (u32)."""
    numbers = array(kind, column)
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers
