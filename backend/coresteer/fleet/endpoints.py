"""Nodes over HTTP: the fleet table, details of a node, labels, revocation of keys, deletion."""

from fastapi import APIRouter, Request

from coresteer.auth.dependencies import Admin, Operator, Viewer
from coresteer.bus import NodeEvent
from coresteer.db import Database, Session
from coresteer.fleet import service
from coresteer.fleet.schemas import Node, NodeSummary, NodeUpdate
from coresteer.inputs import RowId

router = APIRouter(prefix="/api/nodes", tags=["nodes"])


@router.get("")
async def list_nodes(request: Request, session: Session, _: Viewer) -> list[NodeSummary]:
    """List all nodes, ordered by name."""
    return await service.node_summaries(session, request.app.state.registry)


@router.get("/{node_id}")
async def get_node(request: Request, session: Session, _: Viewer, node_id: RowId) -> Node:
    """Return one node with topology, inventory and its busiest tasks."""
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
    service.disconnect(request.app.state.connections, node_id)
    request.app.state.registry.remove(node_id)


@router.post("/{node_id}/revoke-key", status_code=204)
async def revoke_key(request: Request, identity: Admin, node_id: RowId) -> None:
    """Revoke the key of the node's agent: it is disconnected and must be enrolled again."""
    database: Database = request.app.state.database
    async with database.session() as session:
        await service.revoke_key(session, node_id, actor=identity.username)
    service.disconnect(request.app.state.connections, node_id)
    request.app.state.bus.publish(NodeEvent(node_id))
