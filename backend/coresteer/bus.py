"""Carries what happened inside the backend to whoever shows it: in-process publish and subscribe."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeAlias

from coresteer.changes.schemas import Change
from coresteer.experiments.schemas import ExperimentSummary

_KEPT = 10_000
"""Events that wait for one subscriber at the most; then its oldest are dropped."""


@dataclass(frozen=True)
class ChangeEvent:
    """A change took a step."""

    change: Change


@dataclass(frozen=True)
class NodeEvent:
    """A node's health, mode or labels changed, or the number of its open changes."""

    node_id: int


@dataclass(frozen=True)
class InventoryEvent:
    """A node's topology, inventory, tasks or what it learned of its NICs changed and can be fetched."""

    node_id: int


@dataclass(frozen=True)
class PoliciesEvent:
    """What is in force, decided or flows on a node changed and can be fetched; on which nodes is not told by None."""

    node_id: int | None


@dataclass(frozen=True)
class ExperimentEvent:
    """An experiment took a step."""

    experiment: ExperimentSummary


Event: TypeAlias = ChangeEvent | NodeEvent | InventoryEvent | PoliciesEvent | ExperimentEvent


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
        queue: asyncio.Queue[Event] = asyncio.Queue(_KEPT)
        self._subscribers.add(queue)
        try:
            yield _events(queue)
        finally:
            self._subscribers.discard(queue)


async def _events(queue: asyncio.Queue[Event]) -> AsyncIterator[Event]:
    while True:
        yield await queue.get()
