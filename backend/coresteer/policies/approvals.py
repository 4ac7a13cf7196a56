"""Two-person approval: which actions on policies wait for another operator, and when an approved one may be done.

The functions that carry an action out ask `waits` before they change anything, with the policy's row locked.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncSession

from coresteer.audit.actions import Action
from coresteer.audit.service import record
from coresteer.errors import Conflict
from coresteer.policies import repository
from coresteer.policies.approval_schemas import Approval, ApprovalState, PolicyAction
from coresteer.policies.in_force import version_in_force
from coresteer.policies.schemas import PolicyBody
from coresteer.policies.selector import matches
from coresteer.policies.tables import ApprovalRow, ApprovalThresholdRow, PolicyRow, PolicyVersionRow
from coresteer_core.policies.base import Mode

EXPIRES_AFTER = timedelta(hours=24)
_CLOSING: Mapping[ApprovalState, Action] = {
    ApprovalState.APPROVED: "approval.approve",
    ApprovalState.REJECTED: "approval.reject",
    ApprovalState.WITHDRAWN: "approval.withdraw",
}


class OutdatedError(Conflict):
    """The request is no longer what was requested."""


@dataclass(frozen=True)
class Approved:
    """That another operator approves a request now."""

    approval_id: int
    by: str


async def waits(
    session: AsyncSession,
    policy: PolicyRow,
    action: PolicyAction,
    request: Mapping[str, object],
    *,
    brings: PolicyVersionRow | None,
    actor: str,
    approved: Approved | None,
) -> ApprovalRow | None:
    """Return the stored request if an action waits for approval, None if it may be carried out now.

    brings: the version that it puts in force. approved: by whom and which request; it ends with the transaction.
    Raises Conflict when another request for the policy waits, and OutdatedError when not exactly this was approved.
    """
    now = datetime.now(UTC)
    nodes = await _nodes(session, policy, brings)
    basis = await _basis(session, policy)
    waiting = await _waiting(session, policy.id)
    if approved is not None:
        if waiting is None or waiting.id != approved.approval_id or is_expired(waiting, now):
            raise Conflict("This request does not wait any more.")
        if (why := changed(waiting, basis, nodes)) is not None:
            raise OutdatedError(why)
        close(session, waiting, policy.name, ApprovalState.APPROVED, by=approved.by)
        return None
    above = await threshold(session)
    if above == 0 or len(nodes) <= above:
        return None
    if waiting is not None:
        why = changed(waiting, basis, nodes)
        if is_expired(waiting, now):
            close(session, waiting, policy.name, ApprovalState.EXPIRED)
        elif why is not None:
            close(session, waiting, policy.name, ApprovalState.OUTDATED, reason=why)
        elif (waiting.action, waiting.request) == (action, dict(request)):
            return waiting
        else:
            raise Conflict(
                f"Another request of {waiting.requested_by} for this policy waits for approval: "
                f"{what(waiting)}. It must be withdrawn or rejected first."
            )
        await session.flush()  # before the next one, because one at a time may wait
    row = ApprovalRow(
        policy_id=policy.id,
        action=action,
        request=dict(request),
        basis=basis,
        nodes=sorted(nodes),
        above=above,
        state=ApprovalState.WAITING,
        requested_at=now,
        requested_by=actor,
        expires_at=now + EXPIRES_AFTER,
    )
    session.add(row)
    await session.flush()
    detail = {"approval": row.id, "what": what(row), "nodes": len(nodes), "above": above}
    record(session, actor=actor, action="approval.request", target=f"policy {policy.name}", detail=detail)
    return row


async def threshold(session: AsyncSession) -> int:
    """Return above how many nodes actions wait; 0 for never."""
    return await session.scalar(select(ApprovalThresholdRow.above)) or 0


def is_expired(row: ApprovalRow, now: datetime) -> bool:
    """Return whether nobody decided in time."""
    return row.state == ApprovalState.WAITING and row.expires_at <= now


def close(
    session: AsyncSession,
    row: ApprovalRow,
    policy: str,
    state: ApprovalState,
    *,
    by: str | None = None,
    reason: str = "",
) -> None:
    """End a request. policy: its name. by: None if nobody decided."""
    row.state, row.decided_at, row.decided_by, row.reason = state, datetime.now(UTC), by, reason
    record(
        session,
        actor=by or "coresteer",
        action=_CLOSING.get(state, "approval.close"),
        target=f"policy {policy}",
        detail={"approval": row.id, "what": what(row), "requested_by": row.requested_by, "state": state}
        | ({"reason": reason} if reason else {}),
    )


def changed(row: ApprovalRow, basis: Mapping[str, object], nodes: frozenset[int]) -> str | None:
    """Return why a request is not what was requested any more, None if it is. Fewer nodes are no reason."""
    if basis["version"] != row.basis["version"]:
        return f"The policy has version {basis['version']} now, and had version {row.basis['version']}."
    if basis["enabled"] != row.basis["enabled"]:
        return f"The policy has been {'enabled' if basis['enabled'] else 'disabled'} meanwhile."
    if basis != row.basis:
        return "A rollout of the policy has begun or ended meanwhile."
    if more := len(nodes - frozenset(row.nodes)):
        return f"It concerns {_count(more)} more than when it was requested."
    return None


def what(row: ApprovalRow) -> str:
    """Return the action of a request in words."""
    request, version = row.request, row.basis["version"]
    pages = ", memory stays where it has been moved" if request["leave_pages"] else ""
    match row.action:
        case PolicyAction.ROLL_OUT:
            canary, batch, wait_s = request["canary"], request["batch"], request["wait_s"]
            stages = f"{_count(canary)}, then {batch} at a time, {wait_s:g} s for each stage"
            guardrails = request["guardrails"]
            own = "" if guardrails is None else f", with {len(guardrails)} guardrails in place of its own"
            return f"roll out version {request['version']}: {stages}{own}{pages}"
        case PolicyAction.ENABLE:
            return f"enable version {version} on all nodes at once"
        case _:
            return f"{row.action} the policy, in force as version {version}{pages}"


def to_schema(row: ApprovalRow, policy: str) -> Approval:
    """Return a request as the API does. policy: its name."""
    state = ApprovalState.EXPIRED if is_expired(row, datetime.now(UTC)) else ApprovalState(row.state)
    because = f": {row.reason}" if row.reason else "."
    sentence = {
        ApprovalState.WAITING: f"Waits for the approval of another operator: {_count(len(row.nodes))} "
        f"{'is' if len(row.nodes) == 1 else 'are'} more than {row.above}.",
        ApprovalState.APPROVED: f"{row.decided_by} approved it.",
        ApprovalState.REJECTED: f"{row.decided_by} rejected it{because}",
        ApprovalState.WITHDRAWN: f"{row.decided_by} withdrew it.",
        ApprovalState.EXPIRED: f"Nobody decided within {EXPIRES_AFTER.total_seconds() / 3600:g} hours.",
        ApprovalState.OUTDATED: f"It was not carried out{because}",
    }[state]
    return Approval(
        id=row.id,
        policy_id=row.policy_id,
        policy_name=policy,
        action=PolicyAction(row.action),
        what=what(row),
        nodes=len(row.nodes),
        above=row.above,
        state=state,
        sentence=sentence,
        requested_at=row.requested_at,
        requested_by=row.requested_by,
        expires_at=row.expires_at,
        decided_at=row.decided_at,
        decided_by=row.decided_by,
    )


async def _waiting(session: AsyncSession, policy_id: int) -> ApprovalRow | None:
    query = select(ApprovalRow).where(ApprovalRow.policy_id == policy_id, ApprovalRow.state == ApprovalState.WAITING)
    return (await session.scalars(query.with_for_update())).one_or_none()


async def _nodes(session: AsyncSession, policy: PolicyRow, brings: PolicyVersionRow | None) -> frozenset[int]:
    """Return the nodes that enforce the policy now, and those that will if a version is put in force."""
    enabled = next((each for each in await repository.enabled_policies(session) if each.policy_id == policy.id), None)
    body = None if brings is None else PolicyBody.model_validate(brings.body)
    found = set()
    for node in await repository.node_attributes(session):
        version = None if enabled is None else version_in_force(enabled, node)
        if enabled is not None and version is not None and enabled.bodies[version].mode is Mode.ENFORCE:
            found.add(node.node_id)
        if body is not None and body.mode is Mode.ENFORCE and matches(body.selector, node):
            found.add(node.node_id)
    return frozenset(found)


async def _basis(session: AsyncSession, policy: PolicyRow) -> dict[str, object]:
    """Return what must be the same when a request is carried out."""
    rollout = await repository.unfinished_rollout(session, policy.id)
    return {
        "version": policy.version,
        "enabled": policy.enabled,
        "rollout": None if rollout is None else rollout.id,
    }


def _count(nodes: int) -> str:
    return "1 node" if nodes == 1 else f"{nodes:,} nodes"
