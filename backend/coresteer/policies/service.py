"""Policies and their versions: create, compare, enable, disable, delete."""

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime

import msgspec
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncSession

from coresteer.application_metrics.service import find_declared
from coresteer.audit.actions import Action
from coresteer.audit.service import record
from coresteer.bus import PoliciesEvent
from coresteer.errors import Conflict, Invalid, NotFound
from coresteer.policies import repository
from coresteer.policies.approval_schemas import Approval, PolicyAction
from coresteer.policies.approvals import Approved, waits
from coresteer.policies.approvals import to_schema as to_approval
from coresteer.policies.context import PolicyContext
from coresteer.policies.in_force import EnabledPolicy, version_counts
from coresteer.policies.rollout_schemas import RolloutPace, RolloutState
from coresteer.policies.rollouts import end, to_schema
from coresteer.policies.schemas import Difference, Policy, PolicyBody, PolicyVersion, PolicyVersionCreate, RolledBack
from coresteer.policies.selector import NodeAttributes, matches
from coresteer.policies.tables import ApprovalRow, PolicyRow, PolicyVersionRow, RolloutRow
from coresteer_core.policies.base import Mode


async def list_policies(session: AsyncSession) -> list[Policy]:
    """Return all policies, ordered by rank and name."""
    attributes = await repository.node_attributes(session)
    counts = await repository.count_versions(session)
    ongoing = await repository.unfinished_rollouts(session)
    enabled = {policy.policy_id: policy for policy in await repository.enabled_policies(session)}
    found = [
        _schema(row, version, counts[row.id], attributes, rollout=ongoing.get(row.id), enabled=enabled.get(row.id))
        for row, version in await repository.list_policies(session)
    ]
    return sorted(found, key=lambda policy: (policy.body.rank, policy.name))


async def get(session: AsyncSession, policy_id: int) -> Policy:
    """Return one policy. Raises NotFound."""
    rows = await repository.list_policies(session, policy_id)
    if not rows:
        raise _not_found(policy_id)
    counts = await repository.count_versions(session)
    rollout = await repository.unfinished_rollout(session, policy_id)
    enabled = {policy.policy_id: policy for policy in await repository.enabled_policies(session)}
    nodes = await repository.node_attributes(session)
    return _schema(*rows[0], counts[policy_id], nodes, rollout=rollout, enabled=enabled.get(policy_id))


async def create(context: PolicyContext, body: PolicyBody, *, actor: str) -> Policy:
    """Create a policy with its first version. Raises Conflict when the name is taken."""
    now = datetime.now(UTC)
    async with context.database.session() as session:
        await _check_application_metrics(session, body)
        row = PolicyRow(name=body.name, enabled=body.mode is Mode.OBSERVE, version=1, created_at=now, created_by=actor)
        session.add(row)
        await _flush(session, body.name)
        session.add(_version(row.id, 1, body, actor, ""))
        detail = {"version": 1, "mode": body.mode, "enabled": row.enabled}
        record(session, actor=actor, action="policy.create", target=_target(row), detail=detail)
        await session.flush()
        policy = await get(session, row.id)
    context.bus.publish(PoliciesEvent(None))
    return policy


async def create_version(
    context: PolicyContext, policy_id: int, request: PolicyVersionCreate, *, actor: str
) -> PolicyVersion:
    """Create the next version of a policy; for a disabled policy it becomes the current one.

    Raises NotFound and Conflict.

    Its kind cannot change: another kind could not restore the settings of the old one. Raises NotFound, Conflict,
    Invalid.
    """
    async with context.database.session() as session:
        row = await find_policy(session, policy_id, lock=True)
        await _check_application_metrics(session, request.body)
        before = await repository.list_versions(session, policy_id)
        kind = before[0].body["spec"]["type"]
        if request.body.model_dump(mode="json")["spec"]["type"] != kind:
            raise Invalid(
                f"This policy is of the kind {kind}; create a new policy for another kind.", field="body.spec"
            )
        row.name = request.body.name
        await _flush(session, row.name)
        version = _version(policy_id, before[0].version + 1, request.body, actor, request.note)
        session.add(version)
        if not row.enabled:
            row.version = version.version
        changed = _differences(before[0].body, version.body)
        detail = {"version": version.version, "note": request.note, "changed": [line.path for line in changed]}
        record(session, actor=actor, action="policy.create_version", target=_target(row), detail=detail)
        answer = _version_schema(version)
    context.bus.publish(PoliciesEvent(None))
    return answer


