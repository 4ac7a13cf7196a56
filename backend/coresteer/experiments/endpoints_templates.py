"""Templates of experiments over HTTP."""

from fastapi import APIRouter, Request
from sqlalchemy.ext.asyncio import AsyncSession

from coresteer.auth.dependencies import Viewer
from coresteer.db import Session
from coresteer.errors import Conflict, Invalid
from coresteer.experiments.schemas import Template
from coresteer.experiments.spec import PolicyLevel
from coresteer.experiments.templates import NodeFacts, templates
from coresteer.inputs import RowId
from coresteer.nodes import service as nodes
from coresteer.policies import repository as policies
from coresteer.policies.schemas import PolicyBody
from coresteer_core.node.load import load_of
from coresteer_core.policies.base import Scope
from coresteer_core.policies.network_process.policy import NetworkProcess

router = APIRouter(tags=["experiments"])


@router.get("/api/nodes/{node_id}/experiment-templates")
async def list_experiment_templates(
    request: Request, session: Session, _: Viewer, node_id: RowId, *, peer_node_id: RowId | None = None
) -> list[Template]:
    """The papers' experiments, made for this node. peer_node_id: the node from which traffic is to come."""
    if peer_node_id == node_id:
        raise Invalid(
            "The peer is another node; without one the traffic comes from the node itself.", field="peer_node_id"
        )
    row = await nodes.find(session, node_id)
    peer = None if peer_node_id is None else await nodes.find(session, peer_node_id)
    told = nodes.reported(row)
    if told.topology is None or told.inventory is None:
        raise Conflict(f"{row.name} has not told yet what it is; templates are made once its agent has.")
    facts = NodeFacts(
        node_id=node_id,
        name=row.name,
        kernel=(row.hello or {}).get("kernel"),
        topology=told.topology,
        inventory=told.inventory,
        learned=told.learned,
        load=load_of(list(request.app.state.registry.get(node_id).recent)),
        network_process=await _network_process(session),
        peer_id=peer_node_id,
        peer_name="" if peer is None else peer.name,
    )
    return templates(facts)


async def _network_process(session: AsyncSession) -> tuple[str, PolicyLevel] | None:
    """A policy of that kind: of several the first for all that is on a node, else the first."""
    kept = [(row, PolicyBody.model_validate(version.body)) for row, version in await policies.list_policies(session)]
    found = [(row, body) for row, body in kept if isinstance(body.spec, NetworkProcess)]
    if not found:
        return None
    row, _ = min(found, key=lambda each: (each[1].scope != Scope(), each[0].id))
    return row.name, PolicyLevel(row.id, row.version)
