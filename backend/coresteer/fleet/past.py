"""Past figures from stored roll-ups: of each node in one minute or hour, and of the whole fleet over time."""

import asyncio
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from psycopg.rows import TupleRow

from coresteer.db import Database
from coresteer.fleet.figures import HEALTH_CODES, FleetNode, FleetValues, empty_values
from coresteer.fleet.query import SUMMED
from coresteer.fleet.schemas import FleetSeries
from coresteer.presence.registry import NodeRegistry
from coresteer.presence.stored import physical_netdevs
from coresteer.telemetry import repository
from coresteer.telemetry.history import TimeRange, checked_ms
from coresteer.telemetry.repository import from_unix_ms
from coresteer.telemetry.rollup import Rollup, merge_rollups
from coresteer.telemetry.schemas import Resolution
from coresteer_core.metrics import FLEET_METRICS, SCALAR_SOURCES, wrong_node_percent
from coresteer_core.node.metric_values import largest_share, netdevs_counted
from coresteer_core.node.rates import CPU_SHARES

MAX_POINTS = 240
MAX_READ = 60_000
"""Figures of nodes that one series may read: nodes × points. A larger fleet has fewer points."""
_PAGE = 1000
_MOMENTS_KEPT = 6
_KEPT_S = 60.0
"""Agents may send samples of a past minute or hour late, so it is read again after that."""
_KEPT_UNFINISHED_S = 2.0
"""The same while the minute or hour runs, or its last samples may still arrive."""
STORED_AFTER_MS = {Resolution.MINUTE: 90_000, Resolution.HOUR: 240_000}
"""How long after its end it is stored, unless its agent was disconnected. Hours are stored by telemetry/hours.py."""
MAX_SPAN_OF_MINUTES_MS = 6 * 3_600_000
_WIDTH_MS = {Resolution.MINUTE: 60_000, Resolution.HOUR: 3_600_000}
_TABLES = {Resolution.MINUTE: "telemetry_minute", Resolution.HOUR: "telemetry_hour"}
_SHARE_ROWS = (CPU_SHARES.index("busy"), CPU_SHARES.index("softirq"))
_busy = asyncio.Semaphore(2)
"""Series that are read at the same time."""


@dataclass(frozen=True)
class FleetPast:
    """Where past figures are read from."""

    database: Database
    registry: NodeRegistry
    kept: "dict[tuple[Resolution, int], _Kept]" = field(default_factory=dict)

    async def figures_of(self, resolution: Resolution, start_ms: int, node_ids: Sequence[int]) -> "Mapping[int, _Of]":
        """Return the figures by node of a minute or hour, which are kept for a while: pages of it follow."""
        key = resolution, start_ms
        if (known := self._known(key)) is not None:
            return known
        async with _busy:
            if (known := self._known(key)) is not None:  # read by another request meanwhile
                return known
            is_complete = time.time_ns() // 1_000_000 >= start_ms + _WIDTH_MS[resolution] + STORED_AFTER_MS[resolution]
            found: dict[int, _Of] = {}
            for first in range(0, len(node_ids), _PAGE):
                page = node_ids[first : first + _PAGE]
                found |= await _figures(
                    self, page, resolution, start_ms, await physical_netdevs(self.database, self.registry, page)
                )
            self.kept.pop(key, None)
            self.kept[key] = _Kept(time.monotonic() + (_KEPT_S if is_complete else _KEPT_UNFINISHED_S), found)
            for oldest in list(self.kept)[:-_MOMENTS_KEPT]:
                del self.kept[oldest]
        return found

    def _known(self, key: tuple[Resolution, int]) -> "Mapping[int, _Of] | None":
        kept = self.kept.get(key)
        return None if kept is None or time.monotonic() > kept.until else kept.figures


@dataclass(frozen=True)
class _Kept:
    until: float
    figures: "Mapping[int, _Of]"


@dataclass(frozen=True)
class _Of:
    """One node's figures in a minute or hour."""

    busiest_cpu: int | None
    softirq_cpu: int | None
    metrics: Mapping[str, float | None]


async def read_values(past: FleetPast, nodes: Sequence[FleetNode], at: datetime, resolution: Resolution) -> FleetValues:
    """Return figures of nodes in the minute or hour of a time; their health is the present one. Raises Invalid."""
    width = _WIDTH_MS[resolution]
    start = int(checked_ms(at, "at")) // width * width
    values = empty_values(len(nodes), start)
    known = await past.figures_of(resolution, start, [node.id for node in nodes])
    for place, node in enumerate(nodes):
        health = past.registry.health(node.id, seen_before=node.seen_before)
        values.health[place] = HEALTH_CODES[health]
        if (one := known.get(node.id)) is None:
            continue
        for name, value in one.metrics.items():
            if value is not None:
                values.metrics[name][place] = value
        if one.busiest_cpu is not None:
            values.busiest_cpu[place] = one.busiest_cpu
        if one.softirq_cpu is not None:
            values.softirq_cpu[place] = one.softirq_cpu
    return values


