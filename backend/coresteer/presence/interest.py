"""Interest: of which nodes every sample is needed now, and not only a summary each second and a block every 10 s."""

import asyncio
import logging
import time
from collections.abc import Callable, Collection
from contextlib import suppress

from coresteer.background import cancel, repeat
from coresteer.presence.connections import Connections
from coresteer.presence.registry import NodeRegistry
from coresteer_core.protocol import Watch

log = logging.getLogger("coresteer.presence")

INTEREST_S = 15.0
"""How long interest in a node lasts after it was last expressed."""
_TICK_S = 1.0
_FRESH_WITHIN_S = 1.5
"""An agent answers a Watch at once, so longer only if it or the network is slow."""


class Interest:
    """Asks the agents of nodes for every sample while somebody needs them, and for 15 s after."""

    def __init__(self, connections: Connections, registry: NodeRegistry) -> None:
        self._connections = connections
        self._registry = registry
        self.on_need: Callable[[], None] = lambda: None
        """Called when interest in a node begins that is not connected to this backend."""
        self._until: dict[int, float] = {}
        self._fleet_until = 0.0
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Start ending interest that was not renewed."""
        failure = "Interest in nodes could not be ended; retrying."
        self._tasks = [asyncio.create_task(repeat(self._end_expired, _TICK_S, log, failure))]

    async def stop(self) -> None:
        """Stop; agents forget what they were asked when the connection ends."""
        await cancel(self._tasks)

    def is_needed(self, node_id: int) -> bool:
        """Return whether every sample of the node is needed now; the gateway sends a new connection a Watch then."""
        return node_id in self._until

    def node_ids(self) -> Collection[int]:
        """Return the nodes of which every sample is needed now."""
        return self._until.keys()

    def need_fleet(self) -> None:
        """Express interest in the summaries of all nodes for the next 15 s."""
        self._fleet_until = time.monotonic() + INTEREST_S

    @property
    def is_fleet_needed(self) -> bool:
        """Return whether the summaries of all nodes are needed now."""
        return time.monotonic() < self._fleet_until

    def need(self, node_id: int) -> None:
        """Express interest in a node for the next 15 s."""
        is_new = node_id not in self._until
        self._until[node_id] = time.monotonic() + INTEREST_S
        if is_new:
            self._tell(node_id, full=True)

    async def refresh(self, node_id: int) -> None:
        """Express interest in a node, and wait up to 1.5 s until samples of the present have arrived.

        Returns at once for a node that is not connected, and for one whose agent sends every sample anyway.
        """
        peer = self._connections.reach(node_id)
        if peer is None or not peer.sends_columns:
            return
        state = self._registry.get_or_create(node_id)
        was_needed = self.is_needed(node_id) and state.rates is not None
        self.need(node_id)
        if was_needed:
            return
        state.arrived = arrived = state.arrived or asyncio.Event()
        with suppress(TimeoutError):
            async with asyncio.timeout(_FRESH_WITHIN_S):
                await arrived.wait()

    def _tell(self, node_id: int, *, full: bool) -> None:
        peer = self._connections.get(node_id)
        if peer is None:
            self.on_need()
        elif peer.sends_columns:
            peer.post(Watch(full))

    async def _end_expired(self) -> None:
        now = time.monotonic()
        for node_id in [node_id for node_id, until in self._until.items() if until <= now]:
            del self._until[node_id]
            self._tell(node_id, full=False)
