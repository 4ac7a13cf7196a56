"""Distribution of samples and events to browsers. A slow browser loses its own oldest frames."""

import asyncio
import logging
import time
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Annotated

import msgspec
from fastapi import WebSocketException, status
from msgspec import Meta

from coresteer.background import cancel
from coresteer.bus import Bus, InventoryEvent, NodeEvent, PoliciesEvent
from coresteer.changes.events import ChangeEvent
from coresteer.db import Database
from coresteer.errors import is_database_unavailable
from coresteer.experiments.events import ExperimentEvent
from coresteer.fleet import service
from coresteer.fleet.directory import FleetDirectory
from coresteer.fleet.query import Fleet, groups, select, totals
from coresteer.fleet.schemas import MAX_HOT_SPOTS, MAX_ROWS
from coresteer.live.frames import fleet_frame, rates_frame
from coresteer.presence.interest import Interest
from coresteer.presence.registry import NodeRegistry
from coresteer_core.node.rates import Rates
from coresteer_core.protocol import ClassesMessage

log = logging.getLogger("coresteer.live")

_TICK_S = 1.0
_MAX_FRAMES = 16
_MAX_EVENTS = 1000
_MAX_EVENT_CHARACTERS = 2**23
"""Of all events that wait for one page: an event of a change has up to some MiB."""
_MAX_PAGES_PER_USER = 32
"""Every event is sent to each of them."""


