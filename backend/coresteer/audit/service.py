"""Records entries of the audit log, in the transaction of the change of state that they describe."""

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
    """Add an entry to the audit log; it is stored when the session's transaction commits.

    actor: a user's name, ``coresteer`` or ``agent``; action: object and verb such as ``user.create``; target: what the
    action changes; result: ``ok``, ``refused``, ``failed``, or ``requested`` until an agent reports; detail: JSON
    values, never a secret.
    """
    session.add(
        AuditRow(actor=actor, action=action, target=target, node_id=node_id, result=result, detail=dict(detail or {}))
    )
