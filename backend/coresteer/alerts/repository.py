"""SQL of alerts."""

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta

from sqlalchemy import delete, func, select, update
from sqlalchemy.ext.asyncio import AsyncSession

from coresteer.alerts.schemas import AlertFilter
from coresteer.alerts.tables import AlertRow, AlertRuleRow, DeliveryRow, ReceiverRow, SilenceRow
from coresteer.changes.tables import ChangeRow
from coresteer.policies.tables import DriftRow, PolicyRow
from coresteer.proof.tables import ProofVersionRow
from coresteer.proof.verdict import Finding
from coresteer_core.alerts.signals import SIGNALS
from coresteer_core.changes.report import ChangeState, EndedBy

_HOUR, _QUARTER, _DAY = timedelta(hours=1), timedelta(minutes=15), timedelta(days=1)
_KNOWN = AlertRuleRow.signal.in_(SIGNALS)
_BY_ITSELF = (EndedBy.GUARDRAIL, EndedBy.LOST_BACKEND, EndedBy.AGENT_RESTART, EndedBy.ERROR)


async def rules(session: AsyncSession, *, enabled: bool | None = None) -> Sequence[AlertRuleRow]:
    """Return all rules, or those that are enabled, by name; none whose signal only a later release knows."""
    query = select(AlertRuleRow).where(_KNOWN).order_by(AlertRuleRow.name)
    if enabled is not None:
        query = query.where(AlertRuleRow.enabled.is_(enabled))
    return (await session.scalars(query)).all()


async def firing_counts(session: AsyncSession) -> dict[int, int]:
    """Return how many alerts of each rule fire, by rule id."""
    query = select(AlertRow.rule_id, func.count()).join(AlertRuleRow, AlertRuleRow.id == AlertRow.rule_id)
    query = query.where(_KNOWN, AlertRow.resolved_at.is_(None)).group_by(AlertRow.rule_id)
    return dict((await session.execute(query)).all())


async def firing(session: AsyncSession) -> Sequence[AlertRow]:
    """Return all alerts that fire."""
    return (await session.scalars(select(AlertRow).where(AlertRow.resolved_at.is_(None)))).all()


async def unnotified(session: AsyncSession) -> Sequence[AlertRow]:
    """Return alerts that fire, and those that are resolved and of which receivers were told only that they fire."""
    query = select(AlertRow).where(AlertRow.resolved_at.is_(None) | (AlertRow.notified == "firing"))
    return (await session.scalars(query.order_by(AlertRow.id))).all()


async def find_alerts(session: AsyncSession, filters: AlertFilter) -> Sequence[tuple[AlertRow, AlertRuleRow]]:
    """Return alerts with their rules: those that fire first, then the newest."""
    query = select(AlertRow, AlertRuleRow).join(AlertRuleRow, AlertRuleRow.id == AlertRow.rule_id).where(_KNOWN)
    if filters.rule_id is not None:
        query = query.where(AlertRow.rule_id == filters.rule_id)
    if filters.firing is not None:
        is_firing = AlertRow.resolved_at.is_(None)
        query = query.where(is_firing if filters.firing else ~is_firing)
    query = query.order_by(AlertRow.resolved_at.desc().nulls_first(), AlertRow.fired_at.desc(), AlertRow.id.desc())
    return [(row[0], row[1]) for row in (await session.execute(query.limit(filters.limit))).all()]


async def resolve(session: AsyncSession, ids: Collection[int], now: datetime) -> None:
    """Note that alerts do not fire any more."""
    if ids:
        await session.execute(update(AlertRow).where(AlertRow.id.in_(ids)).values(resolved_at=now))


async def set_values(session: AsyncSession, values: Mapping[int, float]) -> None:
    """Store the present values of alerts by id."""
    if values:
        await session.execute(update(AlertRow), [{"id": each, "value": value} for each, value in values.items()])


async def silences(session: AsyncSession, now: datetime) -> Sequence[SilenceRow]:
    """Return the silences in force, the first to end first."""
    return (
        await session.scalars(select(SilenceRow).where(SilenceRow.ends_at > now).order_by(SilenceRow.ends_at))
    ).all()


