"""SQL of policies, rollouts, decisions and drifts."""

from collections.abc import Collection, Sequence
from itertools import chain
from uuid import UUID

from sqlalchemy import ColumnElement, Text, cast, func, select
from sqlalchemy.ext.asyncio import AsyncSession

from coresteer.changes.tables import ChangeRow
from coresteer.nodes.tables import NodeRow, effective_labels
from coresteer.policies.in_force import IN_PROGRESS_STATES, UNFINISHED_STATES, EnabledPolicy, PartialRollout
from coresteer.policies.rollout_schemas import RolloutState
from coresteer.policies.schemas import PolicyBody, TimeFilter
from coresteer.policies.selector import NodeAttributes
from coresteer.policies.tables import DecisionRow, DriftRow, PolicyRow, PolicyVersionRow, RolloutRow
from coresteer_core.changes.report import ChangeState, EndedBy

_DECISIONS = select(DecisionRow, ChangeRow.state).outerjoin(ChangeRow, ChangeRow.id == DecisionRow.change_id)


async def list_policies(
    session: AsyncSession, policy_id: int | None = None
) -> Sequence[tuple[PolicyRow, PolicyVersionRow]]:
    """Return all policies, or one, each with its current version."""
    query = (
        select(PolicyRow, PolicyVersionRow)
        .join(
            PolicyVersionRow,
            (PolicyVersionRow.policy_id == PolicyRow.id) & (PolicyVersionRow.version == PolicyRow.version),
        )
        .where(PolicyRow.deleted_at.is_(None))
        .order_by(PolicyRow.id)
    )
    if policy_id is not None:
        query = query.where(PolicyRow.id == policy_id)
    return [(row[0], row[1]) for row in (await session.execute(query)).all()]


async def find_policy(session: AsyncSession, policy_id: int, *, lock: bool = False) -> PolicyRow | None:
    """Return a policy that is not deleted, None if there is none. lock: until the transaction ends."""
    query = select(PolicyRow).where(PolicyRow.id == policy_id, PolicyRow.deleted_at.is_(None))
    return (await session.scalars(query.with_for_update() if lock else query)).one_or_none()


async def policy_name(session: AsyncSession, policy_id: int) -> str | None:
    """Return a policy's name, also if it is deleted; None for an unknown id."""
    return await session.scalar(select(PolicyRow.name).where(PolicyRow.id == policy_id))


async def count_versions(session: AsyncSession) -> dict[int, int]:
    """Return the number of versions of each policy, by policy id."""
    query = select(PolicyVersionRow.policy_id, func.count()).group_by(PolicyVersionRow.policy_id)
    return dict((await session.execute(query)).all())


async def list_versions(session: AsyncSession, policy_id: int) -> Sequence[PolicyVersionRow]:
    """Return all versions of a policy, newest first."""
    query = select(PolicyVersionRow).where(PolicyVersionRow.policy_id == policy_id)
    return (await session.scalars(query.order_by(PolicyVersionRow.version.desc()))).all()


async def find_version(session: AsyncSession, policy_id: int, number: int) -> PolicyVersionRow | None:
    """Return one version of a policy, None if there is none."""
    return await session.get(PolicyVersionRow, (policy_id, number))


async def unfinished_rollout(session: AsyncSession, policy_id: int, *, lock: bool = False) -> RolloutRow | None:
    """Return the rollout of a policy that is in progress or stopped, None if there is none."""
    query = select(RolloutRow).where(RolloutRow.policy_id == policy_id, RolloutRow.state.in_(UNFINISHED_STATES))
    return (await session.scalars(query.with_for_update() if lock else query)).one_or_none()


async def unfinished_rollouts(session: AsyncSession) -> dict[int, RolloutRow]:
    """Return every rollout that is in progress or stopped, by policy id."""
    query = select(RolloutRow).where(RolloutRow.state.in_(UNFINISHED_STATES))
    return {row.policy_id: row for row in await session.scalars(query)}


async def version_before(session: AsyncSession, policy_id: int, version: int) -> int | None:
    """Return the version that a completed rollout of this one replaced, None if there was none."""
    query = select(RolloutRow.from_version).where(
        RolloutRow.policy_id == policy_id, RolloutRow.to_version == version, RolloutRow.state == RolloutState.DONE
    )
    return await session.scalar(query.order_by(RolloutRow.id.desc()).limit(1))


async def enabled_policies(session: AsyncSession) -> list[EnabledPolicy]:
    """Return every enabled policy with the versions that nodes may have now."""
    policies = (await session.scalars(select(PolicyRow).where(PolicyRow.enabled, PolicyRow.deleted_at.is_(None)))).all()
    ongoing = await unfinished_rollouts(session)
    needed: dict[int, set[int]] = {}
    partial: dict[int, PartialRollout] = {}
    for policy in policies:
        if (row := ongoing.get(policy.id)) is not None:
            nodes = frozenset(node_id for stage in row.stages[: row.stage + 1] for node_id in stage)
            compared = chain(*row.stages) if row.state in IN_PROGRESS_STATES else ()
            partial[policy.id] = PartialRollout(row.from_version, row.to_version, nodes, frozenset(compared))
            needed[policy.id] = {row.to_version} | ({row.from_version} if row.from_version is not None else set())
        else:
            needed[policy.id] = {policy.version}
    query = select(PolicyVersionRow).where(PolicyVersionRow.policy_id.in_(needed))
    bodies: dict[int, dict[int, PolicyBody]] = {policy_id: {} for policy_id in needed}
    for found in await session.scalars(query):
        if found.version in needed[found.policy_id]:
            bodies[found.policy_id][found.version] = PolicyBody.model_validate(found.body)
    return [EnabledPolicy(p.id, p.version, partial.get(p.id), bodies[p.id]) for p in policies]


