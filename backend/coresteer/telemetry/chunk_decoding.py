"""Decoding of telemetry chunks into the Rates from which chunks.encode() made them. Pure."""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from coresteer.telemetry.byte_columns import F64, I64, U32
from coresteer.telemetry.chunks import (
    Chunk,
    Scalars,
    amounts,
    cumulative,
    read_cells,
    read_count,
    read_netdevs,
    read_scalars,
    read_share,
)
from coresteer.telemetry.sample_columns import COLUMNS
from coresteer_core.metrics import COUNTER_SOURCES
from coresteer_core.node.rates import CPU_COUNTS, CPU_SHARES, NetdevCounts, Rates, TcpLatency


def decode(chunk: Chunk) -> list[Rates]:
    """Return the Rates of a telemetry chunk, oldest first. Columns that are None in the chunk are None in the Rates."""
    scalars = read_scalars(chunk.scalars)
    count = chunk.samples
    counters = _decode_counters(scalars)
    rss = _optional(np.frombuffer(scalars.agent_rss_bytes, "<i8"))
    tcp = np.frombuffer(scalars.tcp, "<i8").reshape(4, count).T.tolist()
    agent_cpu_s = [None if v != v else v for v in np.frombuffer(scalars.agent_cpu_s, "<f8").tolist()]  # noqa: PLR0124 - NaN

    def per_sample(name: str, read: Callable[[bytes], npt.NDArray[np.uint8] | U32]) -> list[bytes | None]:
        column = chunk.columns[name]
        if column is None:
            return [None] * count
        missing = set(scalars.absent.get(name, ()))
        values = read(column)
        return [None if p in missing else values[:, p].tobytes() for p in range(count)]

    shares = {n: per_sample(n, lambda raw: read_share(raw, chunk.cpus)) for n in CPU_SHARES}
    counts = {n: per_sample(n, lambda raw: read_count(raw, chunk.cpus, count)) for n in CPU_COUNTS}
    cells = _decode_cells(chunk, set(scalars.absent.get("irqs", ())))
    netdevs = _decode_netdevs(chunk, set(scalars.absent.get("netdevs", ())))
    seqs, times = cumulative(scalars.seqs).tolist(), cumulative(scalars.times_ms).tolist()
    durations = np.frombuffer(scalars.durations_s, "<f8").tolist()
    return [
        Rates(
            seq=seqs[p],
            time_ms=times[p],
            duration_s=durations[p],
            cpus=chunk.cpus,
            shares={name: values[p] for name, values in shares.items()},
            counts={name: values[p] for name, values in counts.items()},
            irq_ids=cells[p][0],
            irq_cpus=cells[p][1],
            irq_counts=cells[p][2],
            netdevs=netdevs[p],
            tcp=None if tcp[p][0] < 0 else TcpLatency(*tcp[p]),
            agent_cpu_s=agent_cpu_s[p],
            agent_rss_bytes=rss[p],
            counters=counters[p],
        )
        for p in range(count)
    ]


def decode_columns(samples: int, cpus: int, scalars: bytes, columns: dict[str, bytes | None]) -> list[Rates]:
    """Return the Rates of a telemetry chunk, oldest first, from its scalars and some of its columns, by name."""
    all_columns = dict.fromkeys(COLUMNS) | columns
    return decode(Chunk(0, 0, 0, 0, samples, cpus, scalars, all_columns))


def _decode_counters(scalars: Scalars) -> list[dict[str, int]]:
    columns = [amounts(scalars, field) for field in COUNTER_SOURCES]
    if not any(np.isnan(column).any() for column in columns):
        return [
            dict(zip(COUNTER_SOURCES, row, strict=True)) for row in np.stack(columns, axis=1).astype(np.int64).tolist()
        ]
    rows = zip(*map(_optional, columns), strict=True)
    return [
        {field: value for field, value in zip(COUNTER_SOURCES, row, strict=True) if value is not None} for row in rows
    ]


def _optional(values: I64 | F64) -> list[int | None]:
    return [int(value) if value >= 0 else None for value in values.tolist()]


def _decode_cells(chunk: Chunk, missing: set[int]) -> list[tuple[bytes | None, bytes | None, bytes | None]]:
    column = chunk.columns["irqs"]
    if column is None:
        return [(None, None, None)] * chunk.samples
    ids, cpus, counts = read_cells(column, chunk.samples)
    decoded: list[tuple[bytes | None, bytes | None, bytes | None]] = []
    for position in range(chunk.samples):
        moved = counts[:, position] > 0
        decoded.append(
            (None, None, None)
            if position in missing
            else (ids[moved].tobytes(), cpus[moved].tobytes(), counts[moved, position].tobytes())
        )
    return decoded


def _decode_netdevs(chunk: Chunk, missing: set[int]) -> list[list[NetdevCounts] | None]:
    column = chunk.columns["netdevs"]
    if column is None:
        return [None] * chunk.samples
    names, present, counts = read_netdevs(column, chunk.samples)
    return [
        None
        if position in missing
        else [
            NetdevCounts(name, *counts[row, :, position].tolist())
            for row, name in enumerate(names)
            if present[row, position]
        ]
        for position in range(chunk.samples)
    ]
