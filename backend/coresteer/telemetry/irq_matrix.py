"""Numbers of interrupts over a time range: by row of /proc/interrupts and CPU, and by row over time."""

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from coresteer.telemetry import chunks
from coresteer.telemetry.byte_columns import F64
from coresteer.telemetry.history import TelemetrySource, TimeRange, read_chunks
from coresteer.telemetry.schemas import Series
from coresteer.telemetry.steps import filled_steps
from coresteer_core.node.rates import FIRST_LABEL_ID, decode_irq_id

_MOST_ROWS = 16


@dataclass(frozen=True)
class IrqMatrix:
    """Numbers of interrupts over a time range.

    counts: row label → CPU → interrupts; covered_s: seconds of the range with data.
    """

    covered_s: float
    counts: dict[str, dict[int, int]]


@dataclass(frozen=True)
class _Cells:
    """Interrupts of consecutive samples. counts: cells × samples; ids, cpus: of the cells; middles: of the samples."""

    middles: F64
    seconds: F64
    ids: npt.NDArray[np.uint32]
    cpus: npt.NDArray[np.uint16]
    counts: npt.NDArray[np.uint32]


async def _read_cells(source: TelemetrySource, span: TimeRange) -> AsyncIterator[_Cells]:
    """Yield the interrupts of the samples whose middle lies in the range, where they are known."""
    rows, unstored = await read_chunks(source, span, ["irqs"])
    for samples, _, packed, irqs in rows:
        if irqs is None:
            continue
        scalars = chunks.read_scalars(packed)
        seconds = np.frombuffer(scalars.durations_s, "<f8")
        middles = chunks.cumulative(scalars.times_ms) - seconds * 500
        inside = (middles >= span.start) & (middles < span.end)
        inside[scalars.absent.get("irqs", [])] = False
        ids, cpus, counts = chunks.read_cells(irqs, samples)
        yield _Cells(middles[inside], seconds[inside], ids, cpus, counts[:, inside])
        await asyncio.sleep(0)
    for rates in unstored:
        middle = rates.time_ms - rates.duration_s * 500
        if rates.irq_ids is None or rates.irq_cpus is None or rates.irq_counts is None:
            continue
        if span.start <= middle < span.end:
            yield _Cells(
                np.array([middle]),
                np.array([rates.duration_s]),
                np.frombuffer(rates.irq_ids, "<u4"),
                np.frombuffer(rates.irq_cpus, "<u2"),
                np.frombuffer(rates.irq_counts, "<u4").reshape(-1, 1),
            )


async def read_irq_matrix(source: TelemetrySource, span: TimeRange) -> IrqMatrix:
    """Return the interrupts by IRQ and CPU of the samples whose middle lies in the range."""
    covered_s = 0.0
    counts: dict[str, dict[int, int]] = defaultdict(lambda: defaultdict(int))
    async for cells in _read_cells(source, span):
        covered_s += float(cells.seconds.sum())
        sums = cells.counts.sum(axis=1, dtype=np.int64)
        for irq_id, cpu, total in zip(cells.ids.tolist(), cells.cpus.tolist(), sums.tolist(), strict=True):
            if total:
                counts[decode_irq_id(irq_id)][cpu] += total
    return IrqMatrix(covered_s, {label: dict(row) for label, row in counts.items()})


async def read_irq_series(source: TelemetrySource, span: TimeRange, points: int) -> Series:
    """Return the interrupts per second of the busiest numbered IRQs over time, the busiest first."""
    count = span.steps(points, source.interval_s)
    width = (span.end - span.start) / count
    seconds = np.zeros(count)
    lines: dict[int, list[int]] = defaultdict(lambda: [0] * count)
    async for cells in _read_cells(source, span):
        reach = cells.seconds * 500
        starts, ends = ((at - span.start) / width for at in (cells.middles - reach, cells.middles + reach))
        step, interval = filled_steps(starts, ends, count)
        np.add.at(seconds, step, cells.seconds[interval])
        for position in np.unique(step).tolist():
            sums = cells.counts[:, interval[step == position]].sum(axis=1, dtype=np.int64)
            for irq_id, total in zip(cells.ids.tolist(), sums.tolist(), strict=True):
                lines[irq_id][position] += total
    numbered = [irq_id for irq_id in lines if irq_id < FIRST_LABEL_ID]
    busiest = sorted(numbered, key=lambda irq_id: -sum(lines[irq_id]))[:_MOST_ROWS]
    return Series(
        resolution=span.resolution,
        step_ms=width,
        times_ms=[span.start + position * width for position in range(count)],
        values={
            str(irq_id): [
                amount / duration if duration > 0 else None
                for amount, duration in zip(lines[irq_id], seconds.tolist(), strict=True)
            ]
            for irq_id in busiest
        },
    )
