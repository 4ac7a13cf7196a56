"""Handover of a policy's result: what it holds on a node as files of another tool, with the proof in their comments."""

from collections.abc import Iterator

from sqlalchemy.ext.asyncio import AsyncSession

from coresteer.changes.handover import as_text
from coresteer.changes.repository import find_node
from coresteer.errors import Conflict, NotFound
from coresteer.policies import service as policies
from coresteer.policies.overview_repository import held_settings
from coresteer.policies.schemas import Policy
from coresteer.proof.schemas import PolicyProof
from coresteer.proof.service import policy_proof
from coresteer_core.changes.handover_formats import FormatName


async def handover(
    session: AsyncSession, policy_id: int, node_id: int, format_name: FormatName, url: str
) -> tuple[str, str]:
    """Return name and text of the files for the settings that a policy holds on a node now.

    url: of the backend, for links in comments. Raises NotFound, and Conflict where it holds none.
    """
    policy = await policies.get(session, policy_id)
    node = await find_node(session, node_id)
    if node is None:
        raise NotFound(f"There is no node {node_id}; it may have been deleted.")
    values = {held.key: held.value for held in await held_settings(session, policy_id, node_id)}
    if not values:
        raise Conflict(
            f"{policy.name} holds no setting on {node.name} now, so there is nothing to hand over. While a node "
            "is held out, its settings are restored."
        )
    evidence = list(_evidence(policy, node.name, await policy_proof(session, policy_id, None), url))
    return as_text(format_name, values, f"coresteer-policy-{policy_id}", evidence)


def _evidence(policy: Policy, node: str, proof: PolicyProof, url: str) -> Iterator[str]:
    """Yield lines that name the policy and say what is known of its effect."""
    yield f"What policy {policy.name}, version {policy.version}, holds on {node} now"
    yield f"{url}/policies/{policy.id}"
    yield f"Its effect: {proof.sentence}"
    for version in proof.versions:
        if version.version == policy.version:
            yield from (f"  {metric.label}: {metric.sentence}" for metric in version.metrics)
