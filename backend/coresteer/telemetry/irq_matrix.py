"""Matrix IRQ × CPU: the number of interrupts by row of /proc/interrupts and CPU over a time range."""

import asyncio
from collections import defaultdict
from dataclasses import dataclass

import numpy as np

from coresteer.telemetry import chunks
from coresteer.telemetry.history import TelemetrySource, TimeRange, read_chunks
from coresteer_core.node.rates import decode_irq_id


@dataclass(frozen=True)
class IrqMatrix:
    """Numbers of interrupts over a time range.

    counts: row label → CPU → interrupts; covered_s: seconds of the range with data.
    """

    covered_s: float
    counts: dict[str, dict[int, int]]


async def read_irq_matrix(source: TelemetrySource, span: TimeRange) -> IrqMatrix:
    """Return the interrupts by IRQ and CPU of the samples whose middle lies in the range."""
    rows, unstored = await read_chunks(source, span, ["irqs"])
    covered_s = 0.0
    counts: dict[str, dict[int, int]] = defaultdict(lambda: defaultdict(int))
    for samples, _, packed, irqs in rows:
        if irqs is None:
            continue
        scalars = chunks.read_scalars(packed)
        seconds = np.frombuffer(scalars.durations_s, "<f8")
        middles = chunks.cumulative(scalars.times_ms) - seconds * 500
        inside = (middles >= span.start) & (middles < span.end)
        known = np.ones(samples, np.bool_)
        known[scalars.absent.get("irqs", [])] = False
        covered_s += float(seconds[inside & known].sum())
        ids, cpus, values = chunks.read_cells(irqs, samples)
        sums = values[:, inside].sum(axis=1, dtype=np.int64)
        for irq_id, cpu, total in zip(ids.tolist(), cpus.tolist(), sums.tolist(), strict=True):
            if total:
                counts[decode_irq_id(irq_id)][cpu] += total
        await asyncio.sleep(0)
    for rates in unstored:
        middle = rates.time_ms - rates.duration_s * 500
        if rates.irq_ids is None or rates.irq_cpus is None or rates.irq_counts is None:
            continue
        if not span.start <= middle < span.end:
            continue
        covered_s += rates.duration_s
        columns = (np.frombuffer(rates.irq_ids, "<u4"), np.frombuffer(rates.irq_cpus, "<u2"))
        for irq_id, cpu, total in zip(
            columns[0].tolist(), columns[1].tolist(), np.frombuffer(rates.irq_counts, "<u4").tolist(), strict=True
        ):
            counts[decode_irq_id(irq_id)][cpu] += total
    return IrqMatrix(covered_s, {label: dict(row) for label, row in counts.items()})
