"""What the policies in force on a node do about values that a person sets there."""

import asyncio

from sqlalchemy.ext.asyncio import AsyncSession

from coresteer.changes import log_repository
from coresteer.errors import Invalid
from coresteer.policies import repository, windows
from coresteer.policies.in_force import in_force
from coresteer.policies.preview import current_view
from coresteer.policies.schemas import PolicyResponses
from coresteer.presence.registry import NodeRegistry
from coresteer_core.policies.response import Written, responses
from coresteer_core.settings import SettingError

_MAX_VALUES = 20


async def to_values(
    session: AsyncSession, registry: NodeRegistry, node_id: int, desired: dict[str, str], *, rolled_back: bool
) -> PolicyResponses:
    """Return the responses of the enforced policies on a node, none where enforcement is stopped.

    Raises NotFound, and Invalid for a key that is no setting's.
    """
    view = await current_view(session, registry, node_id)
    if node_id in await windows.held_nodes(session):
        return PolicyResponses(stopped=True, responses=[])
    attributes = await repository.node_attributes(session, [node_id])
    enabled = await repository.enabled_policies(session)
    policies = [policy for one in attributes for policy in in_force(enabled, one)]
    if view is None or not policies:
        return PolicyResponses(stopped=False, responses=[])
    written = await _written(session, node_id)
    try:
        # takes tens of milliseconds on a large machine; a thread keeps the event loop responsive
        found = await asyncio.to_thread(responses, view, policies, written, desired, rolled_back=rolled_back)
    except SettingError as error:
        raise Invalid(str(error)) from None
    return PolicyResponses(stopped=False, responses=found)


async def _written(session: AsyncSession, node_id: int) -> dict[str, Written]:
    """Return the settings that a policy has written on the node, by key: its newest value, and the one found."""
    newest: dict[str, log_repository.WrittenValue] = {}
    found: dict[str, Written] = {}
    for one in await log_repository.written_values(session, node_id, _MAX_VALUES):
        if one.at is None:
            last = newest.get(one.key)
            if last is not None:
                found[one.key] = Written(str(last.policy_id), one.value, last.value)
        elif one.policy_id is not None:
            newest.setdefault(one.key, one)
    return found
