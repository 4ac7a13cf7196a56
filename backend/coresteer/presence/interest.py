"""Interest: how much is needed now of the present of nodes, beyond a summary every 10 s."""

import asyncio
import logging
import time
from collections.abc import Callable, Collection
from contextlib import suppress

from coresteer.background import cancel, repeat
from coresteer.presence.connections import Connections
from coresteer.presence.registry import NodeRegistry
from coresteer_core.protocol import Detail, Watch

log = logging.getLogger("coresteer.presence")

INTEREST_S = 15.0
"""How long interest in a node or the fleet lasts after it was last expressed."""
_TICK_S = 1.0
_FRESH_WITHIN_S = 1.5
"""An agent answers a Watch at once, so longer only if it or the network is slow."""
_PARTS, _PART_S = 10, 0.1
"""A fleet is asked for summaries in 10 parts over 1 s, so that the first ones do not arrive together."""


class Interest:
    """Asks agents for summaries or samples while somebody needs them, and for 15 s after."""

    def __init__(self, connections: Connections, registry: NodeRegistry) -> None:
        self._connections = connections
        self._registry = registry
        self.on_need: Callable[[], None] = lambda: None
        """Called when interest begins in the samples of a node that is not connected to this backend."""
        self._until: dict[Detail, dict[int, float]] = {Detail.SUMMARIES: {}, Detail.SAMPLES: {}}
        self.fleet_since = 0.0
        """Since when the summaries of all nodes are needed without a break, or were: monotonic s."""
        self._fleet_until = self._fleet_until_elsewhere = 0.0
        self._includes_fleet = False
        self._fleet_changed = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Start ending interest that was not renewed."""
        self._tasks = [
            asyncio.create_task(repeat(self._end_expired, _TICK_S, log, "Interest could not be ended; retrying.")),
            asyncio.create_task(repeat(self._tell_fleet, 0.0, log, "Agents could not be asked; retrying.")),
        ]

    async def stop(self) -> None:
        """Stop; agents forget what they were asked when the connection ends."""
        await cancel(self._tasks)

    def detail(self, node_id: int) -> Detail:
        """Return how much is needed of the present of a node now."""
        if node_id in self._until[Detail.SAMPLES]:
            return Detail.SAMPLES
        return Detail.SUMMARIES if self._includes_fleet or node_id in self._until[Detail.SUMMARIES] else Detail.BLOCKS

    def node_ids(self) -> Collection[int]:
        """Return the nodes of which every sample is needed now."""
        return self._until[Detail.SAMPLES].keys()

    @property
    def is_fleet_needed(self) -> bool:
        """Return whether somebody at this backend needs the summaries of all nodes now."""
        return time.monotonic() < self._fleet_until

    def need_fleet(self) -> None:
        """Express interest in the summaries of all nodes for the next 15 s."""
        now = time.monotonic()
        if now >= self._fleet_until:
            self.fleet_since = now
        self._fleet_until = now + INTEREST_S
        self._include_fleet(included=True)

    def need_fleet_elsewhere(self) -> None:
        """Express the interest of another backend in the summaries of the nodes of this one for the next 15 s."""
        self._fleet_until_elsewhere = time.monotonic() + INTEREST_S
        self._include_fleet(included=True)

    def need_summaries(self, node_id: int) -> None:
        """Express interest in the summaries of a node for the next 15 s, while it is connected to this backend."""
        self._need(node_id, Detail.SUMMARIES)

    def need(self, node_id: int) -> None:
        """Express interest in the samples of a node for the next 15 s, wherever it is connected."""
        is_new = self._need(node_id, Detail.SAMPLES)
        if is_new and self._connections.get(node_id) is None:
            self.on_need()

    def _need(self, node_id: int, detail: Detail) -> bool:
        until = self._until[detail]
        is_new = node_id not in until
        until[node_id] = time.monotonic() + INTEREST_S
        if is_new:
            self.tell(node_id)
        return is_new

    async def refresh(self, node_id: int) -> None:
        """Express interest in a node, and wait up to 1.5 s until samples of the present have arrived.

        Returns at once for a node that is not connected, and for one whose agent sends every sample anyway.
        """
        peer = self._connections.reach(node_id)
        if peer is None or not peer.sends_columns:
            return
        state = self._registry.get_or_create(node_id)
        was_needed = node_id in self.node_ids() and state.rates is not None
        self.need(node_id)
        if was_needed:
            return
        state.arrived = arrived = state.arrived or asyncio.Event()
        with suppress(TimeoutError):
            async with asyncio.timeout(_FRESH_WITHIN_S):
                await arrived.wait()

    def tell(self, node_id: int) -> None:
        """Ask the agent of a node that is connected to this backend for what is needed, if that has changed."""
        peer, detail = self._connections.get(node_id), self.detail(node_id)
        if peer is None or not peer.sends_columns or (state := self._registry.get(node_id)).detail is detail:
            return
        state.ask(detail)
        peer.post(Watch(detail))

    def _include_fleet(self, *, included: bool) -> None:
        if self._includes_fleet != included:
            self._includes_fleet = included
            self._fleet_changed.set()

    async def _tell_fleet(self) -> None:
        """Wait until interest in the fleet begins or ends, and tell all agents, in parts."""
        await self._fleet_changed.wait()
        self._fleet_changed.clear()
        node_ids = self._connections.node_ids()
        for part in range(_PARTS):
            for node_id in node_ids[part::_PARTS]:
                self.tell(node_id)
            await asyncio.sleep(_PART_S)

    async def _end_expired(self) -> None:
        now = time.monotonic()
        for until in self._until.values():
            for node_id in [node_id for node_id, end in until.items() if end <= now]:
                del until[node_id]
                self.tell(node_id)
        self._include_fleet(included=now < max(self._fleet_until, self._fleet_until_elsewhere))