async def read_series(past: FleetPast, span: TimeRange, points: int) -> FleetSeries:
    """Return the whole fleet's figures at points of a range, fewer for a large fleet."""
    resolution = Resolution.MINUTE if span.end - span.start <= MAX_SPAN_OF_MINUTES_MS else Resolution.HOUR
    node_ids = await _node_ids(past.database)
    starts, step = windows(span, _WIDTH_MS[resolution], min(points, MAX_READ // max(1, len(node_ids))))
    totals = []
    async with _busy:
        pages = [node_ids[first : first + _PAGE] for first in range(0, len(node_ids), _PAGE)]
        physical = [await physical_netdevs(past.database, past.registry, page) for page in pages]
        for start in starts:
            total = _Total()
            for page, known in zip(pages, physical, strict=True):
                total.add((await _figures(past, page, resolution, start, known)).values())
            totals.append(total)
    return FleetSeries(
        resolution=resolution,
        step_ms=step,
        times_ms=starts,
        nodes=[total.nodes for total in totals],
        values={name: [total.values.get(name) for total in totals] for name in FLEET_METRICS},
    )


def windows(span: TimeRange, width_ms: int, most: int) -> tuple[list[int], float]:
    """Return when at most `most` minutes or hours that touch a range begin, the last of it always, and their step."""
    first, last = int(span.start // width_ms), int(-(-span.end // width_ms)) - 1
    count = max(1, last - first + 1)
    step = max(1.0, count / max(1, most))
    places = range(min(count, max(1, most)))
    return [(last - int(place * step)) * width_ms for place in reversed(places)], step * width_ms


class _Total:
    """The figures of many nodes together."""

    def __init__(self) -> None:
        self.nodes = 0
        self.values: dict[str, float] = {}

    def add(self, figures: Iterable[_Of]) -> None:
        for one in figures:
            self.nodes += 1
            for name, value in one.metrics.items():
                if value is not None:
                    before = self.values.get(name)
                    joined = sum if name in SUMMED else max
                    self.values[name] = value if before is None else joined((before, value))


async def _node_ids(database: Database) -> list[int]:
    async with database.pool.connection() as connection:
        cursor = await connection.execute("SELECT id FROM node ORDER BY id")
        return [node_id for (node_id,) in await cursor.fetchall()]


async def _figures(
    past: FleetPast,
    node_ids: Sequence[int],
    resolution: Resolution,
    start_ms: int,
    physical: Mapping[int, frozenset[str]],
) -> dict[int, _Of]:
    """Return the figures by node of at most a page of nodes, without those of which nothing is stored."""
    end_ms = start_ms + _WIDTH_MS[resolution]
    async with past.database.pool.connection() as connection:
        rows = await repository.read_rollups_of_nodes(
            connection, _TABLES[resolution], node_ids, from_unix_ms(start_ms), from_unix_ms(end_ms)
        )
    return await asyncio.to_thread(lambda: dict(_decoded(rows, physical)))


def _decoded(rows: Sequence[TupleRow], physical: Mapping[int, frozenset[str]]) -> Iterator[tuple[int, _Of]]:
    for node_id, parts in repository.decode_rollups(rows).items():
        yield node_id, _of(parts, physical.get(node_id))


def _of(parts: Sequence[Rollup], physical: frozenset[str] | None) -> _Of:
    """Return the figures of a node's roll-ups. physical: the netdevs that count; all but loopback where unknown."""
    rollup = parts[0] if len(parts) == 1 else merge_rollups(parts)
    counted = netdevs_counted(physical)
    values: dict[str, float | None] = dict.fromkeys(FLEET_METRICS)
    for name, metric in FLEET_METRICS.items():
        if metric.source is None or (amount := rollup.amount(metric.source, counted)) is None:
            continue
        values[name] = metric.value(amount, rollup.known_s(metric.source.field))
    busiest, softirq = (largest_share(rollup.means[row].tobytes()) or (None, None) for row in _SHARE_ROWS)
    values |= {
        "busiest_cpu_percent": busiest[1],
        "softirq_cpu_percent": softirq[1],
        "wrong_node_percent": wrong_node_percent(lambda field: rollup.amount(SCALAR_SOURCES[field], counted)),
    }
    return _Of(busiest[0], softirq[0], values)
