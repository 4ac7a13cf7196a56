"""SQL of the log of changes: people's changes one by one, those of policies and experiments by the hour."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import NamedTuple, TypeAlias
from uuid import UUID

from sqlalchemy import (
    ColumnElement,
    DateTime,
    String,
    Subquery,
    Text,
    cast,
    func,
    literal,
    null,
    or_,
    select,
    text,
    true,
    tuple_,
    union_all,
)
from sqlalchemy.ext.asyncio import AsyncSession

from coresteer.changes.log_schemas import LogFilter
from coresteer.changes.repository import BY_ORIGIN
from coresteer.changes.schemas import ChangeStatus, Origin
from coresteer.changes.tables import ChangeRow
from coresteer.changes.undone import STATUS, has_status
from coresteer.nodes.tables import NodeRow

_OF_PEOPLE = BY_ORIGIN[Origin.PEOPLE]
_ORIGIN = (ChangeRow.created_by, ChangeRow.policy_id, ChangeRow.experiment_id)
_HOUR = func.date_trunc("hour", ChangeRow.created_at, "UTC")


class Entry(NamedTuple):
    """The newest change of an entry, and the number of its changes and their nodes.

    hour: when the hour of a group began; None for a single change.
    """

    newest: ChangeRow
    hour: datetime | None
    changes: int
    nodes: int


async def entries(session: AsyncSession, filters: LogFilter, older_than: UUID | None, limit: int) -> list[Entry]:
    """Return at most limit entries, newest first. older_than: the newest change of the entry before."""
    conditions = _conditions(filters)
    last = (
        None
        if older_than is None
        else select(ChangeRow.created_at, ChangeRow.id).where(ChangeRow.id == older_than).scalar_subquery()
    )
    parts = [_singles(conditions, last, limit, grouped=filters.grouped)]
    if filters.grouped:
        parts.append(_groups(conditions, last, older_than, limit))
    found = union_all(*(select(part) for part in parts)).subquery()
    query = select(ChangeRow, found.c.hour, found.c.changes, found.c.nodes)
    query = query.join(found, ChangeRow.id == found.c.newest)
    query = query.order_by(found.c.at.desc(), found.c.newest.desc()).limit(limit)
    return [Entry(*row) for row in (await session.execute(query)).all()]


def _singles(
    conditions: Sequence[ColumnElement[bool]], last: ColumnElement[object] | None, limit: int, *, grouped: bool
) -> Subquery:
    query = select(
        ChangeRow.created_at.label("at"),
        ChangeRow.id.label("newest"),
        cast(null(), DateTime(timezone=True)).label("hour"),
        literal(1).label("changes"),
        literal(1).label("nodes"),
    ).join(NodeRow, NodeRow.id == ChangeRow.node_id)
    query = query.where(*conditions, *([_OF_PEOPLE] if grouped else []))
    if last is not None:
        query = query.where(tuple_(ChangeRow.created_at, ChangeRow.id) < last)
    return query.order_by(ChangeRow.created_at.desc(), ChangeRow.id.desc()).limit(limit).subquery()


def _groups(
    conditions: Sequence[ColumnElement[bool]], last: ColumnElement[object] | None, older_than: UUID | None, limit: int
) -> Subquery:
    # by node first: hashing both times takes a third of the time that sorting for count(DISTINCT) takes
    of_nodes = (
        select(
            *_ORIGIN,
            _HOUR.label("hour"),
            func.max(ChangeRow.created_at).label("at"),
            func.count().label("changes"),
        )
        .join(NodeRow, NodeRow.id == ChangeRow.node_id)
        .where(*conditions, ~_OF_PEOPLE)
        .group_by(*_ORIGIN, _HOUR, ChangeRow.node_id)
    )
    if older_than is not None:
        # a group is as old as its newest change: its hour counts as a whole
        begun = select(_HOUR).where(ChangeRow.id == older_than)
        of_nodes = of_nodes.where(ChangeRow.created_at < begun.scalar_subquery() + timedelta(hours=1))
    of_node = of_nodes.subquery()
    columns = (of_node.c.created_by, of_node.c.policy_id, of_node.c.experiment_id, of_node.c.hour)
    at, changes, nodes = func.max(of_node.c.at), func.sum(of_node.c.changes), func.count()
    group = select(*columns, at.label("at"), changes.label("changes"), nodes.label("nodes"))
    of_hour = group.group_by(*columns).subquery()
    newest = (
        select(ChangeRow.id)
        .join(NodeRow, NodeRow.id == ChangeRow.node_id)
        .where(
            *conditions,
            ChangeRow.created_at == of_hour.c.at,
            ChangeRow.created_by == of_hour.c.created_by,
            ChangeRow.policy_id.is_not_distinct_from(of_hour.c.policy_id),
            ChangeRow.experiment_id.is_not_distinct_from(of_hour.c.experiment_id),
        )
        .order_by(ChangeRow.id.desc())
        .limit(1)
        .lateral()
    )
    found = of_hour.c
    query = select(found.at, newest.c.id.label("newest"), found.hour, found.changes, found.nodes).join(newest, true())
    if last is not None:
        query = query.where(tuple_(found.at, newest.c.id) < last)
    return query.order_by(found.at.desc(), newest.c.id.desc()).limit(limit).subquery()


GroupKey: TypeAlias = tuple[str, int | None, int | None, datetime]
"""Author, policy, experiment and hour of a group."""


async def statuses(
    session: AsyncSession, filters: LogFilter, first: datetime, last: datetime
) -> dict[GroupKey, dict[ChangeStatus, int]]:
    """Return how many changes of each group have which status; of the groups of the hours from first to last."""
    query = select(*_ORIGIN, _HOUR, STATUS, func.count()).join(NodeRow, NodeRow.id == ChangeRow.node_id)
    query = query.where(*_conditions(filters), ~_OF_PEOPLE)
    query = query.where(ChangeRow.created_at >= first, ChangeRow.created_at < last + timedelta(hours=1))
    found: dict[GroupKey, dict[ChangeStatus, int]] = {}
    for *key, status, changes in await session.execute(query.group_by(*_ORIGIN, _HOUR, STATUS)):
        author, policy_id, experiment_id, hour = key
        found.setdefault((author, policy_id, experiment_id, hour), {})[ChangeStatus(status)] = changes
    return found


class Exported(NamedTuple):
    """A change as it is exported."""

    created_at: datetime
    node: str
    created_by: str
    status: str
    ended_by: str | None
    plan: dict[str, list[dict[str, str]]]
    reason: str
    id: UUID


async def exported(session: AsyncSession, filters: LogFilter, last: Exported | None, limit: int) -> list[Exported]:
    """Return at most limit changes, newest first. last: of the changes before."""
    query = select(
        ChangeRow.created_at,
        NodeRow.name,
        ChangeRow.created_by,
        STATUS,
        ChangeRow.ended_by,
        ChangeRow.plan,
        ChangeRow.reason,
        ChangeRow.id,
    ).join(NodeRow, NodeRow.id == ChangeRow.node_id)
    query = query.where(*_conditions(filters)).order_by(ChangeRow.created_at.desc(), ChangeRow.id.desc()).limit(limit)
    if last is not None:
        query = query.where(tuple_(ChangeRow.created_at, ChangeRow.id) < (last.created_at, last.id))
    return [Exported(*row) for row in await session.execute(query)]


async def totals(session: AsyncSession, filters: LogFilter) -> dict[Origin, int]:
    """Return how many changes match, by what they are of."""
    counts = [func.count().filter(condition) for condition in BY_ORIGIN.values()]
    query = select(*counts).select_from(ChangeRow).join(NodeRow, NodeRow.id == ChangeRow.node_id)
    row = (await session.execute(query.where(*_conditions(filters)))).one()
    return dict(zip(BY_ORIGIN, row, strict=True))


def _conditions(filters: LogFilter) -> list[ColumnElement[bool]]:
    found: list[ColumnElement[bool]] = []
    if filters.node_id is not None:
        found.append(ChangeRow.node_id == filters.node_id)
    if filters.by is not None:
        found.append(ChangeRow.created_by == filters.by)
    if filters.origin is not None:
        found.append(BY_ORIGIN[filters.origin])
    if filters.state is not None:
        found.append(has_status(filters.state))
    if filters.from_time is not None:
        found.append(ChangeRow.created_at >= filters.from_time)
    if filters.to_time is not None:
        found.append(ChangeRow.created_at <= filters.to_time)
    if filters.setting is not None:
        action = func.jsonb_array_elements(ChangeRow.plan["actions"]).table_valued("value")
        key = func.jsonb_extract_path_text(action.c.value, "key")
        pattern = "%".join(map(_literally, filters.setting.split("*")))
        found.append(select(action).where(cast(key, Text).like(pattern, escape="\\")).exists())
    if filters.text is not None:
        texts = (ChangeRow.sentence, ChangeRow.created_by, ChangeRow.reason, NodeRow.name)
        pattern = f"%{_literally(filters.text)}%"
        found.append(or_(*(cast(column, String).ilike(pattern, escape="\\") for column in texts)))
    return found


def _literally(words: str) -> str:
    return words.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")


class WrittenValue(NamedTuple):
    """A value that a setting of a node had: since when, and by whom; both None for what the first change found."""

    key: str
    value: str
    at: datetime | None
    by: str | None
    policy_id: int | None


_WRITTEN = text("""
    WITH written AS (
        SELECT action ->> 'key' AS key, action ->> 'was' AS was, action ->> 'becomes' AS becomes,
            coalesce(applied_at, created_at) AS at, created_by, policy_id
        FROM change, jsonb_array_elements(plan -> 'actions') AS action
        WHERE node_id = :node_id AND applied_at IS NOT NULL
    ), found AS (
        SELECT DISTINCT ON (key) key, was AS value, NULL::timestamptz AS at, NULL AS by, NULL::integer AS policy_id
        FROM written ORDER BY key, at
    ), latest AS (
        SELECT DISTINCT ON (key, becomes) key, becomes AS value, at, created_by AS by, policy_id
        FROM written ORDER BY key, becomes, at DESC
    ), ranked AS (
        SELECT *, row_number() OVER (PARTITION BY key ORDER BY at DESC) AS rank FROM latest
    )
    SELECT key, value, at, by, policy_id FROM ranked WHERE rank <= :most
    UNION ALL SELECT * FROM found
    ORDER BY key, at DESC NULLS LAST
""")


async def written_values(session: AsyncSession, node_id: int, most: int) -> list[WrittenValue]:
    """Return the values that changes wrote to each setting of a node: at most the newest, and last the one found."""
    rows = await session.execute(_WRITTEN, {"node_id": node_id, "most": most})
    return [WrittenValue(*row) for row in rows]