async def _check_application_metrics(session: AsyncSession, body: PolicyBody) -> None:
    """Raise Invalid for an application metric that is not declared."""
    declared = await find_declared(session, body.proof.applications)
    for name in body.proof.applications:
        if name not in declared:
            sentence = f"There is no application metric {name}; an administrator declares it in the settings."
            guardrails = body.proof.application_metrics
            field = f"application_metrics[{guardrails.index(name)}]" if name in guardrails else "metric"
            raise Invalid(sentence, field=f"proof.{field}")


async def versions(session: AsyncSession, policy_id: int) -> list[PolicyVersion]:
    """Return all versions of a policy, newest first. Raises NotFound."""
    await find_policy(session, policy_id)
    return [_version_schema(row) for row in await repository.list_versions(session, policy_id)]


async def diff(session: AsyncSession, policy_id: int, from_version: int, to_version: int) -> list[Difference]:
    """Return the fields that differ between two versions of a policy, in their order. Raises NotFound."""
    await find_policy(session, policy_id)
    was = await find_version(session, policy_id, from_version)
    becomes = await find_version(session, policy_id, to_version)
    return _differences(was.body, becomes.body)


async def set_enabled(
    context: PolicyContext,
    policy_id: int,
    enabled: bool,
    *,
    leave_pages: bool = False,
    actor: str,
    approved: Approved | None = None,
) -> Policy | Approval:
    """Enable or disable a policy on all nodes, or return the request that waits for approval.

    Raises NotFound, and Conflict while a rollout is unfinished.
    """
    async with context.database.session() as session:
        row = await find_policy(session, policy_id, lock=True)
        rollout = await repository.unfinished_rollout(session, policy_id, lock=True)
        if rollout is not None and enabled:
            raise Conflict("A rollout of this policy is unfinished; roll it back first, or wait until it ends.")
        if row.enabled != enabled or approved is not None:
            waiting = await waits(
                session,
                row,
                PolicyAction.ENABLE if enabled else PolicyAction.DISABLE,
                {"leave_pages": leave_pages},
                brings=await find_version(session, policy_id, row.version) if enabled else None,
                actor=actor,
                approved=approved,
            )
            if waiting is not None:
                return _waits(context, waiting, row)
        if rollout is not None:
            end(rollout, RolloutState.ROLLED_BACK, "An operator disabled the policy.")
        if row.enabled != enabled:
            row.enabled, row.leave_pages = enabled, leave_pages
            action: Action = "policy.enable" if enabled else "policy.disable"
            detail = {"version": row.version} | ({"leave_pages": True} if leave_pages else {})
            record(session, actor=actor, action=action, target=_target(row), detail=detail)
        await session.flush()
        policy = await get(session, policy_id)
    context.bus.publish(PoliciesEvent(None))
    return policy


async def set_pace(context: PolicyContext, policy_id: int, pace: RolloutPace, *, actor: str) -> Policy:
    """Store how the next version of a policy spreads. Raises NotFound."""
    async with context.database.session() as session:
        row = await find_policy(session, policy_id, lock=True)
        row.pace = pace.model_dump(mode="json")
        record(session, actor=actor, action="policy.set_pace", target=_target(row), detail=row.pace)
        await session.flush()
        policy = await get(session, policy_id)
    context.bus.publish(PoliciesEvent(None))
    return policy


