"""The log of changes: pages, export as CSV, and the values that settings had before."""

from collections.abc import AsyncIterator
from itertools import groupby
from uuid import UUID

from sqlalchemy.ext.asyncio import AsyncSession

from coresteer.changes import log_repository
from coresteer.changes.log_schemas import EarlierValue, LogEntry, LogFilter, LogPage, WrittenSetting
from coresteer.changes.records import utc_now
from coresteer.changes.schemas import ChangeStatus, Origin, Undone
from coresteer.changes.undone import to_schemas, undone
from coresteer.db import Database
from coresteer.spreadsheet import csv_lines

_MAX_VALUES = 20
_EXPORTED_AT_ONCE = 2000
_COLUMNS = (
    *("time", "node", "by", "state", "ended_by", "undone_by", "undone_at", "undone_by_change"),
    *("setting", "was", "becomes", "reason", "change"),
)


async def page(session: AsyncSession, filters: LogFilter, older_than: UUID | None, limit: int) -> LogPage:
    """Return a page of the log with the number of all matching changes."""
    found = await log_repository.entries(session, filters, older_than, limit + 1)
    shown = found[:limit]
    changes = await to_schemas(session, [one.newest for one in shown], utc_now())
    hours = [one.hour for one in shown if one.hour is not None]
    groups = await log_repository.statuses(session, filters, min(hours), max(hours)) if hours else {}
    totals = await log_repository.totals(session, filters)
    entries = [
        LogEntry(
            change=change,
            hour=one.hour,
            changes=one.changes,
            nodes=one.nodes,
            # a change may leave the group between the two queries
            statuses={change.status: one.changes}
            if one.hour is None
            else groups.get(
                (change.created_by, change.policy_id, change.experiment_id, one.hour), {change.status: one.changes}
            ),
        )
        for one, change in zip(shown, changes, strict=True)
    ]
    return LogPage(
        entries=entries,
        older=entries[-1].change.id if len(found) > limit else None,
        people=totals[Origin.PEOPLE],
        policies=totals[Origin.POLICIES],
        experiments=totals[Origin.EXPERIMENTS],
    )


async def export(database: Database, filters: LogFilter) -> AsyncIterator[bytes]:
    """Iterate over the changes as CSV, one line for each setting, newest first; texts are no formulas."""
    yield csv_lines([_COLUMNS])
    last: log_repository.Exported | None = None
    while True:
        async with database.session() as session:
            found = await log_repository.exported(session, filters, last, _EXPORTED_AT_ONCE)
            by = await undone(session, [one.id for one in found if one.status == ChangeStatus.UNDONE])
        yield csv_lines(
            (*_of_change(one, by.get(one.id)), action["key"], action["was"], action["becomes"], one.reason, str(one.id))
            for one in found
            for action in one.plan["actions"]
        )
        if len(found) < _EXPORTED_AT_ONCE:
            return
        last = found[-1]


def _of_change(one: log_repository.Exported, undone: Undone | None) -> tuple[str | None, ...]:
    by = (None, None, None) if undone is None else (undone.by, undone.at.isoformat(), undone.change)
    return one.created_at.isoformat(), one.node, one.created_by, one.status, one.ended_by, *by


async def written_settings(session: AsyncSession, node_id: int) -> list[WrittenSetting]:
    """Return every setting of the node that changes on record wrote, with its earlier values."""
    written = await log_repository.written_values(session, node_id, _MAX_VALUES)
    return [
        WrittenSetting(
            key=key,
            values=[EarlierValue(value=one.value, at=one.at, by=one.by, policy_id=one.policy_id) for one in values],
        )
        for key, values in groupby(written, key=lambda one: one.key)
    ]
