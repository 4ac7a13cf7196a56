"""History of a node's metrics over HTTP: heat map, series, interrupts over time, interrupt matrix."""

from datetime import timedelta
from typing import Annotated

from fastapi import APIRouter, Depends, Query, Request, Response
from pydantic import AwareDatetime, BeforeValidator

from coresteer.auth.dependencies import Viewer
from coresteer.db import Session
from coresteer.inputs import RowId
from coresteer.nodes import service as nodes
from coresteer.nodes.tables import NodeRow
from coresteer.telemetry.heatmap import read_heatmap
from coresteer.telemetry.history import TelemetrySource, TimeRange, read_span
from coresteer.telemetry.irq_matrix import read_irq_matrix, read_irq_series
from coresteer.telemetry.repository import from_unix_ms
from coresteer.telemetry.schemas import Matrix, MatrixRow, MetricName, SampleSpan, Series, Share
from coresteer.telemetry.series import read_series
from coresteer_core.metrics import HISTORY_METRICS

router = APIRouter(prefix="/nodes/{node_id}")

_LONGEST = timedelta(days=400)
_LONGEST_MATRIX = timedelta(days=1)


def _unrepeated(value: object) -> object:
    return list(dict.fromkeys(value)) if isinstance(value, list) else value


Columns = Annotated[int, Query(ge=1, le=2000)]
Points = Annotated[int, Query(ge=2, le=1000)]
Metrics = Annotated[
    list[MetricName], BeforeValidator(_unrepeated), Query(min_length=1, max_length=len(HISTORY_METRICS))
]
NetdevName = Annotated[str | None, Query(min_length=1, max_length=256)]


def _source(request: Request, node: NodeRow) -> TelemetrySource:
    interval_s = (node.hello or {}).get("interval_s", nodes.DEFAULT_INTERVAL_S)
    return TelemetrySource(request.app.state.database, request.app.state.ingest, node.id, interval_s)


async def _source_of(request: Request, node_id: RowId, _: Viewer) -> TelemetrySource:
    """Return the source of the node of the path, without reading what its agent reported. Raises NotFound."""
    database = request.app.state.database
    interval_s = await nodes.find_interval_s(database, node_id)
    return TelemetrySource(database, request.app.state.ingest, node_id, interval_s)


Source = Annotated[TelemetrySource, Depends(_source_of)]
"""Of a viewer's request."""


@router.get(
    "/heatmap",
    response_class=Response,
    responses={200: {"content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}}},
)
async def heatmap(
    source: Source,
    *,
    share: Share,
    from_time: AwareDatetime,
    to_time: AwareDatetime,
    columns: Columns = 900,
) -> Response:
    """Return a heat map of a CPU-time share, CPU × time, as a binary block of one byte per cell.

    Little-endian: `CSH1`, u32 rows (CPU numbers from 0), u32 columns, u32 resolution (0 sample, 1 minute, 2 hour),
    f64 start_ms, f64 column_ms; then rows × columns u8, row by row, in units of 0.5 %, 255 for no data. Of several
    samples in a column the maximum.
    """
    span = TimeRange.validated(from_time, to_time, _LONGEST)
    block = await read_heatmap(source, share.value, span, columns)
    return Response(block, media_type="application/octet-stream")


@router.get("/samples-span")
async def samples_span(source: Source) -> SampleSpan:
    """Return from when until when there are samples of a node, for example for a backtest."""
    span = await read_span(source)
    if span is None:
        return SampleSpan(from_time=None, to_time=None)
    return SampleSpan(from_time=from_unix_ms(span.start), to_time=from_unix_ms(span.end))


@router.get("/series")
async def series(
    request: Request,
    session: Session,
    _: Viewer,
    node_id: RowId,
    *,
    metric: Metrics,
    from_time: AwareDatetime,
    to_time: AwareDatetime,
    points: Points = 300,
    netdev: NetdevName = None,
) -> Series:
    """Return metrics of a node over time. Traffic is that of netdev, or the sum of all physical netdevs."""
    span = TimeRange.validated(from_time, to_time, _LONGEST)
    row = await nodes.find_node(session, node_id)
    inventory = nodes.reported_state(row).inventory
    physical = inventory.physical_netdevs() if inventory else None
    return await read_series(_source(request, row), metric, span, points, physical=physical, netdev=netdev)


@router.get("/interrupts")
async def interrupts(
    source: Source,
    *,
    from_time: AwareDatetime,
    to_time: AwareDatetime,
    points: Points = 300,
) -> Series:
    """Return interrupts per second of a node's 16 busiest IRQs over time, by IRQ number, over at most a day."""
    span = TimeRange.validated(from_time, to_time, _LONGEST_MATRIX)
    return await read_irq_series(source, span, points)


@router.get("/matrix")
async def matrix(
    request: Request,
    session: Session,
    _: Viewer,
    node_id: RowId,
    *,
    from_time: AwareDatetime,
    to_time: AwareDatetime,
) -> Matrix:
    """Return interrupts per second of each row of /proc/interrupts on each CPU, over a range of at most a day."""
    span = TimeRange.validated(from_time, to_time, _LONGEST_MATRIX)
    row = await nodes.find_node(session, node_id)
    inventory = nodes.reported_state(row).inventory
    known = {str(irq.irq): irq for irq in inventory.irqs} if inventory else {}
    found = await read_irq_matrix(_source(request, row), span)
    rows = sorted(found.counts.items(), key=lambda item: -sum(item[1].values()))
    return Matrix(
        from_time=from_time,
        to_time=to_time,
        covered_s=found.covered_s,
        rows=[
            MatrixRow(
                label=label,
                name=known[label].name if label in known else None,
                netdev=known[label].netdev if label in known else None,
                per_s={cpu: count / found.covered_s for cpu, count in sorted(cpus.items())},
            )
            for label, cpus in rows
        ],
    )
