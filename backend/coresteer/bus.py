"""Publish and subscribe of events. Those defined here carry ids only; features define the others."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

_MAX_QUEUED = 10_000
"""Events queued for one subscriber; beyond that its oldest are dropped."""


@dataclass(frozen=True)
class Event:
    """Base class of all events; a feature defines those that carry its own schemas."""


@dataclass(frozen=True)
class NodeEvent(Event):
    """A node's health, mode or labels changed, or the number of its open changes; or the node was deleted."""

    node_id: int


@dataclass(frozen=True)
class InventoryEvent(Event):
    """A node's topology, inventory, tasks or NIC observations changed."""

    node_id: int


@dataclass(frozen=True)
class PoliciesEvent(Event):
    """The policies in force, the decisions or the flows of a node changed; None for any number of nodes."""

    node_id: int | None


@dataclass(frozen=True)
class LocationsEvent(Event):
    """Agents have connected to a backend or disconnected; the table node_presence says which."""


class Bus:
    """Publish and subscribe in this process.

    Publishing never blocks: a subscriber that is too slow loses its oldest events.
    relay: is called with each published event, to pass it on to other backends.
    """

    def __init__(self) -> None:
        self._subscribers: set[asyncio.Queue[Event]] = set()
        self.relay: Callable[[Event], None] | None = None

    def publish(self, event: Event) -> None:
        """Queue an event for every subscriber of every backend, without waiting."""
        self.deliver(event)
        if self.relay is not None:
            self.relay(event)

    def deliver(self, event: Event) -> None:
        """Queue an event for every subscriber in this process, without waiting."""
        for queue in self._subscribers:
            if queue.full():
                queue.get_nowait()
            queue.put_nowait(event)

    async def call(self, event: Event, function: Callable[[], None]) -> None:
        """Call a function at each event that equals this one, until cancelled."""
        with self.subscribe() as events:
            async for each in events:
                if each == event:
                    function()

    @contextmanager
    def subscribe(self) -> Iterator[AsyncIterator[Event]]:
        """Subscribe to all events: ``with bus.subscribe() as events: async for event in events``."""
        queue: asyncio.Queue[Event] = asyncio.Queue(_MAX_QUEUED)
        self._subscribers.add(queue)
        try:
            yield _events(queue)
        finally:
            self._subscribers.discard(queue)


async def _events(queue: asyncio.Queue[Event]) -> AsyncIterator[Event]:
    while True:
        yield await queue.get()
