"""Distribution of samples and events to browsers. A slow browser loses its own oldest frames."""

import asyncio
import logging
import time
from collections import Counter, deque
from collections.abc import Iterator
from contextlib import contextmanager

import msgspec
from fastapi import WebSocketException, status

from coresteer.background import cancel
from coresteer.bus import Bus, InventoryEvent, NodeEvent, PoliciesEvent
from coresteer.changes.events import ChangeEvent
from coresteer.db import Database
from coresteer.errors import is_database_unavailable
from coresteer.experiments.events import ExperimentEvent
from coresteer.fleet import service as fleet
from coresteer.live.frames import FleetRow, fleet_frame, rates_frame
from coresteer.nodes import service as nodes
from coresteer.presence.interest import Interest
from coresteer.presence.registry import NodeRegistry
from coresteer.presence.schemas import Health
from coresteer_core.node.rates import Rates
from coresteer_core.protocol import ClassesMessage

log = logging.getLogger("coresteer.live")

_TICK_S = 1.0
_LOAD_EVERY_TICKS = 10
_MAX_FRAMES = 16
_MAX_EVENTS = 1000
_NODES_AT_ONCE = 250
_MAX_PAGES_PER_USER = 32
"""Every event is sent to each of them."""


class Subscription(msgspec.Struct, frozen=True):
    """Which frames a browser receives: the intervals of one node, the figures of the fleet."""

    node: int | None = None
    fleet: bool = False


class Browser:
    """One connected page with the frames and events that wait to be sent to it."""

    def __init__(self) -> None:
        self.subscription = Subscription()
        self.frames: deque[bytes] = deque(maxlen=_MAX_FRAMES)
        self.events: deque[str] = deque(maxlen=_MAX_EVENTS)
        self.wake = asyncio.Event()

    def send(self, frame: bytes | str) -> None:
        """Queue a frame or an event; the oldest is dropped when too many wait."""
        if isinstance(frame, str):
            self.events.append(frame)
        else:
            self.frames.append(frame)
        self.wake.set()


class LiveHub:
    """Sends samples and events to the browsers that subscribed to them; each is encoded once."""

    def __init__(self, database: Database, bus: Bus, registry: NodeRegistry, interest: Interest) -> None:
        self._database = database
        self._bus = bus
        self._registry = registry
        self._interest = interest
        self._browsers: set[Browser] = set()
        self._pages_of: Counter[str] = Counter()
        self._subscribers: dict[int, set[Browser]] = {}
        self._changed_nodes: set[int] = set()
        self._seen_before: dict[int, bool] = {}
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Start publishing to browsers."""
        self._tasks = [asyncio.create_task(self._publish_events()), asyncio.create_task(self._tick_forever())]

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

    async def _tick_forever(self) -> None:
        ticks = 0
        while True:
            began = time.monotonic()
            for node_id in self._subscribers:
                self._interest.need(node_id)
            try:
                self._changed_nodes.update(self._registry.nodes_with_changed_health())
                if self._browsers:
                    if ticks % _LOAD_EVERY_TICKS == 0:
                        await self._load_known_nodes()
                    await self._publish_summaries()
                else:
                    self._changed_nodes.clear()
            except Exception as error:
                if not is_database_unavailable(error):
                    log.exception("The nodes' states could not be published.")
            await self._publish_fleet()
            ticks += 1
            await asyncio.sleep(max(0.05, _TICK_S - (time.monotonic() - began)))

    async def _load_known_nodes(self) -> None:
        """Load which nodes exist: the fleet includes those that have not connected since the backend started."""
        async with self._database.session() as session:
            self._seen_before = await nodes.ever_connected(session)

    async def _publish_summaries(self) -> None:
        while self._changed_nodes:
            some = list(self._changed_nodes)[:_NODES_AT_ONCE]
            async with self._database.session() as session:
                summaries = await fleet.node_summaries(session, self._registry, some)
            self._changed_nodes.difference_update(some)
            for summary in summaries:
                self._send_to_all({"type": "node", "node": summary.model_dump(mode="json")})
            if deleted := set(some) - {summary.id for summary in summaries}:
                for node_id in deleted:
                    self._seen_before.pop(node_id, None)
                self._send_to_all({"type": "deleted-nodes", "node_ids": sorted(deleted)})
            await asyncio.sleep(0)

    async def _publish_fleet(self) -> None:
        if not any(browser.subscription.fleet for browser in self._browsers):
            return
        self._interest.need_fleet()
        frame = await self._fleet_frame()
        for browser in self._browsers:
            if browser.subscription.fleet:
                browser.send(frame)

    async def _fleet_frame(self) -> bytes:
        ids = sorted(self._seen_before.keys() | {node_id for node_id, _ in self._registry.items()})
        rows: list[FleetRow] = []
        for position, node_id in enumerate(ids):
            state = self._registry.get(node_id)
            health = self._registry.health(node_id, seen_before=self._seen_before.get(node_id, False))
            rows.append((node_id, health, state.latest_figures() if health is Health.LIVE else None))
            if position % _NODES_AT_ONCE == 0:
                await asyncio.sleep(0)
        return fleet_frame(rows, time.time_ns() // 1_000_000)
