"""Experiments over HTTP."""

from typing import Annotated

from fastapi import APIRouter, Query, Request

from coresteer.auth.dependencies import Operator, OperatorByBody, Viewer
from coresteer.db import Session
from coresteer.experiments import service
from coresteer.experiments.schemas import (
    Experiment,
    ExperimentPage,
    ExperimentPreview,
    ExperimentRequest,
    ExperimentState,
)
from coresteer.inputs import RowId

router = APIRouter(prefix="/experiments")


@router.post("/preview")
async def preview_experiment(
    request: Request, session: Session, identity: Viewer, body: ExperimentRequest
) -> ExperimentPreview:
    """Return what an experiment would do and how long it would take, without starting it."""
    await request.app.state.interest.refresh(body.spec.node_id)
    return await service.preview(session, request.app.state.experiments, body.spec, identity=identity)


@router.post("", status_code=201)
async def start_experiment(request: Request, identity: OperatorByBody, body: ExperimentRequest) -> Experiment:
    """Queue an experiment; it starts when its nodes are free."""
    peer = body.spec.peer_node_id
    await identity.check_nodes(request.app.state.database, [body.spec.node_id, *([] if peer is None else [peer])])
    await request.app.state.interest.refresh(body.spec.node_id)
    return await service.start(request.app.state.experiments, body.spec, identity=identity)


@router.get("")
async def list_experiments(
    session: Session,
    _: Viewer,
    *,
    node_id: RowId | None = None,
    state: ExperimentState | None = None,
    older_than: RowId | None = None,
    limit: Annotated[int, Query(ge=1, le=500)] = 100,
) -> ExperimentPage:
    """Return a page of experiments, newest first."""
    return await service.list_experiments(session, node_id=node_id, state=state, older_than=older_than, limit=limit)


@router.get("/{experiment_id}")
async def get_experiment(session: Session, _: Viewer, experiment_id: RowId) -> Experiment:
    """Return one experiment with its runs and their analysis so far."""
    return await service.get_experiment(session, experiment_id)


@router.post("/{experiment_id}/cancel")
async def cancel_experiment(request: Request, identity: Operator, experiment_id: RowId) -> Experiment:
    """Cancel an experiment: at once while it is queued, else as soon as the node's settings are restored."""
    return await service.cancel(request.app.state.experiments, experiment_id, actor=identity.username)
