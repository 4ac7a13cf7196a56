"""Records entries of the audit log, in the transaction of the change of state that they describe."""

from collections.abc import AsyncIterator, Mapping

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncSession

from coresteer.audit import repository
from coresteer.audit.actions import Action
from coresteer.audit.chain import Finding, Verification, Verified
from coresteer.audit.tables import AuditRow
from coresteer.db import Database

SYSTEM_ACTORS = frozenset({"agent", "anonymous", "coresteer", "issuer"})
"""Actors that are no user, and whose names therefore no user may have."""


def record(
    session: AsyncSession,
    *,
    actor: str,
    action: Action,
    target: str,
    node_id: int | None = None,
    result: str = "ok",
    detail: Mapping[str, object] | None = None,
) -> None:
    """Add an entry to the audit log; it is stored when the session's transaction commits.

    actor: a user's name, ``policy NAME vN``, ``experiment N`` or one of SYSTEM_ACTORS; target: what the action changes;
    result: ``ok``, ``refused``, ``failed``, or ``requested`` until an agent reports; detail: JSON
    values, never a secret.
    """
    session.add(
        AuditRow(actor=actor, action=action, target=target, node_id=node_id, result=result, detail=dict(detail or {}))
    )


async def anonymize_user(session: AsyncSession, *, user_id: int, username: str, actor: str) -> None:
    """Remove a deleted user's name and addresses from the audit log; the chain stays verifiable.

    Call it in the transaction that deletes the user, after the flush. It records an entry ``audit.anonymize``.
    """
    await session.flush()
    query = text("SELECT anonymize_audit(:username, :user_id, :actor)")
    await session.execute(query, {"username": username, "user_id": user_id, "actor": actor})


async def verify(database: Database, exported: Mapping[int, str] | None = None) -> AsyncIterator[Finding | Verified]:
    """Verify the whole chain; yield a finding for each deleted or altered entry, and last what was verified.

    exported: hashes by number that an earlier export wrote.
    """
    async with database.session() as session:
        await session.execute(text("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ"))
        verification = Verification(exported)
        async for link in repository.links(session):
            for finding in verification.add(link):
                yield finding
        for finding in verification.end(await repository.head(session)):
            yield finding
        for entry_id in await repository.unchained(session):
            yield Finding(entry_id, f"Entry {entry_id} was added outside the chain.")
        yield Verified(verification.number, verification.anonymized)