class FleetWatch(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a page shows of the fleet: the figures of nodes that match, by group, and of these nodes one by one.

    q, group, within: as GET /api/v1/fleet.
    """

    q: Annotated[str, Meta(max_length=2000)] = ""
    group: Annotated[str, Meta(max_length=80)] | None = None
    within: Annotated[str, Meta(max_length=1000)] | None = None
    ids: Annotated[list[int], Meta(max_length=MAX_ROWS + MAX_HOT_SPOTS)] = []


class Subscription(msgspec.Struct, frozen=True):
    """Which frames a browser receives: the intervals of one node, the figures of the fleet."""

    node: int | None = None
    fleet: FleetWatch | None = None


class Browser:
    """One connected page with the frames and events that wait to be sent to it."""

    def __init__(self) -> None:
        self.subscription = Subscription()
        self.frames: deque[bytes] = deque(maxlen=_MAX_FRAMES)
        self.events: deque[str] = deque()
        self.wake = asyncio.Event()
        self._event_characters = 0

    def send(self, frame: bytes | str) -> None:
        """Queue a frame or an event; the oldest is dropped when too many wait."""
        if isinstance(frame, str):
            self.events.append(frame)
            self._event_characters += len(frame)
            while len(self.events) > _MAX_EVENTS or self._event_characters > _MAX_EVENT_CHARACTERS:
                self.next_event()
        else:
            self.frames.append(frame)
        self.wake.set()

    def next_event(self) -> str:
        """Remove the oldest event that waits, and return it."""
        event = self.events.popleft()
        self._event_characters -= len(event)
        return event


class LiveHub:
    """Sends samples and events to the browsers that subscribed to them; each is encoded once."""

    def __init__(
        self, database: Database, bus: Bus, registry: NodeRegistry, interest: Interest, fleet: FleetDirectory
    ) -> None:
        self._database, self._bus = database, bus
        self._registry, self._interest, self._fleet = registry, interest, fleet
        self._browsers: set[Browser] = set()
        self._pages_of: Counter[str] = Counter()
        self._subscribers: dict[int, set[Browser]] = {}
        self._changed_nodes: set[int] = set()
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Start publishing to browsers."""
        runs = [
            self._publish_events(),
            self._tick_forever(self._publish_nodes),
            self._tick_forever(self._publish_fleet),  # of its own: figures are shown also without a database
        ]
        self._tasks = [asyncio.create_task(run) for run in runs]

    async def stop(self) -> None:
        """Stop publishing to browsers."""
        await cancel(self._tasks)

    def publish_rates(self, node_id: int, rates: Rates) -> None:
        """Send a node's newest interval to the browsers that subscribed to the node."""
        if browsers := self._subscribers.get(node_id):
            frame = rates_frame(node_id, rates, self._registry.get(node_id).physical)
            for browser in browsers:
                browser.send(frame)

    def publish_classes(self, node_id: int, message: ClassesMessage) -> None:
        """Send the attainment of a node's service classes to the browsers that subscribed to the node."""
        if browsers := self._subscribers.get(node_id):
            event = {"type": "classes", "node_id": node_id, "policy_id": int(message.policy_id)}
            event |= {"time_ms": message.time_ms, "reported": message.classes}
            text = msgspec.json.encode(event).decode()
            for browser in browsers:
                browser.send(text)

    @contextmanager
    def browser(self, username: str) -> Iterator[Browser]:
        """Add a page of this user while the block runs. Raises WebSocketException when the user has too many open."""
        if self._pages_of[username] >= _MAX_PAGES_PER_USER:
            reason = f"{_MAX_PAGES_PER_USER} pages of {username} are open already; close one of them."
            raise WebSocketException(status.WS_1013_TRY_AGAIN_LATER, reason)
        browser = Browser()
        self._browsers.add(browser)
        self._pages_of[username] += 1
        try:
            yield browser
        finally:
            self.subscribe(browser, Subscription())
            self._browsers.discard(browser)
            self._pages_of -= Counter([username])

    def subscribe(self, browser: Browser, subscription: Subscription) -> None:
        """Replace what a page receives."""
        before, browser.subscription = browser.subscription.node, subscription
        if before is not None:
            self._subscribers[before].discard(browser)
            if not self._subscribers[before]:
                del self._subscribers[before]
        if subscription.node is not None:
            self._subscribers.setdefault(subscription.node, set()).add(browser)
            self._interest.need(subscription.node)

    @property
    def shows_fleet(self) -> bool:
        """Return whether some page shows the fleet, whose figures are then needed every second."""
        return any(browser.subscription.fleet is not None for browser in self._browsers)

    def _send_to_all(self, event: dict[str, object]) -> None:
        text = msgspec.json.encode(event).decode()
        for browser in self._browsers:
            browser.send(text)

    async def _publish_events(self) -> None:
        with self._bus.subscribe() as events:
            async for event in events:
                match event:
                    case ChangeEvent(change):
                        self._changed_nodes.add(change.node_id)
                        self._send_to_all({"type": "change", "change": change.model_dump(mode="json")})
                    case ExperimentEvent(experiment):
                        self._send_to_all({"type": "experiment", "experiment": experiment.model_dump(mode="json")})
                    case InventoryEvent(node_id):
                        # not to all browsers: a fleet's tasks change a thousand times a second
                        text = msgspec.json.encode({"type": "inventory", "node_id": node_id}).decode()
                        for browser in self._subscribers.get(node_id, ()):
                            browser.send(text)
                    case PoliciesEvent(None):
                        self._send_to_all({"type": "policies", "node_id": None})
                    case PoliciesEvent(int(node_id)):
                        text = msgspec.json.encode({"type": "policies", "node_id": node_id}).decode()
                        for browser in self._subscribers.get(node_id, ()):
                            browser.send(text)
                    case NodeEvent(node_id):
                        self._changed_nodes.add(node_id)

    async def _tick_forever(self, publish: Callable[[], Awaitable[None]]) -> None:
        while True:
            began = time.monotonic()
            try:
                await publish()
            except Exception as error:
                if not is_database_unavailable(error):
                    log.exception("The nodes' states could not be published.")
            await asyncio.sleep(max(0.05, _TICK_S - (time.monotonic() - began)))

    async def _publish_nodes(self) -> None:
        """Tell all pages that some nodes have changed, and those that look at one what it is now."""
        for node_id in self._subscribers:
            self._interest.need(node_id)
        self._changed_nodes.update(self._registry.nodes_with_changed_health())
        changed, self._changed_nodes = self._changed_nodes, set()
        if not changed:
            return
        self._send_to_all({"type": "nodes"})
        watched = [node_id for node_id in changed if node_id in self._subscribers]
        if not watched:
            return
        try:
            async with self._database.session() as session:
                summaries = {one.id: one for one in await service.node_summaries(session, self._registry, watched)}
        except BaseException:
            self._changed_nodes.update(watched)
            raise
        for node_id in watched:
            event: dict[str, object] = {"type": "inventory", "node_id": node_id}  # deleted: the page finds out
            if (summary := summaries.get(node_id)) is not None:
                event = {"type": "node", "node": summary.model_dump(mode="json")}
            text = msgspec.json.encode(event).decode()
            for browser in self._subscribers.get(node_id, ()):
                browser.send(text)

    async def _publish_fleet(self) -> None:
        if not self.shows_fleet:
            return
        self._interest.need_fleet()
        fleet = await self._fleet.present()
        told: dict[tuple[str, str | None, str | None], dict[str, object]] = {}
        for browser in list(self._browsers):
            if (watch := browser.subscription.fleet) is None:
                continue
            key = (watch.q, watch.group, watch.within)
            if key not in told:
                told[key] = _matching(fleet, watch)
                await asyncio.sleep(0)
            places = [fleet.places[node_id] for node_id in watch.ids if node_id in fleet.places]
            browser.send(fleet_frame(fleet, places, told[key]))


def _matching(fleet: Fleet, watch: FleetWatch) -> dict[str, object]:
    """Return the figures of the nodes that match, of their groups where no group is asked for, and what was asked."""
    selection = select(fleet, watch.q, watch.group, watch.within)
    told = groups(selection)[0] if watch.group is not None and watch.within is None else []
    return {
        "watch": {"q": watch.q, "group": watch.group, "within": watch.within},
        "totals": totals(fleet, selection.places).model_dump(mode="json"),
        "groups": [group.model_dump(mode="json") for group in told],
    }
