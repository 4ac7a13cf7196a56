"""SQL of changes."""

from collections.abc import Collection, Sequence
from datetime import datetime
from uuid import UUID

from sqlalchemy import and_, case, delete, func, or_, select, text, tuple_
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import undefer

from coresteer.changes.schemas import ChangeFilter, Origin
from coresteer.changes.tables import ChangeRow, EarlyReportRow
from coresteer.nodes.tables import NodeRow
from coresteer_core.changes.report import ChangeState

OPEN_STATES = (ChangeState.APPLYING, ChangeState.UNCONFIRMED)
BY_ORIGIN = {
    Origin.PEOPLE: and_(ChangeRow.policy_id.is_(None), ChangeRow.experiment_id.is_(None)),
    Origin.POLICIES: ChangeRow.policy_id.is_not(None),
    Origin.EXPERIMENTS: ChangeRow.experiment_id.is_not(None),
}
"""Conditions on the rows of changes, by what started them."""


async def find_node(session: AsyncSession, node_id: int) -> NodeRow | None:
    """Return the node with topology, inventory and NIC observations, None if there is none."""
    deferred = (NodeRow.topology, NodeRow.inventory, NodeRow.learned)
    query = select(NodeRow).options(*(undefer(column) for column in deferred)).where(NodeRow.id == node_id)
    return (await session.scalars(query)).one_or_none()


async def lock_node(session: AsyncSession, node_id: int) -> None:
    """Lock the changes of a node until the transaction ends (advisory lock)."""
    await session.execute(
        text("SELECT pg_advisory_xact_lock(hashtext('coresteer.change'), :node_id)"), {"node_id": node_id}
    )


async def find_change(session: AsyncSession, change_id: UUID, *, lock: bool = False) -> ChangeRow | None:
    """Return the row of one change, None if there is none. lock: until the transaction ends."""
    query = select(ChangeRow).where(ChangeRow.id == change_id)
    return (await session.scalars(query.with_for_update(of=ChangeRow) if lock else query)).one_or_none()


async def find_changes(session: AsyncSession, change_ids: Collection[UUID]) -> Sequence[ChangeRow]:
    """Return the rows of these changes, in no particular order; those that do not exist are omitted."""
    return (await session.scalars(select(ChangeRow).where(ChangeRow.id.in_(change_ids)))).all()


async def store_early_report(session: AsyncSession, row: EarlyReportRow, most: int) -> None:
    """Store a report of a change that is not known yet; of each node only the newest `most` are retained."""
    session.add(row)
    await session.flush()
    surplus = select(EarlyReportRow.id).where(EarlyReportRow.node_id == row.node_id)
    surplus = surplus.order_by(EarlyReportRow.id.desc()).offset(most)
    await session.execute(delete(EarlyReportRow).where(EarlyReportRow.id.in_(surplus)))


async def pop_early_reports(session: AsyncSession, node_id: int, change_id: UUID) -> Sequence[EarlyReportRow]:
    """Delete the reports about a change that arrived before it was known, and return them in order."""
    query = delete(EarlyReportRow).where(EarlyReportRow.node_id == node_id, EarlyReportRow.change_id == change_id)
    return sorted(await session.scalars(query.returning(EarlyReportRow)), key=lambda row: row.id)


async def open_changes(session: AsyncSession, node_ids: Sequence[int]) -> Sequence[ChangeRow]:
    """Return the nodes' changes that are neither confirmed nor ended, oldest first."""
    query = select(ChangeRow).where(ChangeRow.node_id.in_(node_ids), ChangeRow.state.in_(OPEN_STATES))
    return (await session.scalars(query.order_by(ChangeRow.created_at, ChangeRow.id))).all()


async def applying_changes(session: AsyncSession) -> dict[UUID, int]:
    """Return the node of each change of which no report has arrived, by the change's id."""
    query = select(ChangeRow.id, ChangeRow.node_id).where(ChangeRow.state == ChangeState.APPLYING)
    return dict((await session.execute(query)).all())


async def unobserved_changes(
    session: AsyncSession, oldest: datetime, applied_before: datetime, most: int
) -> Sequence[ChangeRow]:
    """Return changes without a stored observation that were applied before a time or were undone since, oldest first.

    Those of experiments are not among them, nor those applied before the time oldest.
    """
    undone = and_(ChangeRow.state.in_((ChangeState.ROLLED_BACK, ChangeState.FAILED)), ChangeRow.ended_at.is_not(None))
    query = select(ChangeRow).where(
        ChangeRow.observation.is_(None),
        ChangeRow.experiment_id.is_(None),
        ChangeRow.applied_at > oldest,
        or_(ChangeRow.applied_at <= applied_before, undone),
    )
    return (await session.scalars(query.order_by(ChangeRow.applied_at).limit(most))).all()


async def count_applied(session: AsyncSession, row: ChangeRow, start: datetime, end: datetime) -> int:
    """Return how many other changes of the same node were applied in a range of time."""
    query = select(func.count()).where(
        ChangeRow.node_id == row.node_id, ChangeRow.id != row.id, ChangeRow.applied_at.between(start, end)
    )
    return await session.scalar(query) or 0


async def last_write(session: AsyncSession, node_id: int, oldest: datetime) -> datetime | None:
    """Return when a change was last applied on a node or undone, or began to be; None if not since the time oldest."""
    undone = case((ChangeRow.state.in_((ChangeState.ROLLED_BACK, ChangeState.FAILED)), ChangeRow.ended_at))
    begun = case((ChangeRow.state == ChangeState.APPLYING, ChangeRow.created_at))
    at = func.greatest(ChangeRow.applied_at, undone, begun)
    last: datetime | None = await session.scalar(select(func.max(at)).where(ChangeRow.node_id == node_id, at > oldest))
    return last


async def count_open(session: AsyncSession) -> dict[int, int]:
    """Return the number of open changes by node id; nodes without any are omitted."""
    query = select(ChangeRow.node_id, func.count()).where(ChangeRow.state.in_(OPEN_STATES)).group_by(ChangeRow.node_id)
    return dict((await session.execute(query)).all())


async def newest_changes(session: AsyncSession, filters: ChangeFilter) -> Sequence[ChangeRow]:
    """Return at most limit changes, newest first, that were open at some time of the range."""
    query = select(ChangeRow).order_by(ChangeRow.created_at.desc(), ChangeRow.id.desc()).limit(filters.limit)
    if filters.node_id is not None:
        query = query.where(ChangeRow.node_id == filters.node_id)
    if filters.origin is not None:
        query = query.where(BY_ORIGIN[filters.origin])
    if filters.is_open is not None:
        query = query.where(
            ChangeRow.state.in_(OPEN_STATES) if filters.is_open else ChangeRow.state.not_in(OPEN_STATES)
        )
    if filters.from_time is not None:
        query = query.where(or_(ChangeRow.ended_at.is_(None), ChangeRow.ended_at >= filters.from_time))
    if filters.to_time is not None:
        query = query.where(ChangeRow.created_at <= filters.to_time)
    if filters.older_than is not None:
        last = select(ChangeRow.created_at, ChangeRow.id).where(ChangeRow.id == filters.older_than).scalar_subquery()
        query = query.where(tuple_(ChangeRow.created_at, ChangeRow.id) < last)
    return (await session.scalars(query)).all()
