"""Previews and changes over HTTP."""

from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Query, Request
from pydantic import AwareDatetime

from coresteer.auth.dependencies import Operator, Viewer
from coresteer.changes import service
from coresteer.changes.recent_rates import last_minute
from coresteer.changes.schemas import Change, ChangePage, ChangeRequest, ExtendRequest, PreviewAnswer, PreviewRequest
from coresteer.db import Session
from coresteer.inputs import RowId

router = APIRouter(tags=["plans"])


@router.post("/api/nodes/{node_id}/previews")
async def preview_plan(
    node_id: RowId, body: PreviewRequest, identity: Viewer, session: Session, request: Request
) -> PreviewAnswer:
    """What would happen to the node if these settings had these values. Changes nothing."""
    agents = request.app.state.agents
    return await service.preview_for(
        session,
        node_id,
        body,
        identity=identity,
        connected=agents.connections.is_connected(node_id),
        rates=await last_minute(request.app.state.database, agents.ingest, node_id),
        flows=agents.registry.get(node_id).flows,
    )


@router.post("/api/nodes/{node_id}/changes", status_code=201)
async def apply_plan(node_id: RowId, body: ChangeRequest, identity: Operator, request: Request) -> Change:
    """Apply a previewed plan. It undoes itself unless it is confirmed in time."""
    agents = request.app.state.agents
    return await service.apply(
        request.app.state.database,
        agents.connections,
        agents.bus,
        node_id=node_id,
        request=body,
        identity=identity,
        flows=agents.registry.get(node_id).flows,
    )


@router.get("/api/changes")
async def list_changes(
    _: Viewer,
    session: Session,
    *,
    node_id: RowId | None = None,
    is_open: Annotated[bool | None, Query(alias="open")] = None,
    from_time: AwareDatetime | None = None,
    to_time: AwareDatetime | None = None,
    older_than: UUID | None = None,
    limit: Annotated[int, Query(ge=1, le=500)] = 100,
) -> ChangePage:
    """Changes, newest first. A time range takes in each change that was under way at some time of it."""
    return await service.page(
        session,
        node_id=node_id,
        is_open=is_open,
        from_time=from_time,
        to_time=to_time,
        older_than=older_than,
        limit=limit,
    )


@router.get("/api/changes/{change_id}")
async def get_change(change_id: UUID, _: Viewer, request: Request) -> Change:
    """One change with all its steps."""
    return await service.get(request.app.state.database, change_id)


@router.post("/api/changes/{change_id}/confirm")
async def confirm_change(change_id: UUID, identity: Operator, request: Request) -> Change:
    """Keep an unconfirmed change."""
    agents = request.app.state.agents
    return await service.confirm(
        request.app.state.database, agents.connections, agents.bus, change_id=change_id, identity=identity
    )


@router.post("/api/changes/{change_id}/rollback")
async def roll_back_change(change_id: UUID, identity: Operator, request: Request) -> Change:
    """Undo a change, kept or not."""
    agents = request.app.state.agents
    return await service.roll_back(
        request.app.state.database, agents.connections, agents.bus, change_id=change_id, identity=identity
    )


@router.post("/api/changes/{change_id}/extend")
async def extend_change(change_id: UUID, body: ExtendRequest, identity: Operator, request: Request) -> Change:
    """Give an unconfirmed change more time."""
    agents = request.app.state.agents
    return await service.extend(
        request.app.state.database,
        agents.connections,
        agents.bus,
        change_id=change_id,
        seconds=body.seconds,
        identity=identity,
    )
