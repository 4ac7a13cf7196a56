"""Change windows: list, create and delete them."""

from datetime import UTC, datetime

from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncSession

from coresteer.audit.service import record
from coresteer.bus import PoliciesEvent
from coresteer.change_windows.schemas import ChangeWindow, ChangeWindowBody
from coresteer.errors import Conflict, NotFound
from coresteer.policies import repository, windows
from coresteer.policies.context import PolicyContext
from coresteer.policies.schemas import Selector
from coresteer.policies.selector import NodeAttributes, matches
from coresteer.policies.tables import WindowRow
from coresteer.policies.window import next_change
from coresteer.policies.windows import Calendar

MAX_WINDOWS = 50


async def list_windows(session: AsyncSession) -> list[ChangeWindow]:
    """Return all windows by name, with whether each is open now."""
    rows = await windows.all_windows(session)
    nodes = await repository.node_attributes(session) if rows else []
    return [_schema(row, nodes, Calendar(rows, datetime.now(UTC))) for row in rows]


async def create(context: PolicyContext, body: ChangeWindowBody, *, actor: str) -> ChangeWindow:
    """Create a window: from now on, policies write on its nodes only while one of theirs is open. Raises Conflict."""
    async with context.database.session() as session:
        rows = await windows.all_windows(session)
        if len(rows) >= MAX_WINDOWS:
            raise Conflict(f"There are {MAX_WINDOWS} change windows; delete one first.")
        row = WindowRow(
            name=body.name,
            labels=body.labels,
            zone=body.zone,
            weekdays=sorted(set(body.weekdays)),
            start_min=_minutes(body.start),
            end_min=_minutes(body.end),
            created_at=datetime.now(UTC),
            created_by=actor,
        )
        session.add(row)
        try:
            await session.flush()
        except IntegrityError:
            raise Conflict(f"A change window named “{body.name}” already exists; choose another name.") from None
        detail = body.model_dump(mode="json")
        record(session, actor=actor, action="change-window.create", target=body.name, detail=detail)
        nodes = await repository.node_attributes(session)
        made = _schema(row, nodes, Calendar([*rows, row], datetime.now(UTC)))
    context.bus.publish(PoliciesEvent(None))
    return made


async def delete(context: PolicyContext, window_id: int, *, actor: str) -> None:
    """Delete a window; nodes without any other one are open at all times. Raises NotFound."""
    async with context.database.session() as session:
        row = await session.get(WindowRow, window_id, with_for_update=True)
        if row is None:
            raise NotFound(f"There is no change window {window_id}; it may have been deleted.")
        await session.delete(row)
        record(session, actor=actor, action="change-window.delete", target=row.name)
    context.bus.publish(PoliciesEvent(None))


def _schema(row: WindowRow, nodes: list[NodeAttributes], calendar: Calendar) -> ChangeWindow:
    own = [node for node in nodes if matches(Selector.model_construct(labels=row.labels), node)]
    now, window = datetime.now(UTC), windows.to_window(row)
    return ChangeWindow(
        id=row.id,
        name=row.name,
        labels=row.labels,
        zone=row.zone,
        weekdays=row.weekdays,
        start=_clock(row.start_min),
        end=_clock(row.end_min),
        open=window.is_open(now),
        changes_at=next_change([window], now),
        nodes=len(own),
        held=sum(not calendar.of(node).open for node in own),
        created_at=row.created_at,
        created_by=row.created_by,
    )


def _minutes(clock: str) -> int:
    hours, minutes = clock.split(":")
    return int(hours) * 60 + int(minutes)


def _clock(minutes: int) -> str:
    return f"{minutes // 60:02}:{minutes % 60:02}"