async def delete(
    context: PolicyContext,
    policy_id: int,
    *,
    leave_pages: bool = False,
    actor: str,
    approved: Approved | None = None,
) -> Approval | None:
    """Disable and hide a policy, or return the request that waits for approval; decisions still name it.

    Raises NotFound.
    """
    async with context.database.session() as session:
        row = await find_policy(session, policy_id, lock=True)
        waiting = await waits(
            session,
            row,
            PolicyAction.DELETE,
            {"leave_pages": leave_pages},
            brings=None,
            actor=actor,
            approved=approved,
        )
        if waiting is not None:
            return _waits(context, waiting, row)
        if (rollout := await repository.unfinished_rollout(session, policy_id, lock=True)) is not None:
            end(rollout, RolloutState.ROLLED_BACK, "An operator deleted the policy.")
        row.leave_pages = row.leave_pages or leave_pages
        row.enabled, row.deleted_at = False, datetime.now(UTC)
        detail = {"leave_pages": True} if leave_pages else None
        record(session, actor=actor, action="policy.delete", target=_target(row), detail=detail)
    context.bus.publish(PoliciesEvent(None))
    return None


async def find_policy(session: AsyncSession, policy_id: int, *, lock: bool = False) -> PolicyRow:
    """Return the row of a policy. Raises NotFound."""
    row = await repository.find_policy(session, policy_id, lock=lock)
    if row is None:
        raise _not_found(policy_id)
    return row


async def find_version(session: AsyncSession, policy_id: int, number: int) -> PolicyVersionRow:
    """Return the row of one version of a policy. Raises NotFound."""
    row = await repository.find_version(session, policy_id, number)
    if row is None:
        raise NotFound(f"Policy {policy_id} has no version {number}.")
    return row


def _waits(context: PolicyContext, waiting: ApprovalRow, policy: PolicyRow) -> Approval:
    context.bus.publish(PoliciesEvent(None))
    return to_approval(waiting, policy.name)


def _not_found(policy_id: int) -> NotFound:
    return NotFound(f"There is no policy {policy_id}; it may have been deleted.")


async def _flush(session: AsyncSession, name: str) -> None:
    try:
        await session.flush()
    except IntegrityError:
        raise Conflict(f"A policy named “{name}” already exists; choose another name.") from None


def _version(policy_id: int, number: int, body: PolicyBody, actor: str, note: str) -> PolicyVersionRow:
    return PolicyVersionRow(
        policy_id=policy_id,
        version=number,
        body=body.model_dump(mode="json"),
        created_at=datetime.now(UTC),
        created_by=actor,
        note=note,
    )


def _version_schema(row: PolicyVersionRow) -> PolicyVersion:
    return PolicyVersion(
        version=row.version,
        body=PolicyBody.model_validate(row.body),
        created_at=row.created_at,
        created_by=row.created_by,
        note=row.note,
    )


def _schema(
    row: PolicyRow,
    version: PolicyVersionRow,
    versions: int,
    nodes: list[NodeAttributes],
    *,
    rollout: RolloutRow | None,
    enabled: EnabledPolicy | None,
) -> Policy:
    body = PolicyBody.model_validate(version.body)
    return Policy(
        id=row.id,
        name=row.name,
        version=row.version,
        versions=versions,
        body=body,
        enabled=row.enabled,
        nodes=sum(matches(body.selector, one) for one in nodes),
        in_force=[] if enabled is None else version_counts(enabled, nodes),
        created_at=row.created_at,
        created_by=row.created_by,
        rollout=None if rollout is None else to_schema(rollout, datetime.now(UTC)),
        rolled_back=None
        if row.rolled_back_version is None
        else RolledBack(version=row.rolled_back_version, why=row.rolled_back_because or ""),
        pace=RolloutPace.model_validate(row.pace),
    )


def _target(row: PolicyRow) -> str:
    return f"policy {row.name}"


def _differences(was: Mapping[str, object], becomes: Mapping[str, object]) -> list[Difference]:
    before, after = dict(_fields(was, "")), dict(_fields(becomes, ""))
    return [
        Difference(path=path, was=before.get(path), becomes=after.get(path))
        for path in before | after
        if before.get(path) != after.get(path)
    ]


def _fields(value: object, path: str) -> Iterator[tuple[str, str]]:
    """Yield every field of a policy's body with its path, ``spec.act_percent``; a list is one field."""
    if isinstance(value, Mapping) and value:
        for name, item in value.items():
            yield from _fields(item, f"{path}.{name}" if path else name)
    else:
        yield path, value if isinstance(value, str) else msgspec.json.encode(value).decode()
