"""The log of stops of enforcement: when each began and was lifted, and by whom."""

from collections.abc import Iterator

from sqlalchemy import or_, select
from sqlalchemy.ext.asyncio import AsyncSession

from coresteer.policies import repository as policies
from coresteer.policies import stops
from coresteer.policies.tables import StopRow
from coresteer.stops.schemas import StopAction, StopEvent, StopLogFilter

_MAX_EVENTS = 200
_WORDS = {
    StopAction.STOP: "enforcement stopped",
    StopAction.RESTORE: "enforcement stopped, everything restored",
    StopAction.LIFT: "stop of enforcement lifted",
}


async def events(session: AsyncSession, filters: StopLogFilter) -> list[StopEvent]:
    """Return the newest events that match, newest first."""
    query = select(StopRow).order_by(StopRow.id.desc()).limit(_MAX_EVENTS)
    if filters.from_time is not None:
        since = filters.from_time
        query = query.where(or_(StopRow.created_at >= since, StopRow.lifted_at >= since))
    if filters.to_time is not None:
        query = query.where(StopRow.created_at <= filters.to_time)
    rows = (await session.scalars(query)).all()
    if filters.node_id is not None and rows:
        nodes = [node for node in await policies.node_attributes(session) if node.node_id == filters.node_id]
        rows = [row for row in rows if any(stops.applying([row], node) for node in nodes)]
    found = [event for row in rows for event in _of_stop(row) if _matches(event, filters)]
    return sorted(found, key=lambda event: event.at, reverse=True)[:_MAX_EVENTS]


def _of_stop(row: StopRow) -> Iterator[StopEvent]:
    begun = StopEvent(
        stop=row.id,
        action=StopAction.RESTORE if row.restore else StopAction.STOP,
        at=row.created_at,
        by=row.created_by,
        labels=row.labels,
        reason=row.reason,
        nodes=row.nodes,
        settings=row.settings,
        in_force=row.lifted_at is None,
    )
    yield begun
    if row.lifted_at is not None and row.lifted_by is not None:
        yield begun.model_copy(update={"action": StopAction.LIFT, "at": row.lifted_at, "by": row.lifted_by})


def _matches(event: StopEvent, filters: StopLogFilter) -> bool:
    scope = " ".join(f"{name}={glob}" for name, glob in event.labels.items()) or "all nodes"
    texts = (_WORDS[event.action], scope, event.by, event.reason)
    return (
        (filters.from_time is None or event.at >= filters.from_time)
        and (filters.to_time is None or event.at <= filters.to_time)
        and (filters.by is None or event.by == filters.by)
        and (filters.text is None or any(filters.text.lower() in text.lower() for text in texts))
    )
