"""Decisions of policies on nodes: stored together with the changes that carry them out, and listed."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from uuid import UUID

import msgspec
from sqlalchemy.ext.asyncio import AsyncSession

from coresteer.bus import PoliciesEvent
from coresteer.changes import records as change_records
from coresteer.changes import reports as change_reports
from coresteer.changes import repository as changes
from coresteer.errors import NotFound
from coresteer.nodes.tables import NodeRow
from coresteer.policies import repository
from coresteer.policies.context import PolicyContext
from coresteer.policies.in_force import in_force
from coresteer.policies.schemas import Decision, DriftEntry, PolicyBody, TimeFilter
from coresteer.policies.selector import NodeAttributes
from coresteer.policies.tables import DecisionRow, DriftRow
from coresteer_core.changes.plan import Plan
from coresteer_core.changes.report import ChangeState
from coresteer_core.policies.base import (
    PERSISTED_POLICY,
    PERSISTED_POLICY_ID,
    Evaluation,
    HoldoutReport,
    Mode,
    Ownership,
)
from coresteer_core.policies.ownership import RESTORE_REASON
from coresteer_core.protocol import DecisionMessage


async def record_decision(context: PolicyContext, node_id: int, message: DecisionMessage) -> None:
    """Store a validated decision of a policy, its new drifts, and the change that carries it out.

    An agent may send a decision again after it was disconnected; a repeated one is not stored twice.
    """
    evaluation = message.evaluation
    policy_id = int(evaluation.policy_id)
    state = context.registry.get(node_id)
    at = min(datetime.now(UTC), _at(message.time_ms, state.clock_skew_ms))
    adopted = None
    async with context.database.session() as session:
        await changes.lock_node(session, node_id)
        node = await changes.find_node(session, node_id)
        if node is None:
            return
        before = await repository.last_decision(session, node_id, policy_id)
        encoded = msgspec.to_builtins(evaluation)
        holdout = None if message.holdout is None else msgspec.to_builtins(message.holdout)
        change_id = UUID(message.change_id) if message.change_id is not None else None
        known = None if before is None else (before.evaluation, before.change_id, before.holdout)
        if known == (encoded, change_id, holdout):
            return
        if change_id is not None and await repository.has_decision(session, node_id, policy_id, change_id):
            return
        name = await repository.policy_name(session, policy_id)
        persisted = evaluation.policy_id == PERSISTED_POLICY_ID
        policy_name = PERSISTED_POLICY if persisted else name or evaluation.policy_id
        if change_id is not None:
            version = await repository.find_version(session, policy_id, evaluation.version)
            guardrails = [] if version is None else PolicyBody.model_validate(version.body).guardrails
            adopted = await change_reports.record_policy_change(
                session,
                node,
                change_id=change_id,
                plan=Plan(evaluation.actions),
                flows=state.flows,
                policy_id=None if name is None else policy_id,
                created_by=policy_name if persisted else f"policy {policy_name} v{evaluation.version}",
                reason=evaluation.sentence,
                guardrails=guardrails,
                decided_at=at,
                restores=name is not None and all(each.reason == RESTORE_REASON for each in evaluation.actions),
            )
        session.add(
            DecisionRow(
                node_id=node_id,
                at=at,
                policy_id=policy_id,
                policy_name=policy_name,
                version=evaluation.version,
                mode=evaluation.mode,
                evaluation=encoded,
                change_id=None if adopted is None else change_id,
                holdout=holdout,
            )
        )
        _store_drifts(session, node, at, evaluation, before)
    if adopted is not None:
        change_records.publish_change(context.bus, adopted)
    context.bus.publish(PoliciesEvent(node_id))


def _store_drifts(
    session: AsyncSession, node: NodeRow, at: datetime, evaluation: Evaluation, before: DecisionRow | None
) -> None:
    known = [] if before is None else msgspec.convert(before.evaluation, Evaluation).drifts
    for drift in evaluation.drifts:
        if drift not in known:
            session.add(
                DriftRow(
                    node_id=node.id,
                    at=at,
                    policy_id=int(evaluation.policy_id),
                    key=drift.key,
                    expected=drift.expected,
                    found=drift.found,
                    cause=drift.cause,
                    response=drift.response,
                )
            )


async def decisions(session: AsyncSession, node_id: int, filters: TimeFilter) -> list[Decision]:
    """Return decisions of policies on a node, newest first. Raises NotFound."""
    await _node_attributes(session, node_id)
    rows = await repository.decisions(session, node_id, filters)
    return [_schema(row, state) for row, state in rows]


async def latest_decisions(session: AsyncSession, node_id: int) -> list[Decision]:
    """Return the latest decision of each policy in force on a node, and of its persisted settings. Raises NotFound."""
    (node,) = await _node_attributes(session, node_id)
    policies = in_force(await repository.enabled_policies(session), node)
    ids = {int(PERSISTED_POLICY_ID), *(int(policy.policy_id) for policy in policies)}
    return [_schema(row, state) for row, state in await repository.latest_decisions(session, node_id, ids)]


async def recommendations(session: AsyncSession, node_id: int) -> list[Decision]:
    """Return the latest decision with actions of each policy in force in mode recommend on a node. Raises NotFound."""
    (node,) = await _node_attributes(session, node_id)
    policies = in_force(await repository.enabled_policies(session), node)
    found = []
    for policy in policies:
        if policy.mode is Mode.RECOMMEND:
            row = await repository.last_decision(session, node_id, int(policy.policy_id))
            if row is not None and row.version == policy.version and row.evaluation["actions"]:
                found.append(_schema(row, None))
    return found


async def drifts(session: AsyncSession, node_id: int, filters: TimeFilter) -> list[DriftEntry]:
    """Return a node's drifts (settings that another program changed), newest first. Raises NotFound."""
    await _node_attributes(session, node_id)
    rows = await repository.drifts(session, node_id, filters)
    return [
        DriftEntry(
            at=row.at,
            node_id=row.node_id,
            key=row.key,
            expected=row.expected,
            found=row.found,
            cause=row.cause,
            response=Ownership(row.response),
            policy_id=row.policy_id,
        )
        for row in rows
    ]


async def _node_attributes(session: AsyncSession, node_id: int) -> Sequence[NodeAttributes]:
    attributes = await repository.node_attributes(session, [node_id])
    if not attributes:
        raise NotFound(f"There is no node {node_id}; it may have been deleted.")
    return attributes


def _schema(row: DecisionRow, state: str | None) -> Decision:
    return Decision(
        id=row.id,
        node_id=row.node_id,
        at=row.at,
        policy_id=row.policy_id,
        policy_name=row.policy_name,
        version=row.version,
        mode=Mode(row.mode),
        evaluation=msgspec.convert(row.evaluation, Evaluation),
        change_id=row.change_id,
        outcome=ChangeState(state) if state is not None else None,
        holdout=None if row.holdout is None else msgspec.convert(row.holdout, HoldoutReport),
    )


def _at(time_ms: int, skew_ms: float | None) -> datetime:
    """Convert a time of the node's clock to the backend's clock."""
    return datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=time_ms - (skew_ms or 0.0))
