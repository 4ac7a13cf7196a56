"""Service classes of a node over HTTP. Their policies are managed under /api/v1/policies."""

from datetime import timedelta
from typing import Annotated

from fastapi import APIRouter, Query, Request
from pydantic import AwareDatetime

from coresteer.auth.dependencies import Viewer
from coresteer.classes import service
from coresteer.classes.schemas import ClassesHistory, ClassFigure, Matches, MatchRequest, NodeClasses
from coresteer.db import Session
from coresteer.inputs import RowId
from coresteer.telemetry.history import TimeRange

router = APIRouter(prefix="/nodes/{node_id}/classes")

_LONGEST = timedelta(days=7)

Figures = Annotated[set[ClassFigure], Query(min_length=1)]


@router.get("")
async def get_node_classes(request: Request, session: Session, _: Viewer, node_id: RowId) -> NodeClasses:
    """Return the latest figures of the service classes of the policies in force, as the agent reported them."""
    return await service.latest_figures(session, request.app.state.registry, node_id)


@router.get("/history")
async def get_node_classes_history(
    request: Request,
    session: Session,
    _: Viewer,
    node_id: RowId,
    *,
    figure: Figures,
    from_time: AwareDatetime,
    to_time: AwareDatetime,
) -> ClassesHistory:
    """Return figures of service classes over at most a week: per second up to 15 minutes, else in 900 steps."""
    span = TimeRange.validated(from_time, to_time, _LONGEST)
    return await service.figure_history(session, request.app.state.agents.class_reports, node_id, span, sorted(figure))


@router.post("/match")
async def match_node_classes(
    request: Request, session: Session, _: Viewer, node_id: RowId, body: MatchRequest
) -> Matches:
    """Return which of the node's processes match each service class now. Changes nothing."""
    await request.app.state.interest.refresh(node_id)
    return await service.match_tasks(session, request.app.state.registry, node_id, body)
