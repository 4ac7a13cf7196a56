"""Requests for approval: list, approve, reject and withdraw them; the number of nodes above which actions wait."""

from datetime import UTC, datetime

from sqlalchemy import select
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncSession

from coresteer.audit.service import record
from coresteer.auth.dependencies import Identity, limits_of
from coresteer.auth.schemas import Role
from coresteer.auth.scope import scope_of_path
from coresteer.auth.tables import UserRow
from coresteer.bus import PoliciesEvent
from coresteer.errors import Conflict, Forbidden, NotFound
from coresteer.policies import approvals, rollouts
from coresteer.policies import service as policies
from coresteer.policies.approval_schemas import Approval, ApprovalState, ApprovalThreshold, PolicyAction
from coresteer.policies.approvals import Approved, OutdatedError, to_schema
from coresteer.policies.context import PolicyContext
from coresteer.policies.rollout_schemas import RolloutCreate
from coresteer.policies.tables import ApprovalRow, ApprovalThresholdRow, PolicyRow

MAX_LISTED = 200


async def list_approvals(session: AsyncSession) -> list[Approval]:
    """Return the newest requests, those that wait first."""
    query = select(ApprovalRow, PolicyRow.name).join(PolicyRow, PolicyRow.id == ApprovalRow.policy_id)
    is_decided = ApprovalRow.state != ApprovalState.WAITING
    rows = await session.execute(query.order_by(is_decided, ApprovalRow.id.desc()).limit(MAX_LISTED))
    return [to_schema(row, name) for row, name in rows.all()]


async def get(session: AsyncSession, approval_id: int) -> Approval:
    """Return one request. Raises NotFound."""
    return to_schema(*await _find(session, approval_id))


async def approve(context: PolicyContext, approval_id: int, *, actor: str) -> Approval:
    """Carry out what another operator requested, exactly, or nothing.

    Raises NotFound, Forbidden for an own request, and Conflict when it is decided or not what was requested any more.
    """
    async with context.database.session() as session:
        row, name = await _open(session, approval_id, actor)
        may_not = await _why_not(session, row)
    try:
        if may_not is not None:
            raise OutdatedError(may_not)
        await _carry_out(context, row, Approved(row.id, actor))
    except (OutdatedError, NotFound) as problem:
        async with context.database.session() as session:
            row, name = await _find(session, approval_id, lock=True)
            if row.state == ApprovalState.WAITING:
                approvals.close(session, row, name, ApprovalState.OUTDATED, reason=problem.detail)
        context.bus.publish(PoliciesEvent(None))
        raise Conflict(f"It was not carried out: {problem.detail}") from None
    async with context.database.session() as session:
        return await get(session, approval_id)


async def reject(context: PolicyContext, approval_id: int, reason: str, *, actor: str) -> Approval:
    """Reject another operator's request. Raises NotFound, Forbidden for an own request, and Conflict."""
    async with context.database.session() as session:
        row, name = await _open(session, approval_id, actor)
        approvals.close(session, row, name, ApprovalState.REJECTED, by=actor, reason=reason)
        rejected = to_schema(row, name)
    context.bus.publish(PoliciesEvent(None))
    return rejected


async def withdraw(context: PolicyContext, approval_id: int, *, actor: str) -> Approval:
    """Withdraw an own request. Raises NotFound, and Conflict also for another operator's one."""
    async with context.database.session() as session:
        row, name = await _find(session, approval_id, lock=True)
        if row.requested_by != actor:
            raise Conflict(f"{row.requested_by} requested this; only they can withdraw it. You can reject it.")
        _check_waits(row, name)
        approvals.close(session, row, name, ApprovalState.WITHDRAWN, by=actor)
        withdrawn = to_schema(row, name)
    context.bus.publish(PoliciesEvent(None))
    return withdrawn


async def get_threshold(session: AsyncSession) -> ApprovalThreshold:
    """Return above how many nodes actions wait."""
    return ApprovalThreshold(above=await approvals.threshold(session))


async def set_threshold(session: AsyncSession, body: ApprovalThreshold, *, actor: str) -> ApprovalThreshold:
    """Store above how many nodes actions wait."""
    detail = {"was": await approvals.threshold(session), "becomes": body.above}
    new = insert(ApprovalThresholdRow).values(id=1, above=body.above)
    await session.execute(new.on_conflict_do_update(index_elements=["id"], set_={"above": body.above}))
    record(session, actor=actor, action="approval.set_threshold", target="approvals", detail=detail)
    return body


async def _carry_out(context: PolicyContext, row: ApprovalRow, approved: Approved) -> None:
    policy_id, actor = row.policy_id, row.requested_by
    match PolicyAction(row.action):
        case PolicyAction.ROLL_OUT:
            request = RolloutCreate.model_validate(row.request)
            await rollouts.start(context, policy_id, request, actor=actor, approved=approved)
        case PolicyAction.DELETE:
            await policies.delete(context, policy_id, **row.request, actor=actor, approved=approved)
        case PolicyAction.ENABLE | PolicyAction.DISABLE as action:
            is_enabled = action is PolicyAction.ENABLE
            await policies.set_enabled(context, policy_id, is_enabled, **row.request, actor=actor, approved=approved)


async def _find(session: AsyncSession, approval_id: int, *, lock: bool = False) -> tuple[ApprovalRow, str]:
    """Return a request and the name of its policy."""
    row = await session.get(ApprovalRow, approval_id, with_for_update=lock or None)
    if row is None:
        raise NotFound(f"There is no request for approval {approval_id}.")
    name = await session.scalar(select(PolicyRow.name).where(PolicyRow.id == row.policy_id))
    return row, name or ""


async def _open(session: AsyncSession, approval_id: int, actor: str) -> tuple[ApprovalRow, str]:
    """Return a request that waits for somebody like the caller."""
    row, name = await _find(session, approval_id, lock=True)
    if row.requested_by == actor:
        raise Forbidden("Another operator must decide this; you requested it, and can withdraw it.")
    _check_waits(row, name)
    return row, name


def _check_waits(row: ApprovalRow, name: str) -> None:
    if row.state != ApprovalState.WAITING or approvals.is_expired(row, datetime.now(UTC)):
        raise Conflict(f"This request does not wait any more. {to_schema(row, name).sentence}")


async def _why_not(session: AsyncSession, row: ApprovalRow) -> str | None:
    """Return why who requested it may not do it any more, None if they may."""
    user = await session.scalar(select(UserRow).where(UserRow.username == row.requested_by))
    if user is None or user.disabled or user.role == Role.VIEWER:
        return f"{row.requested_by} is no operator any more."
    role = Role(user.role)
    about = await scope_of_path(session, {"policy_id": str(row.policy_id)})
    try:
        if about is not None:
            Identity(user.username, role, "session", limits=limits_of(role, user.role_labels)).check_scope(about)
    except Forbidden as problem:
        return problem.detail
    return None
