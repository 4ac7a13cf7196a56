"""Templates of experiments over HTTP."""

from collections.abc import Callable
from fnmatch import fnmatchcase
from typing import TypeVar

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
from coresteer_core.experiments.parallel_jobs import COMMAND
from coresteer_core.node.load import mean_load
from coresteer_core.policies.base import PolicySpec, Scope
from coresteer_core.policies.coscheduling.spec import Coscheduling
from coresteer_core.policies.network_process.policy import NetworkProcess
from coresteer_core.policies.numa.spec import Numa

P = TypeVar("P", bound=PolicySpec)

router = APIRouter()


@router.get("/nodes/{node_id}/experiment-templates")
async def list_experiment_templates(
    request: Request, session: Session, _: Viewer, node_id: RowId, *, peer_node_id: RowId | None = None
) -> list[Template]:
    """Return the papers' experiments, prepared for this node. peer_node_id: the node that generates the traffic."""
    if peer_node_id == node_id:
        raise Invalid(
            "The peer must be another node; without a peer the traffic comes from the node itself.",
            field="peer_node_id",
        )
    row = await nodes.find_node(session, node_id)
    await request.app.state.interest.refresh(node_id)
    peer = None if peer_node_id is None else await nodes.find_node(session, peer_node_id)
    reported = nodes.reported_state(row)
    if reported.topology is None or reported.inventory is None:
        raise Conflict(f"{row.name} has not reported its topology yet, from which templates are prepared.")
    facts = NodeFacts(
        node_id=node_id,
        name=row.name,
        kernel=(row.hello or {}).get("kernel"),
        topology=reported.topology,
        inventory=reported.inventory,
        learned=reported.learned,
        load=mean_load(request.app.state.registry.get(node_id).recent_rates()),
        network_process=await _policy_of_kind(session, NetworkProcess),
        numa=await _policy_of_kind(session, Numa),
        coscheduling=await _policy_of_kind(session, Coscheduling, lambda spec: _boosts_jobs(spec) and spec.reorder),
        periodic_boost=await _policy_of_kind(
            session, Coscheduling, lambda spec: _boosts_jobs(spec) and not spec.reorder
        ),
        peer_id=peer_node_id,
        peer_name="" if peer is None else peer.name,
    )
    return templates(facts)


def _boosts_jobs(spec: Coscheduling) -> bool:
    """Return whether a policy matches the processes of the workload of parallel jobs."""
    return any(fnmatchcase(COMMAND, pattern) for pattern in spec.match.commands)


async def _policy_of_kind(
    session: AsyncSession, kind: type[P], accept: Callable[[P], bool] = lambda _: True
) -> tuple[str, PolicyLevel] | None:
    """Return the first accepted policy of a kind without a scope, else the first one; None if there is none."""
    stored = [(row, PolicyBody.model_validate(version.body)) for row, version in await policies.list_policies(session)]
    found = [(row, body) for row, body in stored if isinstance(body.spec, kind) and accept(body.spec)]
    if not found:
        return None
    row, _ = min(found, key=lambda each: (each[1].scope != Scope(), each[0].id))
    return row.name, PolicyLevel(row.id, row.version)
