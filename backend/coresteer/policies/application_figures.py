"""Application metrics of one node in one block of time, next to the metrics that its agent measures."""

import asyncio
from collections.abc import Mapping
from datetime import datetime

from coresteer.application_metrics.reading import PREFIX, DeclaredMetric, ReadMetric
from coresteer.telemetry.block_figures import BlockFigures, Sums


async def with_applications(
    figures: BlockFigures,
    declared: Mapping[str, DeclaredMetric],
    read: ReadMetric,
    *,
    node: str,
    start: datetime,
    end: datetime,
) -> BlockFigures:
    """Return the figures of a block with those of its application metrics that have a value. node: its name."""
    readings = await asyncio.gather(*(read(metric, node, start, end) for metric in declared.values()))
    found = {
        f"{PREFIX}{name}": Sums(reading.value, 1.0, floor=metric.floor or 0.0)
        for (name, metric), reading in zip(declared.items(), readings, strict=True)
        if reading.value is not None
    }
    return figures._replace(sums=figures.sums | found)
