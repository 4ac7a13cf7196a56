"""What policies see of a node now, and what one would evaluate from it."""

import asyncio
import logging
import time
from collections.abc import Sequence

from msgspec.structs import replace
from sqlalchemy.ext.asyncio import AsyncSession

from coresteer.nodes import service as nodes
from coresteer.policies import repository
from coresteer.policies.context import Shared
from coresteer.policies.in_force import for_agent, in_force
from coresteer.policies.schemas import NodeEvaluation, NodeFlows, PolicyBody, PolicyPreviewRequest
from coresteer.presence.registry import NodeState, Registry
from coresteer.telemetry.repository import at_ms
from coresteer_core.node.load import load_of
from coresteer_core.node.view import View
from coresteer_core.policies.base import Evaluation, Mode
from coresteer_core.policies.engine import step
from coresteer_core.policies.engine_state import EngineMemory, PolicyInForce

log = logging.getLogger("coresteer.policies")

_TRIED = "9" * 10
"""The id of a policy that is tried and not kept: it comes after all of its rank, as it will when it is kept."""


async def preview(shared: Shared, request: PolicyPreviewRequest) -> list[NodeEvaluation]:
    """One evaluation a node, in the order asked for; a node that is not there is left out."""
    async with shared.database.session() as session:
        policies = await repository.enabled(session)
        facts = {one.node_id: one for one in await repository.facts(session, request.node_ids)}
        views = {node_id: await view_of(session, shared.registry, node_id) for node_id in facts}
    found: list[NodeEvaluation] = []
    for node_id in dict.fromkeys(request.node_ids):
        if node_id not in facts:
            continue
        view = views[node_id]
        state = shared.registry.get(node_id)
        evaluation, error = None, _why_not(view, state, facts[node_id].name)
        if view is not None:
            try:
                # tens of milliseconds on a large machine, which others need not wait for
                evaluation = await asyncio.to_thread(_evaluate, view, in_force(policies, facts[node_id]), request.body)
            except Exception:  # what one node tells of itself must not keep the others from being seen
                log.exception("A policy could not be tried on node %d.", node_id)
                error = "The policy could not be worked out on what this node tells; the backend's log has the details."
        found.append(
            NodeEvaluation(
                node_id=node_id,
                node_name=facts[node_id].name,
                evaluation=evaluation,
                view_age_s=None if state.rates_at is None else time.monotonic() - state.rates_at,
                error=error,
            )
        )
    return found


def _why_not(view: View | None, state: NodeState, name: str) -> str | None:
    if view is None:
        return f"{name} has not told its topology and interrupts yet."
    if state.rates_at is None:
        return f"Nothing is known of the load of {name}: its agent has not sent samples since the backend started."
    return None


def _evaluate(view: View, others: Sequence[PolicyInForce], body: PolicyBody) -> Evaluation:
    tried = replace(for_agent(_TRIED, 1, body), mode=Mode.ENFORCE)
    for other in others:
        if other.name == body.name:
            tried = replace(tried, policy_id=other.policy_id)
    beside = [other for other in others if other.policy_id != tried.policy_id]
    evaluations, _ = step(view, [*beside, tried], EngineMemory())
    return next(evaluation for evaluation in evaluations if evaluation.policy_id == tried.policy_id)


async def view_of(session: AsyncSession, registry: Registry, node_id: int) -> View | None:
    """What policies see of a node now; None while it has not told what it is. Raises NotFound."""
    topology, inventory, learned = nodes.told(await nodes.find(session, node_id))
    if topology is None or inventory is None:
        return None
    state = registry.get(node_id)
    return View(
        topology,
        inventory,
        load_of(list(state.recent)),
        state.net_tasks,
        time.monotonic(),
        learned,
        classes={str(policy_id): told.classes for policy_id, told in state.classes.items()},
        cgroups={} if state.flows is None else state.flows.cgroups,
    )


async def flows(session: AsyncSession, registry: Registry, node_id: int) -> NodeFlows:
    """What the node told last. Raises NotFound."""
    await nodes.find(session, node_id)
    message = registry.get(node_id).flows
    if message is None:
        return NodeFlows(at=None, exact=False, tasks=[])
    return NodeFlows(at=at_ms(message.time_ms), exact=message.exact, tasks=message.tasks)
