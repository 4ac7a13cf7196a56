"""Writes the audit log. Every change of state is recorded in the transaction that makes it."""

from collections.abc import Mapping

from sqlalchemy.ext.asyncio import AsyncSession

from coresteer.audit.tables import AuditRow


def record(
    session: AsyncSession,
    *,
    actor: str,
    action: str,
    target: str,
    node_id: int | None = None,
    result: str = "ok",
    detail: Mapping[str, object] | None = None,
) -> None:
    """Add one entry to the session; it is kept if the session's transaction is.

    actor: a user's name, or what acted on its own; action: a verb and its object such as ``user.create``; target:
    what it was done to; result: ``ok``, ``refused``, ``failed``, or ``asked`` while
    an agent is yet to report; detail: JSON values, never a secret.
    """
    session.add(
        AuditRow(actor=actor, action=action, target=target, node_id=node_id, result=result, detail=dict(detail or {}))
    )
