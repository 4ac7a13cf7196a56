"""Passes events on to the other backends by PostgreSQL's NOTIFY: ids only, and what they mean is read there."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeAlias, TypeVar

import msgspec

from coresteer.background import cancel
from coresteer.bus import Bus, Event
from coresteer.db import Database
from coresteer.errors import is_database_unavailable
from coresteer.replicas.membership import Membership

log = logging.getLogger("coresteer.replicas")

CHANNEL = "coresteer_events"
_PAUSE_S = 0.1
"""Between two notifications, each of which takes a lock of the whole server; and before reading events again."""
_MAX_BYTES = 7900
"""A notification has less than 8,000 bytes."""

E = TypeVar("E", bound=Event)
Id: TypeAlias = int | str | None


@dataclass(frozen=True)
class Relayed(Generic[E]):
    """How events of one type are passed on. kind: its name. load: returns the events of ids, as they are now."""

    kind: str
    event: type[E]
    id_of: Callable[[E], Id]
    load: Callable[[Sequence[Id]], Awaitable[Iterable[Event]]]


class _Notification(msgspec.Struct):
    sender: int
    events: list[tuple[str, Id]]


class Relay:
    """Passes on the events of some types, each id once in 0.1 s; nothing while no other backend is alive.

    gap: events to deliver when some may have been missed.
    """

    def __init__(
        self,
        database: Database,
        bus: Bus,
        membership: Membership,
        *,
        relayed: Sequence[Relayed[Any]],  # Any: of several types
        gap: Sequence[Event],
    ) -> None:
        self._database, self._bus, self._membership = database, bus, membership
        self._by_type: dict[type[Event], Relayed[Any]] = {each.event: each for each in relayed}
        self._by_kind = {each.kind: each for each in relayed}
        self._gap = gap
        self._sending: dict[tuple[str, Id], None] = {}
        self._received: dict[tuple[str, Id], None] = {}
        self._send_wake, self._receive_wake = asyncio.Event(), asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Start passing events on, and delivering those of others."""
        self._bus.relay = self.forward
        self._tasks = [asyncio.create_task(self._send()), asyncio.create_task(self._deliver())]

    async def stop(self) -> None:
        """Stop passing events on."""
        self._bus.relay = None
        await cancel(self._tasks)

    def forward(self, event: Event) -> None:
        """Pass an event on, if it is of a type that is."""
        relayed = self._by_type.get(type(event))
        if relayed is not None and self._membership.others:
            self._sending[relayed.kind, relayed.id_of(event)] = None
            self._send_wake.set()

    def receive(self, payload: str) -> None:
        """Deliver the events of a notification soon."""
        try:
            notification = msgspec.json.decode(payload, type=_Notification)
        except msgspec.DecodeError as error:
            return log.warning("A notification of another backend cannot be read: %s", error)
        if notification.sender != self._membership.id:
            self._received.update(dict.fromkeys(notification.events))
            self._receive_wake.set()

    def deliver_gap(self) -> None:
        """Deliver what makes up for notifications that were missed."""
        for event in self._gap:
            self._bus.deliver(event)

    async def _send(self) -> None:
        while True:
            await self._send_wake.wait()
            self._send_wake.clear()
            while self._sending:
                payload, sent = self._next_payload()
                try:
                    for key in sent:  # an event that is published meanwhile is sent again
                        del self._sending[key]
                    async with self._database.pool.connection() as connection:
                        await connection.execute("SELECT pg_notify(%s, %s)", (CHANNEL, payload))
                except Exception as error:
                    if not is_database_unavailable(error):
                        log.exception("Passing events on to other backends failed; retrying.")
                    self._sending = dict.fromkeys(sent) | self._sending
                await asyncio.sleep(_PAUSE_S)

    def _next_payload(self) -> tuple[str, list[tuple[str, Id]]]:
        """Return the oldest events as one notification."""
        sent: list[tuple[str, Id]] = []
        size = len(msgspec.json.encode(_Notification(self._membership.id, [])))
        for key in self._sending:
            size += len(msgspec.json.encode(key)) + 1
            if size > _MAX_BYTES:
                break
            sent.append(key)
        return msgspec.json.encode(_Notification(self._membership.id, sent)).decode(), sent

    async def _deliver(self) -> None:
        while True:
            await self._receive_wake.wait()
            self._receive_wake.clear()
            received, self._received = self._received, {}
            ids: dict[str, list[Id]] = {}
            for kind, event_id in received:
                ids.setdefault(kind, []).append(event_id)
            for kind, of_kind in ids.items():
                if (relayed := self._by_kind.get(kind)) is None:  # of a newer version
                    continue
                try:
                    events = await relayed.load(of_kind)
                except Exception as error:
                    if is_database_unavailable(error):
                        self._received |= dict.fromkeys((kind, event_id) for event_id in of_kind)
                        self._receive_wake.set()
                        await asyncio.sleep(_PAUSE_S)
                    else:
                        log.exception("Events of another backend could not be read.")
                    continue
                for event in events:
                    self._bus.deliver(event)