async def receivers(session: AsyncSession, *, enabled: bool = False) -> Sequence[ReceiverRow]:
    """Return all receivers, or those that are enabled, by name."""
    query = select(ReceiverRow).order_by(ReceiverRow.name)
    return (await session.scalars(query.where(ReceiverRow.enabled) if enabled else query)).all()


async def deliveries(session: AsyncSession, receiver_id: int, limit: int) -> Sequence[tuple[DeliveryRow, str]]:
    """Return the newest notifications of a receiver, each with the name of its rule."""
    query = select(DeliveryRow, AlertRuleRow.name).join(AlertRuleRow, AlertRuleRow.id == DeliveryRow.rule_id)
    query = query.where(DeliveryRow.receiver_id == receiver_id).order_by(DeliveryRow.number.desc()).limit(limit)
    return [(row[0], row[1]) for row in (await session.execute(query)).all()]


async def heads(session: AsyncSession, limit: int) -> Sequence[tuple[DeliveryRow, ReceiverRow]]:
    """Return the oldest waiting notification of each rule to each receiver; what follows it waits for it."""
    first = (
        select(func.min(DeliveryRow.number))
        .where(DeliveryRow.state == "waiting")
        .group_by(DeliveryRow.receiver_id, DeliveryRow.rule_id)
    )
    query = (
        select(DeliveryRow, ReceiverRow)
        .join(ReceiverRow, ReceiverRow.id == DeliveryRow.receiver_id)
        .where(DeliveryRow.number.in_(first))
        .order_by(DeliveryRow.due_at)
        .limit(limit)
    )
    return [(row[0], row[1]) for row in (await session.execute(query)).all()]


async def delete_waiting(session: AsyncSession, receiver_id: int) -> None:
    """Delete what waits to be sent to a receiver."""
    waiting = (DeliveryRow.receiver_id == receiver_id, DeliveryRow.state == "waiting")
    await session.execute(delete(DeliveryRow).where(*waiting))


async def rollbacks(session: AsyncSession, now: datetime) -> dict[int, int]:
    """Return by node how many changes failed, or were rolled back by no person, in the last hour."""
    by_itself = (ChangeRow.state == ChangeState.ROLLED_BACK) & ChangeRow.ended_by.in_(_BY_ITSELF)
    query = select(ChangeRow.node_id, func.count()).where(
        ChangeRow.ended_at > now - _HOUR, by_itself | (ChangeRow.state == ChangeState.FAILED)
    )
    return dict((await session.execute(query.group_by(ChangeRow.node_id))).all())


async def drifts(session: AsyncSession, now: datetime) -> dict[int, int]:
    """Return by node how many settings of policies other programs changed in the last 15 minutes."""
    query = select(DriftRow.node_id, func.count()).where(DriftRow.at > now - _QUARTER).group_by(DriftRow.node_id)
    return dict((await session.execute(query)).all())


async def harm(session: AsyncSession, now: datetime) -> tuple[dict[int, str], dict[int, int]]:
    """Return the names of all policies, and how many metrics were found worse by policy.

    A version counts while it is in force, and for 24 hours after the finding.
    """
    named = await session.execute(select(PolicyRow.id, PolicyRow.name).where(PolicyRow.deleted_at.is_(None)))
    names = dict(named.all())
    in_force = PolicyRow.enabled & (PolicyRow.version == ProofVersionRow.version)
    query = (
        select(ProofVersionRow.policy_id, ProofVersionRow.findings, in_force)
        .join(PolicyRow, PolicyRow.id == ProofVersionRow.policy_id)
        .where(PolicyRow.deleted_at.is_(None), ProofVersionRow.findings != {})
    )
    found: dict[int, int] = {}
    for policy_id, findings, is_in_force in (await session.execute(query)).all():
        worse = [one for one in findings.values() if one["finding"] == Finding.WORSENS]
        recent = [one for one in worse if is_in_force or datetime.fromisoformat(one["at"]) > now - _DAY]
        if recent:
            found[policy_id] = found.get(policy_id, 0) + len(recent)
    return names, found
