"""Stops of enforcement over HTTP."""

from typing import Annotated

from fastapi import APIRouter, Depends, Request

from coresteer.auth.dependencies import Admin, Viewer
from coresteer.db import Session
from coresteer.inputs import RowId
from coresteer.stops import log, service
from coresteer.stops.schemas import Stop, StopCreate, StopEffect, StopEvent, StopLogFilter, StopScope

router = APIRouter(prefix="/stops")


@router.get("")
async def list_stops(request: Request, session: Session, _: Viewer) -> list[Stop]:
    """List the stops of enforcement in force, oldest first."""
    return await service.list_stops(session, request.app.state.registry)


@router.get("/log")
async def list_stop_log(session: Session, _: Viewer, filters: Annotated[StopLogFilter, Depends()]) -> list[StopEvent]:
    """List beginnings and liftings of stops, newest first; at most the newest 200."""
    return await log.events(session, filters)


@router.post("/preview")
async def preview_stop(request: Request, session: Session, _: Viewer, body: StopScope) -> StopEffect:
    """Return what a stop of enforcement would reach now. Changes nothing."""
    return await service.effect_of(session, request.app.state.registry, body.labels)


@router.post("", status_code=201)
async def begin_stop(request: Request, identity: Admin, body: StopCreate) -> Stop:
    """Stop enforcement: until the stop is lifted, no policy, rollout or experiment writes on its nodes."""
    return await service.begin(request.app.state.experiments, body, actor=identity.username)


@router.post("/{stop_id}/restore", status_code=201)
async def restore_stop(request: Request, identity: Admin, stop_id: RowId) -> Stop:
    """Restore every setting on the nodes of a stop that has kept their values; a new stop takes its place."""
    return await service.restore(request.app.state.experiments, stop_id, actor=identity.username)


@router.post("/{stop_id}/lift", status_code=204)
async def lift_stop(request: Request, identity: Admin, stop_id: RowId) -> None:
    """Lift a stop of enforcement: its policies write again."""
    await service.lift(request.app.state.experiments, stop_id, actor=identity.username)
