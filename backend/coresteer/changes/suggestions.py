"""Suggestions for the hot CPUs of nodes, from their last minute, or from the time since their last change."""

import asyncio
import math
import time
from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

from msgspec.structs import replace

from coresteer.changes import repository
from coresteer.changes.recent_rates import SPAN, last_minute
from coresteer.changes.records import find_node, utc_now
from coresteer.changes.schemas import FleetSuggestion, NodeSuggestions
from coresteer.changes.validation import view_of_node
from coresteer.db import Database
from coresteer.errors import Conflict, NotFound
from coresteer.presence.registry import NodeRegistry
from coresteer.presence.stored import clock_skew_ms
from coresteer.telemetry.repository import to_unix_ms
from coresteer.telemetry.service import Ingest
from coresteer_core.node.load import mean_load
from coresteer_core.node.rates import Rates
from coresteer_core.node.view import View
from coresteer_core.policies.suggest import Suggestions, suggest

_FRESH_S = 5.0
"""Seconds for which a node's suggestions are returned again instead of computed."""
_SETTLED_S = 15.0
"""Seconds of samples after a change that suggestions take: what was measured before it is not the load now."""
_LOOKED_BACK = 2 * SPAN
"""A change matters longer than SPAN: the newest samples may be as old as a block lasts."""
_LAG_S = 2.0
"""Seconds by which a node may report a change earlier than samples of the load after it."""
_MAX_NODES = 256
"""Maximum number of nodes whose suggestions are retained."""


class _Found(NamedTuple):
    """The suggestions for a node, when they were computed (monotonic), and when its settings were written last."""

    at: float
    written_at: datetime | None
    suggestions: NodeSuggestions


class Suggester:
    """Computes suggestions for one node at a time, for each at most once in 5 s, however many users look at it.

    A computation takes 2 ms for 8 CPUs, 10 ms for 64 and 65 ms for 256 CPUs with 600 interrupts, after the last minute
    is read: the hot spots of a fleet cost at most a tenth of a core, those of nodes with 64 CPUs a sixtieth.
    """

    def __init__(self, database: Database, ingest: Ingest, registry: NodeRegistry) -> None:
        self._database, self._ingest, self._registry = database, ingest, registry
        self._found: dict[int, _Found] = {}
        self._turn = asyncio.Lock()

    async def node(self, node_id: int) -> NodeSuggestions:
        """Return the suggestions for a node's hot CPUs. Raises NotFound, and Conflict until it has reported."""
        async with self._turn:
            async with self._database.session() as session:
                written_at = await repository.last_write(session, node_id, utc_now() - _LOOKED_BACK)
            found = self._found.get(node_id)
            if found is None or found.written_at != written_at or time.monotonic() - found.at > _FRESH_S:
                self._found.pop(node_id, None)
                suggestions = await self._compute(node_id, written_at)
                if suggestions.measuring_s:
                    return suggestions
                self._found[node_id] = found = _Found(time.monotonic(), written_at, suggestions)
                if len(self._found) > _MAX_NODES:
                    del self._found[next(iter(self._found))]
            return found.suggestions

    async def fleet(self, node_ids: Sequence[int]) -> list[FleetSuggestion]:
        """Return for each of these nodes with a hot CPU its cause and what would help most."""
        found = []
        for node_id in dict.fromkeys(node_ids):
            try:
                hot = (await self.node(node_id)).suggestions.hot
            except (NotFound, Conflict):
                continue
            spot = next((spot for spot in hot if spot.options), hot[0] if hot else None)
            if spot is not None:
                found.append(
                    FleetSuggestion(
                        node_id=node_id,
                        cpu=spot.cpu,
                        cause=spot.cause,
                        sentence=spot.sentence,
                        helps=bool(spot.options),
                    )
                )
        return found

    async def _compute(self, node_id: int, written_at: datetime | None) -> NodeSuggestions:
        async with self._database.session() as session:
            view = view_of_node(await find_node(session, node_id), self._registry.get(node_id).flows)
        exclude = view.inventory.limits.settings.cpus_off_limits
        rates = await last_minute(self._database, self._ingest, node_id)
        if written_at is not None:
            since_s = (utc_now() - written_at).total_seconds()
            written_ms = to_unix_ms(written_at) + await clock_skew_ms(self._database, self._registry, node_id)
            if since_s < _SETTLED_S or (rates and rates[-1].time_ms < written_ms + 1000 * _SETTLED_S):
                left = max(1, math.ceil(_SETTLED_S - since_s))
                nothing = Suggestions([], f"Measuring after the last change, {left} s left.", 0.0)
                return NodeSuggestions(suggestions=nothing, exclude=exclude, measuring_s=left)
            rates = [each for each in rates if each.time_ms > written_ms + 1000 * _LAG_S]
        # takes milliseconds per hot CPU on a large machine; a thread keeps the event loop responsive
        found = await asyncio.to_thread(_suggest, view, rates)
        return NodeSuggestions(suggestions=found, exclude=exclude)


def _suggest(view: View, rates: Sequence[Rates]) -> Suggestions:
    return suggest(replace(view, load=mean_load(rates)))
