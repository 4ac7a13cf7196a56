"""Nodes over HTTP: the fleet page, details of a node, labels, revocation of keys, deletion."""

from datetime import timedelta
from typing import Annotated

from fastapi import APIRouter, Query, Request
from pydantic import AwareDatetime

from coresteer.auth.dependencies import Admin, OperatorOfAll, Viewer
from coresteer.bus import NodeEvent
from coresteer.db import Database, Session
from coresteer.fleet import past, service
from coresteer.fleet.directory import FleetDirectory, Moment
from coresteer.fleet.outliers import list_outliers
from coresteer.fleet.query import select
from coresteer.fleet.schemas import (
    FleetAnswer,
    FleetQuery,
    FleetSeries,
    GroupBy,
    Labels,
    Node,
    NodeSummary,
    NodeUpdate,
    Outliers,
)
from coresteer.inputs import RowId
from coresteer.quotas import Peer
from coresteer.telemetry.history import TimeRange
from coresteer_core.bounds import MAX_NAME

_LONGEST = timedelta(days=400)

router = APIRouter()


def _directory(request: Request) -> FleetDirectory:
    directory: FleetDirectory = request.app.state.fleet
    return directory


@router.get("/fleet")
async def query_fleet(
    request: Request, session: Session, _: Viewer, query: Annotated[FleetQuery, Query()]
) -> FleetAnswer:
    """Return a page of the nodes that match a query, and the figures of all that match, by group."""
    directory = _directory(request)
    if query.at is None:
        request.app.state.interest.need_fleet()  # others send their nodes' figures only while somebody asks
        fleet = await directory.present()
    else:
        compared = None if query.compared_h is None else timedelta(hours=query.compared_h)
        fleet = await directory.at(Moment(query.at, query.resolution, compared))
    return await service.answer(session, request.app.state.registry, fleet, query, is_past=query.at is not None)


@router.get("/fleet/labels")
async def list_labels(request: Request, _: Viewer) -> Labels:
    """Return the labels that most nodes have."""
    return service.labels_of(await _directory(request).present())


@router.get("/fleet/outliers")
async def get_outliers(
    request: Request,
    session: Session,
    _: Viewer,
    q: Annotated[str, Query(max_length=2000)] = "",
    group: Annotated[GroupBy | None, Query()] = None,
    within: Annotated[str | None, Query(max_length=1000)] = None,
) -> Outliers:
    """List the nodes whose kernel, driver, NIC settings or policy versions differ most from the rest of their group.

    q, within: only nodes that match, as GET /api/v1/fleet.
    """
    fleet = await _directory(request).present()
    selection = select(fleet, q, group, within)
    groups = {node.id: selection.names[code] for node, code in zip(fleet.nodes, selection.codes, strict=True)}
    return await list_outliers(session, groups, {fleet.nodes[at].id for at in selection.places})


@router.get("/fleet/series")
async def get_fleet_series(
    request: Request,
    _: Viewer,
    *,
    from_time: AwareDatetime,
    to_time: AwareDatetime,
    points: Annotated[int, Query(ge=2, le=past.MAX_POINTS)] = 120,
) -> FleetSeries:
    """Return the fleet's figures over time: minutes of up to six hours, else hours; fewer points for a large fleet."""
    fleet = past.FleetPast(request.app.state.database, request.app.state.registry)
    return await past.read_series(fleet, TimeRange.validated(from_time, to_time, _LONGEST), points)


@router.get("/nodes")
async def list_nodes(
    request: Request, session: Session, _: Viewer, name: Annotated[str | None, Query(max_length=MAX_NAME)] = None
) -> list[NodeSummary]:
    """List all nodes, or the one of this name, ordered by name. For scripts; GET /api/v1/fleet answers in pages."""
    if name is None:
        await request.app.state.forwarding.need_fleet()
    return await service.node_summaries(session, request.app.state.registry, name=name)


@router.get("/nodes/{node_id}")
async def get_node(request: Request, session: Session, _: Viewer, node_id: RowId) -> Node:
    """Return one node with topology, inventory and its busiest tasks."""
    await request.app.state.interest.refresh(node_id)  # agents send tasks only while somebody looks at them
    return await service.node_details(session, request.app.state.registry, node_id)


@router.patch("/nodes/{node_id}")
async def update_node(request: Request, identity: OperatorOfAll, node_id: RowId, body: NodeUpdate) -> NodeSummary:
    """Replace the labels that people gave; those that the agent reports are unchanged.

    Labels decide which operators and policies may change a node, so it needs an operator of all nodes.
    """
    state = request.app.state
    database: Database = state.database
    async with database.session() as session:
        summary = await service.set_labels(session, state.registry, node_id, body.labels, actor=identity.username)
    state.bus.publish(NodeEvent(node_id))
    return summary


@router.delete("/nodes/{node_id}", status_code=204)
async def delete_node(request: Request, identity: Admin, node_id: RowId) -> None:
    """Delete a node and disconnect its agent; its samples are dropped when their retention ends."""
    database: Database = request.app.state.database
    async with database.session() as session:
        await service.delete_node(session, node_id, actor=identity.username)
    request.app.state.registry.remove(node_id)
    request.app.state.quotas.forget(Peer("node", node_id))
    request.app.state.bus.publish(NodeEvent(node_id))


@router.post("/nodes/{node_id}/revoke-key", status_code=204)
async def revoke_key(request: Request, identity: Admin, node_id: RowId) -> None:
    """Revoke the key of the node's agent: it is disconnected and must be enrolled again."""
    database: Database = request.app.state.database
    async with database.session() as session:
        await service.revoke_key(session, node_id, actor=identity.username)
    request.app.state.bus.publish(NodeEvent(node_id))
