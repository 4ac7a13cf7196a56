"""Helpers for rows of changes: creation, look-up, history, audit entries and events."""

import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from uuid import UUID

import msgspec
from sqlalchemy.ext.asyncio import AsyncSession

from coresteer.audit.actions import Action
from coresteer.audit.service import record
from coresteer.bus import Bus, NodeEvent
from coresteer.changes import repository
from coresteer.changes.events import ChangeEvent
from coresteer.changes.schemas import Change, GuardrailIn
from coresteer.changes.tables import ChangeRow, ChangeStepRow
from coresteer.errors import NotFound
from coresteer.nodes.tables import NodeRow
from coresteer_core.changes.plan import Plan
from coresteer_core.changes.report import ChangeState

_AUDIT_TARGET = re.compile(r"change ([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}) on ")
ENDED_STATES = (ChangeState.CONFIRMED, ChangeState.ROLLED_BACK, ChangeState.FAILED)


def utc_now() -> datetime:
    """Return the present time in UTC."""
    return datetime.now(UTC)


def new_change_row(
    node: NodeRow,
    change_id: UUID,
    plan: Plan,
    sentence: str,
    *,
    created_by: str,
    reason: str,
    confirm_timeout_s: float,
    guardrails: Sequence[GuardrailIn],
    policy_id: int | None = None,
    experiment_id: int | None = None,
    undoes: UUID | None = None,
    restores: bool = False,
) -> ChangeRow:
    """Return a new database row of a change in state applying, not yet added to the session."""
    return ChangeRow(
        id=change_id,
        node_id=node.id,
        node=node,
        plan=msgspec.to_builtins(plan),
        sentence=sentence,
        state=ChangeState.APPLYING,
        created_by=created_by,
        policy_id=policy_id,
        experiment_id=experiment_id,
        undoes=undoes,
        restores=restores,
        reason=reason,
        created_at=utc_now(),
        confirm_timeout_s=confirm_timeout_s,
        guardrails=[guardrail.model_dump() for guardrail in guardrails],
        results=[],
        steps=[],
    )


def add_step(row: ChangeRow, state: ChangeState, sentence: str) -> None:
    """Add a step (state, time, sentence) to the change's history."""
    row.steps.append(ChangeStepRow(at=utc_now(), state=state, sentence=sentence))


def audit(
    session: AsyncSession,
    row: ChangeRow,
    actor: str,
    action: Action,
    *,
    result: str = "ok",
    detail: Mapping[str, object],
) -> None:
    """Record an action on a change in the audit log."""
    record(
        session,
        actor=actor,
        action=action,
        target=audit_target(row.id, row.node.name),
        node_id=row.node_id,
        result=result,
        detail=detail,
    )


def audit_target(change_id: UUID, node_name: str) -> str:
    """Return the target of audit entries about a change."""
    return f"change {change_id} on {node_name}"


def change_of_target(target: str) -> UUID | None:
    """Return the change that an audit entry with this target is about; None for other targets."""
    found = _AUDIT_TARGET.match(target)
    return None if found is None else UUID(found[1])


def publish_change(bus: Bus, change: Change) -> None:
    """Publish to browsers that a change, and the number of open changes on its node, has changed."""
    bus.publish(ChangeEvent(change))
    bus.publish(NodeEvent(change.node_id))


async def find_node(session: AsyncSession, node_id: int) -> NodeRow:
    """Return the node with its topology and inventory. Raises NotFound."""
    node = await repository.find_node(session, node_id)
    if node is None:
        raise NotFound(f"There is no node {node_id}.")
    return node


async def find_change(session: AsyncSession, change_id: UUID) -> ChangeRow:
    """Return the change's row. Raises NotFound."""
    row = await repository.find_change(session, change_id)
    if row is None:
        raise NotFound(f"There is no change {change_id}.")
    return row
