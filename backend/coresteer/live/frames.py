"""Binary frames of the WebSocket /api/v1/live: a JSON header, then little-endian columns of numbers. Pure."""

import struct
from collections.abc import Mapping, Sequence

import msgspec
import numpy as np

from coresteer.fleet.query import Fleet
from coresteer_core.metrics import HISTORY_METRICS
from coresteer_core.node.metric_values import metric_values
from coresteer_core.node.rates import CPU_COUNTS, CPU_SHARES, Rates


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


def fleet_frame(fleet: Fleet, places: Sequence[int], header: Mapping[str, object]) -> bytes:
    """Return the figures of some nodes as a frame, one column per figure: NaN or 0xFFFFFFFF where unknown.

    header: the figures of all nodes that match, by group.
    """
    values, at = fleet.values, np.array(places, np.intp)
    columns = [
        ("node_id", "u32", np.array([fleet.nodes[place].id for place in places], "<u4").tobytes()),
        ("health", "u8", values.health[at].tobytes()),
        ("busiest_cpu", "u32", values.busiest_cpu[at].astype("<u4").tobytes()),
        ("softirq_cpu", "u32", values.softirq_cpu[at].astype("<u4").tobytes()),
    ]
    columns += [(name, "f32", column[at].astype("<f4").tobytes()) for name, column in values.metrics.items()]
    return columnar_frame({"type": "fleet", "time_ms": values.time_ms, **header}, columns)
