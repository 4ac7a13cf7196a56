"""Previews and changes over HTTP."""

from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Depends, Request

from coresteer.auth.dependencies import Operator, Viewer
from coresteer.changes import preview, requests, service
from coresteer.changes.recent_rates import last_minute
from coresteer.changes.schemas import (
    Change,
    ChangeFilter,
    ChangePage,
    ChangeRequest,
    ExtendRequest,
    PreviewRequest,
    PreviewResponse,
)
from coresteer.db import Session
from coresteer.inputs import RowId

router = APIRouter(tags=["changes"])


@router.post("/api/nodes/{node_id}/previews")
async def preview_plan(
    node_id: RowId, body: PreviewRequest, identity: Viewer, session: Session, request: Request
) -> PreviewResponse:
    """Return what would change on the node if these settings had these values. Changes nothing."""
    state = request.app.state
    return await preview.preview(
        session,
        node_id,
        body,
        identity=identity,
        connected=state.connections.is_connected(node_id),
        rates=await last_minute(state.database, state.ingest, node_id),
        flows=state.registry.get(node_id).flows,
    )


@router.post("/api/nodes/{node_id}/changes", status_code=201)
async def apply_plan(node_id: RowId, body: ChangeRequest, identity: Operator, request: Request) -> Change:
    """Apply a previewed plan. The change is rolled back automatically unless it is confirmed in time."""
    state = request.app.state
    flows = state.registry.get(node_id).flows
    return await requests.apply(state.changes, node_id=node_id, request=body, identity=identity, flows=flows)


@router.get("/api/changes")
async def list_changes(_: Viewer, session: Session, filters: Annotated[ChangeFilter, Depends()]) -> ChangePage:
    """List changes, newest first. A time range includes every change that was open at some time of it."""
    return await service.list_changes(session, filters)


@router.get("/api/changes/{change_id}")
async def get_change(change_id: UUID, _: Viewer, request: Request) -> Change:
    """Return one change with its steps."""
    return await service.get_change(request.app.state.database, change_id)


@router.post("/api/changes/{change_id}/confirm")
async def confirm_change(change_id: UUID, identity: Operator, request: Request) -> Change:
    """Confirm an unconfirmed change, so that it persists."""
    return await requests.confirm(request.app.state.changes, change_id=change_id, identity=identity)


@router.post("/api/changes/{change_id}/rollback")
async def roll_back_change(change_id: UUID, identity: Operator, request: Request) -> Change:
    """Roll back a change, confirmed or not: its settings return to the values before it."""
    return await requests.roll_back(request.app.state.changes, change_id=change_id, identity=identity)


@router.post("/api/changes/{change_id}/extend")
async def extend_change(change_id: UUID, body: ExtendRequest, identity: Operator, request: Request) -> Change:
    """Extend the time until an unconfirmed change is rolled back, to at most 600 s from now."""
    context = request.app.state.changes
    return await requests.extend(context, change_id=change_id, seconds=body.seconds, identity=identity)
