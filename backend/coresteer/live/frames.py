"""Binary frames of the WebSocket /api/live: a JSON header, then little-endian columns of numbers. Pure."""

import struct
from collections.abc import Sequence

import msgspec
import numpy as np

from coresteer.presence.schemas import Figures, Health
from coresteer_core.metrics import FLEET_METRICS, HISTORY_METRICS
from coresteer_core.node.metric_values import metric_values
from coresteer_core.node.rates import ABSENT_U32, CPU_COUNTS, CPU_SHARES, Rates

HEALTH_CODES = {Health.LIVE: 0, Health.STALE: 1, Health.AWAY: 2, Health.NEW: 3}
"""The code of each health in the fleet frame."""
_CPUS = ("busiest_cpu", "softirq_cpu")


def columnar_frame(header: dict[str, object], columns: Sequence[tuple[str, str, bytes]]) -> bytes:
    """Return a binary frame of a JSON header and columns of numbers, each a name, a type and little-endian bytes.

    Layout: u32 length of the header, the header padded with spaces, the columns at multiples of 8 bytes. The header
    lists the columns; their offsets count from the frame's start, offsets and lengths are bytes.
    """

    def described(first: int) -> tuple[bytes, list[int]]:
        offsets = []
        for _, _, data in columns:
            offsets.append(first)
            first += (len(data) + 7) // 8 * 8
        listed = [
            {"name": name, "type": kind, "offset": offset, "length": len(data)}
            for (name, kind, data), offset in zip(columns, offsets, strict=True)
        ]
        return msgspec.json.encode(header | {"columns": listed}), offsets

    widest, _ = described(1_000_000_000)  # no offset is written longer than this one
    start = (4 + len(widest) + 7) // 8 * 8
    text, offsets = described(start)
    frame = bytearray(offsets[-1] + len(columns[-1][2]) if columns else start)
    frame[:4] = struct.pack("<I", start - 4)
    frame[4:start] = text.ljust(start - 4)
    for (_, _, data), offset in zip(columns, offsets, strict=True):
        frame[offset : offset + len(data)] = data
    return bytes(frame)


def rates_frame(node_id: int, rates: Rates, physical: frozenset[str] | None) -> bytes:
    """Return the rates of one node in one interval as a frame; unknown columns are omitted.

    metrics in the header: the values of coresteer_core.metrics.HISTORY_METRICS. physical: the netdevs whose traffic
    counts.
    """
    columns = [(name, "u8", rates.shares.get(name)) for name in CPU_SHARES]
    columns += [(name, "u32", rates.counts.get(name)) for name in CPU_COUNTS]
    columns += [("irq_ids", "u32", rates.irq_ids), ("irq_cpus", "u16", rates.irq_cpus)]
    columns += [("irq_counts", "u32", rates.irq_counts)]
    header = {
        "type": "rates",
        "node_id": node_id,
        "seq": rates.seq,
        "time_ms": rates.time_ms,
        "duration_s": rates.duration_s,
        "cpus": rates.cpus,
        "netdevs": rates.netdevs,
        "metrics": metric_values(rates, HISTORY_METRICS, physical),
    }
    return columnar_frame(header, [(name, kind, data) for name, kind, data in columns if data is not None])


FleetRow = tuple[int, Health, Figures | None]
"""A node's id, health and, where it is live, figures."""


def fleet_frame(rows: Sequence[FleetRow], time_ms: int) -> bytes:
    """Return the figures of many nodes as a frame, one column per figure: NaN or 0xFFFFFFFF where unknown."""
    columns = [
        ("node_id", "u32", np.array([node_id for node_id, _, _ in rows], "<u4").tobytes()),
        ("health", "u8", bytes(HEALTH_CODES[health] for _, health, _ in rows)),
    ]
    figures = [figures for _, _, figures in rows]
    for name in _CPUS:
        cpus = [None if one is None else getattr(one, name) for one in figures]
        columns.append((name, "u32", np.array([ABSENT_U32 if cpu is None else cpu for cpu in cpus], "<u4").tobytes()))
    for name in FLEET_METRICS:
        values = [None if one is None else one.metrics[name] for one in figures]
        column = np.array([np.nan if value is None else value for value in values], "<f4")
        columns.append((name, "f32", column.tobytes()))
    return columnar_frame({"type": "fleet", "time_ms": time_ms}, columns)
