"""Nodes over HTTP: the fleet table, details of a node, labels, revocation of keys, deletion."""

from datetime import timedelta
from typing import Annotated, Literal

from fastapi import APIRouter, Query, Request
from pydantic import AwareDatetime

from coresteer.auth.dependencies import Admin, Operator, Viewer
from coresteer.bus import NodeEvent
from coresteer.db import Database, Session
from coresteer.fleet import past, service
from coresteer.fleet.outliers import list_outliers
from coresteer.fleet.schemas import FleetSeries, Node, NodeSummary, NodeUpdate, Outlier, PastFigures
from coresteer.inputs import RowId
from coresteer.quotas import Peer
from coresteer.telemetry.history import TimeRange
from coresteer.telemetry.schemas import Resolution

Group = Annotated[
    str | None,
    Query(max_length=80, pattern=r"^(label:[^\x00]+|kernel|driver)$", description="label:NAME, kernel or driver."),
]

PastResolution = Annotated[Literal[Resolution.MINUTE, Resolution.HOUR], Query()]
_LONGEST = timedelta(days=400)

router = APIRouter(prefix="/api/nodes", tags=["nodes"])


def _fleet_past(request: Request) -> past.FleetPast:
    state = request.app.state
    return past.FleetPast(state.database, state.registry)


@router.get("")
async def list_nodes(request: Request, session: Session, _: Viewer) -> list[NodeSummary]:
    """List all nodes, ordered by name."""
    return await service.node_summaries(session, request.app.state.registry)


# declared before the paths with {node_id}, which would match "outliers" and "figures"
@router.get("/outliers")
async def get_outliers(session: Session, _: Viewer, group: Group = None) -> list[Outlier]:
    """List the nodes whose kernel, driver, NIC settings or policy versions differ from the rest of their group."""
    return await list_outliers(session, group)


@router.get("/figures")
async def get_past_figures(
    request: Request,
    _: Viewer,
    *,
    at: AwareDatetime,
    resolution: PastResolution = Resolution.MINUTE,
    after: Annotated[int, Query(ge=0, le=2**31 - 1)] = 0,
) -> PastFigures:
    """Return the figures of at most 1,000 nodes, by id, in the minute or hour of a past time."""
    return await past.read_figures(_fleet_past(request), at, resolution, after)


@router.get("/figures/series")
async def get_fleet_series(
    request: Request,
    _: Viewer,
    *,
    from_time: AwareDatetime,
    to_time: AwareDatetime,
    points: Annotated[int, Query(ge=2, le=past.MAX_POINTS)] = 120,
) -> FleetSeries:
    """Return the fleet's figures over time: minutes of up to six hours, else hours; fewer points for a large fleet."""
    return await past.read_series(_fleet_past(request), TimeRange.validated(from_time, to_time, _LONGEST), points)


@router.get("/{node_id}")
async def get_node(request: Request, session: Session, _: Viewer, node_id: RowId) -> Node:
    """Return one node with topology, inventory and its busiest tasks."""
    await request.app.state.interest.refresh(node_id)  # agents send tasks only while somebody looks at them
    return await service.node_details(session, request.app.state.registry, node_id)


@router.patch("/{node_id}")
async def update_node(request: Request, identity: Operator, node_id: RowId, body: NodeUpdate) -> NodeSummary:
    """Replace the labels that people gave; those that the agent reports are unchanged."""
    state = request.app.state
    database: Database = state.database
    async with database.session() as session:
        summary = await service.set_labels(session, state.registry, node_id, body.labels, actor=identity.username)
    state.bus.publish(NodeEvent(node_id))
    return summary


@router.delete("/{node_id}", status_code=204)
async def delete_node(request: Request, identity: Admin, node_id: RowId) -> None:
    """Delete a node and disconnect its agent; its samples are dropped when their retention ends."""
    database: Database = request.app.state.database
    async with database.session() as session:
        await service.delete_node(session, node_id, actor=identity.username)
    request.app.state.registry.remove(node_id)
    request.app.state.quotas.forget(Peer("node", node_id))
    request.app.state.bus.publish(NodeEvent(node_id))


@router.post("/{node_id}/revoke-key", status_code=204)
async def revoke_key(request: Request, identity: Admin, node_id: RowId) -> None:
    """Revoke the key of the node's agent: it is disconnected and must be enrolled again."""
    database: Database = request.app.state.database
    async with database.session() as session:
        await service.revoke_key(session, node_id, actor=identity.username)
    request.app.state.bus.publish(NodeEvent(node_id))
