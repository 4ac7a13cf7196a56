"""Preview of a change: what it would do to a node, and whether it can be applied."""

import asyncio
from collections.abc import Sequence

from sqlalchemy.ext.asyncio import AsyncSession

from coresteer.auth.dependencies import Identity
from coresteer.changes import repository, validation
from coresteer.changes.records import find_node
from coresteer.changes.schemas import PreviewRequest, PreviewResponse
from coresteer_core.changes.distance_effect import predict_distance
from coresteer_core.changes.effect import predict_effect
from coresteer_core.changes.plan import DesiredValue, Plan
from coresteer_core.changes.plan import preview as preview_plan
from coresteer_core.node.rates import Rates
from coresteer_core.node.view import View
from coresteer_core.policies.numa.effect import predict_locality
from coresteer_core.protocol import FlowsMessage


async def preview(
    session: AsyncSession,
    node_id: int,
    request: PreviewRequest,
    *,
    identity: Identity,
    connected: bool,
    elsewhere: str | None = None,
    rates: Sequence[Rates],
    flows: FlowsMessage | None = None,
) -> PreviewResponse:
    """Return the plan for the desired values with its expected effect on the node. Raises NotFound and Conflict.

    rates: the node's last minute; flows: its processes that use the network.
    """
    node = await find_node(session, node_id)
    view = validation.view_of_node(node, flows)
    found = preview_plan(
        view,
        [DesiredValue(desired.key, desired.value) for desired in request.desired],
        reason="An operator requested it.",
        allow_isolated=request.allow_isolated,
    )
    blocked = " ".join(refusal.sentence for refusal in found.refused) or validation.blocked_because(
        node,
        found.plan,
        identity=identity,
        connected=connected,
        elsewhere=elsewhere,
        others=await repository.open_changes(session, [node_id]),
    )
    # takes tens of milliseconds for 256 CPUs and 600 interrupts; a thread keeps the event loop responsive
    effect = [] if found.refused else await asyncio.to_thread(_expected, found.plan, view, rates)
    return PreviewResponse(
        plan=found.plan,
        sentence=found.sentence,
        commands=found.commands,
        expected=effect,
        warnings=found.warnings,
        refused=found.refused,
        can_apply=blocked is None,
        blocked_because=blocked,
    )


def _expected(plan: Plan, view: View, rates: Sequence[Rates]) -> list[str]:
    return predict_effect(plan, view, rates) + predict_distance(plan, view) + predict_locality(plan, view)
