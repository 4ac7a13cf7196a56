"""Previews and changes over HTTP."""

import asyncio
from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Depends, Query, Request
from fastapi.responses import PlainTextResponse, StreamingResponse

from coresteer.auth.dependencies import Operator, Viewer
from coresteer.changes import handover, log, preview, requests, service
from coresteer.changes.log_schemas import LogFilter, LogPage, WrittenSetting
from coresteer.changes.observation import Observation
from coresteer.changes.recent_rates import last_minute
from coresteer.changes.records import utc_now
from coresteer.changes.schemas import (
    MAX_SUGGESTED_NODES,
    Change,
    ChangeFilter,
    ChangePage,
    ChangeRequest,
    ExtendRequest,
    FleetSuggestion,
    NodeSuggestions,
    PreviewRequest,
    PreviewResponse,
)
from coresteer.changes.suggestions import Suggester
from coresteer.db import Session
from coresteer.inputs import RowId
from coresteer.origin import public_url
from coresteer.structs import AsStruct
from coresteer_core.changes.handover_formats import FormatName

router = APIRouter()


@router.post("/nodes/{node_id}/previews")
async def preview_plan(
    node_id: RowId, body: PreviewRequest, identity: Viewer, session: Session, request: Request
) -> PreviewResponse:
    """Return what would change on the node if these settings had these values. Changes nothing."""
    state = request.app.state
    await state.interest.refresh(node_id)
    return await preview.preview(
        session,
        node_id,
        body,
        identity=identity,
        connected=state.connections.is_connected(node_id),
        elsewhere=state.connections.unreachable(node_id),
        rates=await last_minute(state.database, state.ingest, node_id),
        flows=state.registry.get(node_id).flows,
    )


@router.get("/nodes/{node_id}/suggestions")
async def get_suggestions(node_id: RowId, _: Viewer, request: Request) -> NodeSuggestions:
    """Return what to move for each hot CPU of the node, with the predicted load, from its last minute."""
    await request.app.state.interest.refresh(node_id)
    suggester: Suggester = request.app.state.suggester
    return await suggester.node(node_id)


@router.get("/suggestions")
async def list_suggestions(
    _: Viewer, request: Request, node_id: Annotated[list[RowId], Query(max_length=MAX_SUGGESTED_NODES)]
) -> list[FleetSuggestion]:
    """Return what would help the hottest CPU of each of these nodes most; nothing for a node without a hot CPU."""
    await asyncio.gather(*map(request.app.state.interest.refresh, node_id))
    suggester: Suggester = request.app.state.suggester
    return await suggester.fleet(node_id)


@router.post("/nodes/{node_id}/changes", status_code=201)
async def apply_plan(node_id: RowId, body: ChangeRequest, identity: Operator, request: Request) -> Change:
    """Apply a previewed plan. The change is rolled back automatically unless it is confirmed in time."""
    state = request.app.state
    await state.interest.refresh(node_id)
    flows = state.registry.get(node_id).flows
    return await requests.apply(state.changes, node_id=node_id, request=body, identity=identity, flows=flows)


@router.get("/changes")
async def list_changes(_: Viewer, session: Session, filters: Annotated[ChangeFilter, Depends()]) -> ChangePage:
    """List changes, newest first. A time range includes every change that was open at some time of it."""
    return await service.list_changes(session, filters)


@router.get("/changes/log")
async def list_log(
    _: Viewer,
    session: Session,
    filters: Annotated[LogFilter, Depends()],
    older_than: UUID | None = None,
    limit: Annotated[int, Query(ge=1, le=200)] = 50,
) -> LogPage:
    """List every change and policy move, newest first; moves of a policy in an hour are one entry, unless ungrouped."""
    return await log.page(session, filters, older_than, limit)


@router.get("/changes/log.csv", response_class=StreamingResponse)
async def export_log(_: Viewer, filters: Annotated[LogFilter, Depends()], request: Request) -> StreamingResponse:
    """Return the changes that match as CSV, one line for each setting."""
    lines = log.export(request.app.state.database, filters)
    headers = {"Content-Disposition": 'attachment; filename="changes.csv"'}
    return StreamingResponse(lines, media_type="text/csv", headers=headers)


@router.get("/nodes/{node_id}/written-settings")
async def list_written_settings(node_id: RowId, _: Viewer, session: Session) -> list[WrittenSetting]:
    """List the settings of a node that changes on record wrote, with their earlier values."""
    return await log.written_settings(session, node_id)


@router.get("/changes/{change_id}")
async def get_change(change_id: UUID, _: Viewer, request: Request) -> Change:
    """Return one change with its steps."""
    return await service.get_change(request.app.state.database, change_id)


@router.get("/changes/{change_id}/export", response_class=PlainTextResponse)
async def export_change(change_id: UUID, _: Viewer, request: Request, *, format: FormatName) -> PlainTextResponse:
    """Return a confirmed change as files of another tool, which keep its values across reboots.

    Each file begins with its path and cites the evidence; what the tool cannot set is listed with the reason.
    """
    name, text = await handover.handover(request.app.state.database, change_id, format, public_url(request))
    return PlainTextResponse(text, headers={"Content-Disposition": f'attachment; filename="{name}"'})


@router.get("/changes/{change_id}/observation")
async def get_observation(change_id: UUID, _: Viewer, request: Request) -> Annotated[Observation, AsStruct()]:
    """Compare the node's figures before and after a change: an observation, not proof.

    Until the 2 minutes after the change are over, it covers the time that has passed.
    """
    found: Observation = await request.app.state.observer.observe(change_id, utc_now())
    return found


@router.post("/changes/{change_id}/confirm")
async def confirm_change(change_id: UUID, identity: Operator, request: Request) -> Change:
    """Confirm an unconfirmed change, so that it persists."""
    return await requests.confirm(request.app.state.changes, change_id=change_id, identity=identity)


@router.post("/changes/{change_id}/rollback")
async def roll_back_change(change_id: UUID, identity: Operator, request: Request) -> Change:
    """Roll back a change, confirmed or not: its settings return to the values before it."""
    return await requests.roll_back(request.app.state.changes, change_id=change_id, identity=identity)


@router.post("/changes/{change_id}/extend")
async def extend_change(change_id: UUID, body: ExtendRequest, identity: Operator, request: Request) -> Change:
    """Extend the time until an unconfirmed change is rolled back, to at most 600 s from now."""
    context = request.app.state.changes
    return await requests.extend(context, change_id=change_id, seconds=body.seconds, identity=identity)
