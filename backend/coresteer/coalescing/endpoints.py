"""Interrupt coalescing over HTTP: read only; changes go through previews and changes like those of any setting."""

import asyncio
from typing import Annotated

from fastapi import APIRouter, Path, Query, Request

from coresteer.auth.dependencies import Viewer
from coresteer.coalescing import outcomes, service
from coresteer.coalescing.schemas import Coalescing, OutcomesRequest, TrafficOutcomes
from coresteer.db import Session
from coresteer.inputs import RowId

router = APIRouter()

NetdevName = Annotated[str, Path(min_length=1, max_length=256)]


@router.get("/nodes/{node_id}/netdevs/{netdev}/coalescing")
async def get_coalescing(
    request: Request,
    session: Session,
    _: Viewer,
    node_id: RowId,
    netdev: NetdevName,
    *,
    packets_per_s: Annotated[float | None, Query(gt=0, le=1e9)] = None,
    frame_bytes: Annotated[float | None, Query(ge=60, le=65_536)] = None,
) -> Coalescing:
    """Return a network device's interrupt coalescing: settings, measurements, and predictions for other values.

    packets_per_s, frame_bytes: of all its queues, instead of the measured ones.
    """
    await request.app.state.interest.refresh(node_id)
    return await service.describe_coalescing(
        session,
        request.app.state.registry,
        node_id,
        netdev,
        packets_per_s=packets_per_s,
        frame_bytes=frame_bytes,
    )


@router.post("/coalescing/outcomes")
async def predict_coalescing_outcomes(
    request: Request, session: Session, _: Viewer, body: OutcomesRequest
) -> list[TrafficOutcomes]:
    """Predict at which rx-usecs and rx-frames a coalescing policy settles, and their effect. Changes nothing.

    With its bounds and with each preset's, on the busiest network devices of nodes and on typical traffic.
    """
    await asyncio.gather(*map(request.app.state.interest.refresh, body.node_ids))
    return await outcomes.predict_outcomes(session, request.app.state.registry, body)
