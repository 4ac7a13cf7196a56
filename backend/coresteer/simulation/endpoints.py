"""Coscheduling studies over HTTP."""

from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Request

from coresteer.auth.dependencies import Operator, Viewer, authorized_body
from coresteer.db import Session
from coresteer.inputs import RowId
from coresteer.simulation import service
from coresteer.simulation.schemas import (
    Simulation,
    SimulationEstimate,
    SimulationPage,
    SimulationRequest,
    StoredTrace,
)

router = APIRouter()

TRACES = "/simulation-traces"
TraceName = Annotated[str, Path(min_length=1, max_length=100, pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")]
_FILE: dict[str, Any] = {  # Any: FastAPI's type for a part of OpenAPI
    "requestBody": {
        "required": True,
        "content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}},
    }
}


@router.post("/simulations", status_code=201)
async def start_simulation(request: Request, identity: Operator, body: SimulationRequest) -> Simulation:
    """Start a coscheduling study in the background; at most one runs at a time."""
    state = request.app.state
    return await service.start(state.database, state.simulations, body.spec, actor=identity.username)


@router.post("/simulations/estimate")
async def estimate_simulation(request: Request, _: Viewer, body: SimulationRequest) -> SimulationEstimate:
    """Return about how long a coscheduling study would take, from the number of its messages."""
    return await service.estimate_duration(request.app.state.database, body.spec)


@router.get("/simulations")
async def list_simulations(
    session: Session,
    _: Viewer,
    *,
    older_than: RowId | None = None,
    limit: Annotated[int, Query(ge=1, le=100)] = 50,
) -> SimulationPage:
    """Return a page of coscheduling studies, newest first."""
    return await service.list_simulations(session, older_than=older_than, limit=limit)


@router.get("/simulations/{simulation_id}")
async def get_simulation(session: Session, _: Viewer, simulation_id: RowId) -> Simulation:
    """Return one coscheduling study with its results so far."""
    return await service.get_simulation(session, simulation_id)


@router.post("/simulations/{simulation_id}/cancel")
async def cancel_simulation(request: Request, session: Session, identity: Operator, simulation_id: RowId) -> Simulation:
    """Cancel a coscheduling study; its finished runs stay."""
    runner = request.app.state.simulations
    return await service.cancel(session, runner, simulation_id, actor=identity.username)


@router.get(TRACES)
async def list_traces(session: Session, _: Viewer) -> list[StoredTrace]:
    """Return the stored traces by name."""
    return await service.list_traces(session)


@router.put(TRACES + "/{name}", openapi_extra=_FILE)
async def store_trace(request: Request, session: Session, identity: Operator, name: TraceName) -> StoredTrace:
    """Store a trace in Standard Workload Format under a name; the body is the file, plain or gzipped."""
    content = await authorized_body(request, identity)
    return await service.store_trace(session, name, content, actor=identity.username)


@router.delete(TRACES + "/{name}", status_code=204)
async def delete_trace(session: Session, identity: Operator, name: TraceName) -> None:
    """Delete a trace that no running study uses; studies that had it keep their results."""
    await service.delete_trace(session, name, actor=identity.username)
