"""Heat maps of CPU-time shares: CPU × time blocks with the largest value in each column."""

import struct

import numpy as np

from coresteer.telemetry import chunks
from coresteer.telemetry.byte_columns import F64, U8
from coresteer.telemetry.history import TelemetrySource, TimeRange, by_minutes, read_chunks, read_shares
from coresteer.telemetry.repository import to_unix_ms
from coresteer.telemetry.rollup import unpack_shares
from coresteer.telemetry.schemas import Resolution
from coresteer.telemetry.steps import filled_steps
from coresteer_core.node.rates import ABSENT_SHARE, CPU_SHARES

MAGIC = b"CSH1"
_CODE = {Resolution.SAMPLE: 0, Resolution.MINUTE: 1, Resolution.HOUR: 2}


async def read_heatmap(source: TelemetrySource, share: str, span: TimeRange, columns: int) -> bytes:
    """Return a heat map as the binary block that the endpoint documents.

    A header of 32 bytes precedes the maximum of each CPU and column.
    """
    read = _share_of_samples if span.resolution is Resolution.SAMPLE else _share_of_rollups
    starts, ends, values = await read(source, share, span)
    if (minutes := await by_minutes(source, span, starts.tolist())) is not None:
        span = minutes
        starts, ends, values = await _share_of_rollups(source, share, span)
    count = span.steps(columns, source.interval_s)
    width = (span.end - span.start) / count
    block = max_pool(values, (starts - span.start) / width, (ends - span.start) / width, count)
    header = struct.pack("<4sIIIdd", MAGIC, len(block), count, _CODE[span.resolution], span.start, width)
    return header + block.tobytes()


async def _share_of_samples(source: TelemetrySource, share: str, span: TimeRange) -> tuple[F64, F64, U8]:
    rows, unstored = await read_chunks(source, span, [share])
    cpus = max([row[1] for row in rows] + [rates.cpus for rates in unstored], default=0)
    ends = [np.empty(0, np.float64)]
    seconds = [np.empty(0, np.float64)]
    parts = [np.empty((cpus, 0), np.uint8)]
    for samples, row_cpus, packed, column in rows:
        scalars = chunks.read_scalars(packed)
        ends.append(chunks.cumulative(scalars.times_ms).astype(np.float64))
        seconds.append(np.frombuffer(scalars.durations_s, "<f8"))
        part = np.full((cpus, samples), ABSENT_SHARE, np.uint8)
        if column is not None:
            part[:row_cpus] = chunks.read_share(column, row_cpus)
        parts.append(part)
    for rates in unstored:
        part = np.full((cpus, 1), ABSENT_SHARE, np.uint8)
        if (raw := rates.shares.get(share)) is not None:
            part[: rates.cpus, 0] = np.frombuffer(raw, np.uint8)
        parts.append(part)
    ends.append(np.array([rates.time_ms for rates in unstored], np.float64))
    seconds.append(np.array([rates.duration_s for rates in unstored], np.float64))
    all_ends = np.concatenate(ends)
    return all_ends - np.concatenate(seconds) * 1000, all_ends, np.concatenate(parts, axis=1)


async def _share_of_rollups(source: TelemetrySource, share: str, span: TimeRange) -> tuple[F64, F64, U8]:
    rows, unstored = await read_shares(source, span)
    row = CPU_SHARES.index(share)
    peaks = [unpack_shares(shares, cpus)[0, row] for _, _, cpus, shares in rows] + [r.peaks[row] for r in unstored]
    values = np.full((max(map(len, peaks), default=0), len(peaks)), ABSENT_SHARE, np.uint8)
    for position, of_minute in enumerate(peaks):
        values[: len(of_minute), position] = of_minute
    starts = [int(to_unix_ms(t0)) for t0, *_ in rows] + [r.start_ms for r in unstored]
    ends = [int(to_unix_ms(t1)) for _, t1, *_ in rows] + [r.end_ms for r in unstored]
    return np.array(starts, np.float64), np.array(ends, np.float64), values


def max_pool(values: U8, starts: F64, ends: F64, columns: int) -> U8:
    """Return CPUs × columns from CPUs × intervals that begin and end at fractions of a column.

    Of several intervals in a column (see filled_steps()) the maximum is returned.
    """
    column, interval = filled_steps(starts, ends, columns)
    pooled = np.full((values.shape[0], columns), ABSENT_SHARE, np.uint8)
    if len(column):
        used, begins = np.unique(column, return_index=True)
        # one more in a byte makes ABSENT_SHARE the smallest value, so that it never hides a known one
        pooled[:, used] = np.maximum.reduceat(values[:, interval] + np.uint8(1), begins, axis=1) - np.uint8(1)
    return pooled
