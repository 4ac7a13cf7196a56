"""In-process publish and subscribe of events. Those defined here carry ids only; features define the others."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

_MAX_QUEUED = 10_000
"""Events queued for one subscriber; beyond that its oldest are dropped."""


@dataclass(frozen=True)
class Event:
    """Base of everything that is published; a feature defines the events that carry its own schemas."""


@dataclass(frozen=True)
class NodeEvent(Event):
    """A node's health, mode or labels changed, or the number of its open changes."""

    node_id: int


@dataclass(frozen=True)
class InventoryEvent(Event):
    """A node's topology, inventory, tasks or what it learned of its NICs changed and can be fetched."""

    node_id: int


@dataclass(frozen=True)
class PoliciesEvent(Event):
    """What is in force, decided or flows on a node changed and can be fetched; on which nodes is not told by None."""

    node_id: int | None


class Bus:
    """Publishing never waits: a subscriber that does not keep up loses its oldest events."""

    def __init__(self) -> None:
        self._subscribers: set[asyncio.Queue[Event]] = set()

    def publish(self, event: Event) -> None:
        """Tell every subscriber."""
        for queue in self._subscribers:
            if queue.full():
                queue.get_nowait()
            queue.put_nowait(event)

    @contextmanager
    def subscribe(self) -> Iterator[AsyncIterator[Event]]:
        """``with bus.subscribe() as events: async for event in events``: everything published inside the block."""
        queue: asyncio.Queue[Event] = asyncio.Queue(_MAX_QUEUED)
        self._subscribers.add(queue)
        try:
            yield _events(queue)
        finally:
            self._subscribers.discard(queue)


async def _events(queue: asyncio.Queue[Event]) -> AsyncIterator[Event]:
    while True:
        yield await queue.get()
