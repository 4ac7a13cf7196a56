"""Change windows: which apply to a node, and on which nodes policies may not write now."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncSession

from coresteer.policies import repository, stops
from coresteer.policies.schemas import Selector
from coresteer.policies.selector import NodeAttributes, matches
from coresteer.policies.tables import WindowRow
from coresteer.policies.window import Window, is_open, longest_opening, next_change

CLOSED = 2**31 - 1
"""The id of the stop that agents are told of outside the change windows; no row has it."""


@dataclass(frozen=True)
class Times:
    """What change windows mean for a node: whether policies may write now, and when that changes next."""

    open: bool = True
    changes_at: datetime | None = None

    @property
    def hold_from_ms(self) -> int | None:
        """Return from when an agent without its backend must hold policies, as Unix time; None for never."""
        return round(self.changes_at.timestamp() * 1000) if self.open and self.changes_at is not None else None


def zone(name: str) -> ZoneInfo | None:
    """Return a time zone by its IANA name, None if this machine has no such zone."""
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return None


def to_window(row: WindowRow) -> Window:
    """Return a stored window. Without its zone, which was checked when it was stored, it never opens."""
    found = zone(row.zone)
    return Window(frozenset(row.weekdays if found else ()), row.start_min, row.end_min, found or UTC)


async def all_windows(session: AsyncSession) -> list[WindowRow]:
    """Return all windows by name."""
    return list((await session.scalars(select(WindowRow).order_by(WindowRow.name))).all())


class Calendar:
    """What change windows mean for nodes at one moment; computed once for nodes with the same windows."""

    def __init__(self, rows: Iterable[WindowRow], at: datetime) -> None:
        self._windows = [(Selector.model_construct(labels=row.labels), to_window(row)) for row in rows]
        self._at = at
        self._times = lru_cache(maxsize=None)(self._of)

    def of(self, node: NodeAttributes) -> Times:
        """Return what the windows mean for a node. Nodes that no window's labels select are always open."""
        return self._times(self.windows_of(node))

    def windows_of(self, node: NodeAttributes) -> tuple[Window, ...]:
        """Return the windows whose labels select a node."""
        return tuple(window for selector, window in self._windows if matches(selector, node))

    def _of(self, windows: tuple[Window, ...]) -> Times:
        return Times(is_open(windows, self._at), next_change(windows, self._at))


async def closed_nodes(session: AsyncSession) -> frozenset[int]:
    """Return the nodes that are outside their change windows now."""
    if not (rows := await all_windows(session)):
        return frozenset()
    calendar = Calendar(rows, datetime.now(UTC))
    return frozenset(node.node_id for node in await repository.node_attributes(session) if not calendar.of(node).open)


async def times_of(session: AsyncSession, node_id: int) -> Times:
    """Return what the change windows mean for a node now."""
    calendar = Calendar(await all_windows(session), datetime.now(UTC))
    return next((calendar.of(node) for node in await repository.node_attributes(session, [node_id])), Times())


async def openings(session: AsyncSession, stages: Sequence[Sequence[int]], at: datetime) -> list[timedelta]:
    """Return for each stage, nodes by id, how long all its nodes are open together at most, within 8 days from at."""
    calendar = Calendar(await all_windows(session), at)
    of = {node.node_id: calendar.windows_of(node) for node in await repository.node_attributes(session)}
    return [longest_opening({of[node_id] for node_id in stage}, at) for stage in stages]


async def held_nodes(session: AsyncSession) -> frozenset[int]:
    """Return the nodes on which policies may not write now: enforcement is stopped, or no change window is open."""
    return await stops.stopped_nodes(session) | await closed_nodes(session)