async def policies_leaving_pages(session: AsyncSession) -> list[str]:
    """Return the ids of the policies whose memory moves are not undone where they are no longer enforced."""
    query = select(PolicyRow.id).where(PolicyRow.leave_pages).order_by(PolicyRow.id)
    return [str(policy_id) for policy_id in await session.scalars(query)]


async def node_attributes(session: AsyncSession, node_ids: Sequence[int] | None = None) -> list[NodeAttributes]:
    """Return the attributes of nodes that selectors match, of all nodes or of the given ones."""
    query = select(
        NodeRow.id, NodeRow.name, NodeRow.hello, NodeRow.token_labels, NodeRow.labels, NodeRow.netdevs
    ).order_by(NodeRow.id)
    if node_ids is not None:
        query = query.where(NodeRow.id.in_(node_ids))
    return [
        NodeAttributes(
            node_id, name, (hello or {}).get("hostname"), effective_labels(hello, token_labels, labels), netdevs
        )
        for node_id, name, hello, token_labels, labels, netdevs in (await session.execute(query)).all()
    ]


async def last_decision(session: AsyncSession, node_id: int, policy_id: int) -> DecisionRow | None:
    """Return the node's latest decision of the policy, None if there is none."""
    query = select(DecisionRow).where(DecisionRow.node_id == node_id, DecisionRow.policy_id == policy_id)
    return (await session.scalars(query.order_by(DecisionRow.id.desc()).limit(1))).one_or_none()


async def has_decision(session: AsyncSession, node_id: int, policy_id: int, change_id: UUID) -> bool:
    """Return whether the decision of a policy on a node that began this change is stored."""
    query = select(DecisionRow.id).where(
        DecisionRow.node_id == node_id, DecisionRow.policy_id == policy_id, DecisionRow.change_id == change_id
    )
    return await session.scalar(query.limit(1)) is not None


async def decisions(
    session: AsyncSession, node_id: int, filters: TimeFilter
) -> Sequence[tuple[DecisionRow, str | None]]:
    """Return decisions on a node, newest first, each with the state of its change (None without a change)."""
    query = _DECISIONS.where(*_conditions(DecisionRow, node_id, filters)).limit(filters.limit)
    rows = await session.execute(query.order_by(DecisionRow.at.desc(), DecisionRow.id.desc()))
    return [(row[0], row[1]) for row in rows.all()]


async def latest_decisions(
    session: AsyncSession, node_id: int, policy_ids: Collection[int]
) -> Sequence[tuple[DecisionRow, str | None]]:
    """Return the latest decision of each of these policies on a node, in any order, with the state of its change."""
    newest = (
        select(func.max(DecisionRow.id))
        .where(DecisionRow.node_id == node_id, DecisionRow.policy_id.in_(policy_ids))
        .group_by(DecisionRow.policy_id)
    )
    return [(row[0], row[1]) for row in (await session.execute(_DECISIONS.where(DecisionRow.id.in_(newest)))).all()]


async def drifts(session: AsyncSession, node_id: int, filters: TimeFilter) -> Sequence[DriftRow]:
    """Return a node's drifts, newest first."""
    query = select(DriftRow).where(*_conditions(DriftRow, node_id, filters)).limit(filters.limit)
    return (await session.scalars(query.order_by(DriftRow.at.desc(), DriftRow.id.desc()))).all()


def _conditions(table: type[DecisionRow | DriftRow], node_id: int, filters: TimeFilter) -> list[ColumnElement[bool]]:
    """Return the conditions for a node's rows in a time range."""
    conditions = [table.node_id == node_id]
    if filters.from_time is not None:
        conditions.append(table.at >= filters.from_time)
    if filters.to_time is not None:
        conditions.append(table.at <= filters.to_time)
    return conditions


async def guardrail_violation(session: AsyncSession, rollout: RolloutRow) -> tuple[int, UUID, str] | None:
    """Return node, change and sentence of a change of the rollout that a guardrail rolled back, None without one."""
    query = (
        select(ChangeRow.node_id, ChangeRow.id, cast(ChangeRow.sentence, Text))
        .join(DecisionRow, DecisionRow.change_id == ChangeRow.id)
        .where(
            DecisionRow.policy_id == rollout.policy_id,
            DecisionRow.version == rollout.to_version,
            ChangeRow.created_at >= rollout.started_at,
            ChangeRow.state == ChangeState.ROLLED_BACK,
            ChangeRow.ended_by == EndedBy.GUARDRAIL,
        )
        .limit(1)
    )
    row = (await session.execute(query)).one_or_none()
    return None if row is None else (row[0], row[1], row[2])
