"""Application metrics over HTTP. Only administrators choose which servers the backend asks."""

from fastapi import APIRouter, Request, status

from coresteer.application_metrics import service
from coresteer.application_metrics.schemas import ApplicationMetric, ApplicationMetricCreate, ApplicationReading
from coresteer.auth.dependencies import Admin, Operator, Viewer
from coresteer.db import Session
from coresteer.inputs import RowId

router = APIRouter()


@router.get("/application-metrics")
async def list_application_metrics(session: Session, _: Viewer) -> list[ApplicationMetric]:
    """List the declared application metrics: Prometheus queries that experiments and guardrails may use."""
    return await service.list_metrics(session)


@router.post("/application-metrics", status_code=status.HTTP_201_CREATED)
async def create_application_metric(session: Session, by: Admin, body: ApplicationMetricCreate) -> ApplicationMetric:
    """Declare an application metric. It cannot be changed afterwards, because evidence refers to it."""
    return await service.create(session, body, actor=by.username)


@router.delete("/application-metrics/{metric_id}", status_code=status.HTTP_204_NO_CONTENT)
async def delete_application_metric(session: Session, by: Admin, metric_id: RowId) -> None:
    """Delete an application metric. Its name and past evidence stay."""
    await service.delete(session, metric_id, actor=by.username)


@router.post("/application-metrics/{metric_id}/nodes/{node_id}/reading")
async def read_application_metric(
    request: Request, _: Operator, metric_id: RowId, node_id: RowId
) -> ApplicationReading:
    """Read an application metric for a node in the last five minutes, to try its query."""
    state = request.app.state
    return await service.read_now(state.database, state.prometheus, metric_id, node_id)
