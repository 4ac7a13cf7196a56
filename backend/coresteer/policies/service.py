"""Policies and their versions: made, put in force, taken out of force."""

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime

import msgspec
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncSession

from coresteer.audit.service import record
from coresteer.bus import PoliciesEvent
from coresteer.errors import Conflict, Invalid, NotFound
from coresteer.policies import repository
from coresteer.policies.context import Shared
from coresteer.policies.rollouts import end, to_schema
from coresteer.policies.schemas import (
    Difference,
    Policy,
    PolicyBody,
    PolicyVersion,
    PolicyVersionCreate,
    RolloutState,
)
from coresteer.policies.selector import Facts, fits
from coresteer.policies.tables import PolicyRow, PolicyVersionRow, RolloutRow
from coresteer_core.policies.base import Mode


async def every(session: AsyncSession) -> list[Policy]:
    """All policies, by rank and name."""
    facts = await repository.facts(session)
    counts = await repository.count_versions(session)
    under_way = await repository.all_unfinished(session)
    found = [
        _schema(row, version, counts[row.id], facts, under_way.get(row.id))
        for row, version in await repository.every(session)
    ]
    return sorted(found, key=lambda policy: (policy.body.rank, policy.name))


async def get(session: AsyncSession, policy_id: int) -> Policy:
    """One policy. Raises NotFound."""
    rows = await repository.every(session, policy_id)
    if not rows:
        raise _not_found(policy_id)
    counts = await repository.count_versions(session)
    rollout = await repository.unfinished(session, policy_id)
    return _schema(*rows[0], counts[policy_id], await repository.facts(session), rollout)


async def create(shared: Shared, body: PolicyBody, *, actor: str) -> Policy:
    """A policy with its first version. Raises Conflict when its name is taken."""
    now = datetime.now(UTC)
    async with shared.database.session() as session:
        row = PolicyRow(name=body.name, enabled=body.mode is Mode.OBSERVE, version=1, created_at=now, created_by=actor)
        session.add(row)
        await _flush(session, body.name)
        session.add(_version(row.id, 1, body, actor, ""))
        detail = {"version": 1, "mode": body.mode, "enabled": row.enabled}
        record(session, actor=actor, action="policy.create", target=_target(row), detail=detail)
        await session.flush()
        policy = await get(session, row.id)
    shared.bus.publish(PoliciesEvent(None))
    return policy


async def create_version(shared: Shared, policy_id: int, request: PolicyVersionCreate, *, actor: str) -> PolicyVersion:
    """The next version; of a disabled policy it is the one that enabling puts in force.

    Of the same kind: what one kind has set on nodes, another would neither know nor give back. Raises NotFound,
    Conflict, Invalid.
    """
    async with shared.database.session() as session:
        row = await found(session, policy_id, lock=True)
        before = await repository.versions(session, policy_id)
        kind = before[0].body["spec"]["type"]
        if request.body.model_dump(mode="json")["spec"]["type"] != kind:
            raise Invalid(f"This policy is of the kind {kind}; make another for another kind.", field="body.spec")
        row.name = request.body.name
        await _flush(session, row.name)
        version = _version(policy_id, before[0].version + 1, request.body, actor, request.note)
        session.add(version)
        if not row.enabled:
            row.version = version.version
        changed = _differences(before[0].body, version.body)
        detail = {"version": version.version, "note": request.note, "changed": [line.path for line in changed]}
        record(session, actor=actor, action="policy.version", target=_target(row), detail=detail)
        answer = _version_schema(version)
    shared.bus.publish(PoliciesEvent(None))
    return answer


async def versions(session: AsyncSession, policy_id: int) -> list[PolicyVersion]:
    """All versions, newest first. Raises NotFound."""
    await found(session, policy_id)
    return [_version_schema(row) for row in await repository.versions(session, policy_id)]


async def diff(session: AsyncSession, policy_id: int, from_version: int, to_version: int) -> list[Difference]:
    """What differs between two versions, in the order of the fields. Raises NotFound."""
    await found(session, policy_id)
    was = await version_of(session, policy_id, from_version)
    becomes = await version_of(session, policy_id, to_version)
    return _differences(was.body, becomes.body)


async def set_enabled(shared: Shared, policy_id: int, enabled: bool, *, actor: str) -> Policy:
    """Put in force everywhere, which must wait for a rollout, or take out of force. Raises NotFound and Conflict."""
    async with shared.database.session() as session:
        row = await found(session, policy_id, lock=True)
        rollout = await repository.unfinished(session, policy_id, lock=True)
        if rollout is not None and enabled:
            raise Conflict("A rollout of this policy is not over; stop and undo it first, or let it end.")
        if rollout is not None:
            end(rollout, RolloutState.UNDONE, f"{actor} disabled the policy.")
        if row.enabled != enabled:
            row.enabled = enabled
            action = "policy.enable" if enabled else "policy.disable"
            record(session, actor=actor, action=action, target=_target(row), detail={"version": row.version})
        await session.flush()
        policy = await get(session, policy_id)
    shared.bus.publish(PoliciesEvent(None))
    return policy


async def delete(shared: Shared, policy_id: int, *, actor: str) -> None:
    """Out of force and out of sight; decisions still name it. Raises NotFound."""
    async with shared.database.session() as session:
        row = await found(session, policy_id, lock=True)
        if (rollout := await repository.unfinished(session, policy_id, lock=True)) is not None:
            end(rollout, RolloutState.UNDONE, f"{actor} deleted the policy.")
        row.enabled, row.deleted_at = False, datetime.now(UTC)
        record(session, actor=actor, action="policy.delete", target=_target(row))
    shared.bus.publish(PoliciesEvent(None))


async def found(session: AsyncSession, policy_id: int, *, lock: bool = False) -> PolicyRow:
    """The policy. Raises NotFound."""
    row = await repository.find(session, policy_id, lock=lock)
    if row is None:
        raise _not_found(policy_id)
    return row


async def version_of(session: AsyncSession, policy_id: int, number: int) -> PolicyVersionRow:
    """One version. Raises NotFound."""
    row = await repository.version(session, policy_id, number)
    if row is None:
        raise NotFound(f"Policy {policy_id} has no version {number}.")
    return row


def _not_found(policy_id: int) -> NotFound:
    return NotFound(f"There is no policy {policy_id}; it may have been deleted.")


async def _flush(session: AsyncSession, name: str) -> None:
    try:
        await session.flush()
    except IntegrityError:
        raise Conflict(f"There is a policy “{name}” already; choose another name.") from None


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
    row: PolicyRow, version: PolicyVersionRow, versions: int, facts: list[Facts], rollout: RolloutRow | None
) -> Policy:
    body = PolicyBody.model_validate(version.body)
    return Policy(
        id=row.id,
        name=row.name,
        version=row.version,
        versions=versions,
        body=body,
        enabled=row.enabled,
        nodes=sum(fits(body.selector, one) for one in facts),
        created_at=row.created_at,
        created_by=row.created_by,
        rollout=None if rollout is None else to_schema(rollout),
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
    """Every field with its path, ``spec.act_percent``; a list is one field."""
    if isinstance(value, Mapping) and value:
        for name, item in value.items():
            yield from _fields(item, f"{path}.{name}" if path else name)
    else:
        yield path, value if isinstance(value, str) else msgspec.json.encode(value).decode()
