"""Preview of a policy: its evaluation on the present state of nodes."""

import asyncio
import logging
import time
from collections.abc import Sequence
from itertools import islice

from msgspec.structs import replace
from sqlalchemy.ext.asyncio import AsyncSession

from coresteer.nodes import service as nodes
from coresteer.policies import repository
from coresteer.policies.context import PolicyContext
from coresteer.policies.in_force import in_force, to_policy_in_force
from coresteer.policies.schemas import (
    NodeEvaluation,
    NodeFlows,
    PolicyBody,
    PolicyPreviewRequest,
    Selector,
    SelectorMatches,
)
from coresteer.policies.selector import matches
from coresteer.presence.registry import NodeRegistry, NodeState
from coresteer.presence.schemas import Health
from coresteer.telemetry.repository import from_unix_ms
from coresteer.telemetry.service import now_ms
from coresteer_core.node.load import mean_load
from coresteer_core.node.view import View
from coresteer_core.policies.base import Evaluation, Mode
from coresteer_core.policies.engine import evaluate_round
from coresteer_core.policies.engine_state import EngineMemory, PolicyInForce

log = logging.getLogger("coresteer.policies")

MAX_LIVE_MATCHES = 3
"""Live nodes that are proposed for a preview."""
_PREVIEW_ID = "9" * 10
"""The id of a policy that is not stored: it sorts after all others of its rank, as it will once it is stored."""


async def preview(context: PolicyContext, request: PolicyPreviewRequest) -> list[NodeEvaluation]:
    """Return the policy's evaluation on each requested node, in that order; unknown nodes are omitted."""
    await asyncio.gather(*map(context.interest.refresh, request.node_ids))
    async with context.database.session() as session:
        policies = await repository.enabled_policies(session)
        attributes = {one.node_id: one for one in await repository.node_attributes(session, request.node_ids)}
        views = {node_id: await current_view(session, context.registry, node_id) for node_id in attributes}
    found: list[NodeEvaluation] = []
    for node_id in dict.fromkeys(request.node_ids):
        if node_id not in attributes:
            continue
        view = views[node_id]
        state = context.registry.get(node_id)
        elsewhere = context.connections.unreachable(node_id)
        evaluation, error = None, _unavailable(view, state, elsewhere, attributes[node_id].name)
        if view is not None:
            try:
                # takes tens of milliseconds on a large machine; a thread keeps the event loop responsive
                evaluation = await asyncio.to_thread(
                    _evaluate, view, in_force(policies, attributes[node_id]), request.body
                )
            except Exception:  # one node's data must not hide the evaluations of the others
                log.exception("Preview of a policy failed on node %d.", node_id)
                error = "The evaluation failed on this node's data; the backend's log has the details."
        found.append(
            NodeEvaluation(
                node_id=node_id,
                node_name=attributes[node_id].name,
                evaluation=evaluation,
                view_age_s=_load_age_s(state),
                error=error,
            )
        )
    return found


def _load_age_s(state: NodeState) -> float | None:
    """Return the age of the newest interval that is evaluated, None without one."""
    if state.newest_ms is None:
        return None
    return max(0.0, (now_ms() + (state.clock_skew_ms or 0.0) - state.newest_ms) / 1000)


async def matching_nodes(
    session: AsyncSession, registry: NodeRegistry, selector: Selector, node_ids: Sequence[int]
) -> SelectorMatches:
    """Return how many nodes a selector matches now, and which of these ones it does not."""
    nodes = await repository.node_attributes(session)
    found = sorted((node for node in nodes if matches(selector, node)), key=lambda node: node.name)
    live = (each.node_id for each in found if registry.health(each.node_id, seen_before=True) is Health.LIVE)
    ids = {node.node_id for node in found}
    return SelectorMatches(
        nodes=len(found),
        fleet=len(nodes),
        live=list(islice(live, MAX_LIVE_MATCHES)),
        others=[each for each in node_ids if each not in ids],
    )


def _unavailable(view: View | None, state: NodeState, elsewhere: str | None, name: str) -> str | None:
    if view is None:
        return f"{name} has not reported its topology and interrupts yet."
    if elsewhere is not None:
        return f"The load of {name} is unknown here. {elsewhere}"
    if state.newest_ms is None:
        return f"The load of {name} is unknown: its agent has sent no samples since the backend started."
    return None


def _evaluate(view: View, others: Sequence[PolicyInForce], body: PolicyBody) -> Evaluation:
    previewed = replace(to_policy_in_force(_PREVIEW_ID, 1, body), mode=Mode.ENFORCE)
    for other in others:
        if other.name == body.name:
            previewed = replace(previewed, policy_id=other.policy_id)
    beside = [other for other in others if other.policy_id != previewed.policy_id]
    evaluations, _ = evaluate_round(view, [*beside, previewed], EngineMemory())
    return next(evaluation for evaluation in evaluations if evaluation.policy_id == previewed.policy_id)


async def current_view(session: AsyncSession, registry: NodeRegistry, node_id: int) -> View | None:
    """Return the node's present view, None until it has reported topology and inventory. Raises NotFound."""
    topology, inventory, learned = nodes.reported_state(await nodes.find_node(session, node_id))
    if topology is None or inventory is None:
        return None
    state = registry.get(node_id)
    flows = state.flows
    return View(
        topology,
        inventory,
        mean_load(state.recent_rates()),
        [] if flows is None else flows.tasks,
        time.monotonic(),
        learned,
        classes={str(policy_id): report.classes for policy_id, report in state.classes.items()},
        cgroups={} if flows is None else flows.cgroups,
        numa=None if flows is None else flows.numa,
        cpusets={} if flows is None else flows.cpusets,
    )


async def node_flows(session: AsyncSession, registry: NodeRegistry, node_id: int) -> NodeFlows:
    """Return a node's processes that use the network, as last reported. Raises NotFound."""
    await nodes.find_node(session, node_id)
    message = registry.get(node_id).flows
    if message is None:
        return NodeFlows(at=None, exact=False, tasks=[])
    return NodeFlows(at=from_unix_ms(message.time_ms), exact=message.exact, tasks=message.tasks)
