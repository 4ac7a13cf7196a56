"""Sets of managed resources: which resources were applied from which set of files."""

from collections.abc import Iterable
from itertools import groupby

from sqlalchemy import delete, func, select, text
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncSession

from coresteer.audit.service import record
from coresteer.auth.dependencies import Identity
from coresteer.auth.schemas import Role
from coresteer.auth.scope import Scope
from coresteer.errors import Conflict, Forbidden, NotFound
from coresteer.gitops.schemas import MAX_MANAGED, ManagedKind, ManagedResource, ManagedSet, ManagedSetBody
from coresteer.gitops.tables import ManagedResourceRow
from coresteer.policies.tables import PolicyVersionRow


async def list_sets(session: AsyncSession) -> list[ManagedSet]:
    """Return all sets by name."""
    order = (ManagedResourceRow.managed_by, ManagedResourceRow.kind, ManagedResourceRow.resource_id)
    rows = await session.scalars(select(ManagedResourceRow).order_by(*order))
    return [
        _schema(name, ((row.kind, row.resource_id) for row in members))
        for name, members in groupby(rows, lambda row: row.managed_by)
    ]


async def replace_set(session: AsyncSession, name: str, body: ManagedSetBody, identity: Identity) -> ManagedSet:
    """Make the resources those of the set, or make their differences to those that the caller knows of.

    Raises NotFound for a policy that does not exist, Conflict when a resource is in another set or for too many, and
    Forbidden when one that joins or leaves the set is beyond the caller's rights.
    """
    await session.execute(text("SELECT pg_advisory_xact_lock(hashtext('managed_set'))"))  # one caller after the other
    rows = await session.scalars(select(ManagedResourceRow).where(ManagedResourceRow.managed_by == name))
    before = {(row.kind, row.resource_id) for row in rows}
    wanted = {(each.kind.value, each.id) for each in body.resources}
    if body.was is not None:
        was = {(each.kind.value, each.id) for each in body.was}
        wanted = (before | (wanted - was)) - (was - wanted)
    added, released = sorted(wanted - before), sorted(before - wanted)
    others = [kind for kind, _ in (*added, *released) if kind != ManagedKind.POLICY]
    if others and identity.role is not Role.ADMIN:  # else an operator would choose what an admin's --prune deletes
        raise Forbidden(f"Only an administrator may say which set an {others[0]} belongs to.")
    identity.check_scope(await _scope(session, [*added, *released]))
    for kind, resource_id in released:
        resource = (ManagedResourceRow.kind == kind, ManagedResourceRow.resource_id == resource_id)
        await session.execute(delete(ManagedResourceRow).where(*resource))
    session.add_all(ManagedResourceRow(kind=kind, resource_id=id_, managed_by=name) for kind, id_ in added)
    try:
        await session.flush()
    except IntegrityError:
        raise Conflict(
            f"Another set of files manages one of these resources; apply that set without it before {name}."
        ) from None
    if (await session.scalar(select(func.count()).select_from(ManagedResourceRow)) or 0) > MAX_MANAGED:
        raise Conflict(f"Files may manage at most {MAX_MANAGED} resources.")
    if added or released:
        detail = {"added": _written(added), "released": _written(released)}
        record(session, actor=identity.username, action="managed-set.replace", target=f"set {name}", detail=detail)
    return _schema(name, sorted(wanted))


async def _scope(session: AsyncSession, resources: list[tuple[str, int]]) -> Scope:
    """Return what policies among resources are about: what each of their versions selects."""
    ids = [id_ for kind, id_ in resources if kind == ManagedKind.POLICY]
    query = select(PolicyVersionRow.policy_id, PolicyVersionRow.body["selector"]["labels"])
    selectors = (await session.execute(query.where(PolicyVersionRow.policy_id.in_(ids)))).all()
    if missing := set(ids) - {policy_id for policy_id, _ in selectors}:
        raise NotFound(f"There is no policy {min(missing)}.")
    return Scope(selectors=[labels for _, labels in selectors])


def _schema(name: str, resources: Iterable[tuple[str, int]]) -> ManagedSet:
    return ManagedSet(name=name, resources=[ManagedResource(kind=ManagedKind(kind), id=id_) for kind, id_ in resources])


def _written(resources: list[tuple[str, int]]) -> list[str]:
    return [f"{kind} {id_}" for kind, id_ in resources]
