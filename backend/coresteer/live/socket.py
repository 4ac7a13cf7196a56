"""WS /api/live: what happens now, to every browser that looks. A slow browser loses its own oldest frames."""

import asyncio
import logging
import struct
import time
from collections import deque
from collections.abc import Sequence

import msgspec
import numpy as np
from fastapi import APIRouter, WebSocket, WebSocketException
from starlette.websockets import WebSocketDisconnect

from coresteer.auth.dependencies import identify_websocket
from coresteer.bus import Bus, InventoryEvent, NodeEvent, PoliciesEvent
from coresteer.changes.events import ChangeEvent
from coresteer.db import Database
from coresteer.errors import is_database_away
from coresteer.experiments.events import ExperimentEvent
from coresteer.fleet import service as fleet
from coresteer.nodes import service as nodes
from coresteer.presence.registry import Registry
from coresteer.presence.schemas import Health
from coresteer_core.node.rates import ABSENT_U32, CPU_COUNTS, CPU_SHARES, Rates
from coresteer_core.protocol import ClassesMessage

log = logging.getLogger("coresteer.live")
router = APIRouter()

_IDENTIFY_EVERY_S = 60.0
_TICK_S = 1.0
_LOAD_EVERY_TICKS = 10
_SEND_TIMEOUT_S = 20.0
_FRAMES_KEPT = 16
_EVENTS_KEPT = 1000
_TRY_AGAIN_LATER = 1013
_POLICY_VIOLATION = 1008
_NODES_AT_ONCE = 250
_HEALTH = {Health.LIVE: 0, Health.STALE: 1, Health.AWAY: 2, Health.NEW: 3}
_FIGURES = (
    ("busiest_percent", "f32"),
    ("busiest_cpu", "u32"),
    ("softirq_percent", "f32"),
    ("softirq_cpu", "u32"),
    ("rx_bytes_per_s", "f32"),
    ("tx_bytes_per_s", "f32"),
    ("interrupts_per_s", "f32"),
    ("dropped_per_s", "f32"),
    ("squeezed_per_s", "f32"),
    ("rtt_p99_us", "f32"),
)


class Wanted(msgspec.Struct, frozen=True):
    """All that a browser wants to be sent from now on: one node's intervals, the fleet's figures."""

    node: int | None = None
    fleet: bool = False


def columnar_frame(header: dict[str, object], columns: Sequence[tuple[str, str, bytes]]) -> bytes:
    """u32 length of the JSON header, the header padded with spaces, then columns (name, type, bytes) at multiples of 8.

    Offsets count from the frame's start, lengths too count bytes.
    """

    def described(first: int) -> tuple[bytes, list[int]]:
        offsets = []
        for _, _, data in columns:
            offsets.append(first)
            first += (len(data) + 7) // 8 * 8
        listed = [
            {"name": name, "type": kind, "offset": offset, "length": len(data)}
            for (name, kind, data), offset in zip(columns, offsets, strict=True)
        ]
        return msgspec.json.encode(header | {"columns": listed}), offsets

    widest, _ = described(1_000_000_000)  # no offset is written longer than this one
    start = (4 + len(widest) + 7) // 8 * 8
    text, offsets = described(start)
    frame = bytearray(offsets[-1] + len(columns[-1][2]) if columns else start)
    frame[:4] = struct.pack("<I", start - 4)
    frame[4:start] = text.ljust(start - 4)
    for (_, _, data), offset in zip(columns, offsets, strict=True):
        frame[offset : offset + len(data)] = data
    return bytes(frame)


def rates_frame(node_id: int, rates: Rates) -> bytes:
    """One interval of one node; columns that are not known are left out."""
    columns = [(name, "u8", rates.shares.get(name)) for name in CPU_SHARES]
    columns += [(name, "u32", rates.counts.get(name)) for name in CPU_COUNTS]
    columns += [("irq_ids", "u32", rates.irq_ids), ("irq_cpus", "u16", rates.irq_cpus)]
    columns += [("irq_counts", "u32", rates.irq_counts)]
    header = {
        "type": "rates",
        "node_id": node_id,
        "seq": rates.seq,
        "time_ms": rates.time_ms,
        "duration_s": rates.duration_s,
        "cpus": rates.cpus,
        "tcp": rates.tcp,
        "tcp_retransmits": rates.tcp_retransmits,
        "netdevs": rates.netdevs,
        "agent_cpu_s": rates.agent_cpu_s,
        "agent_rss_bytes": rates.agent_rss_bytes,
    }
    return columnar_frame(header, [(name, kind, data) for name, kind, data in columns if data is not None])


class Browser:
    """One open page."""

    def __init__(self) -> None:
        self.wanted = Wanted()
        self.frames: deque[bytes] = deque(maxlen=_FRAMES_KEPT)
        self.events: deque[str] = deque(maxlen=_EVENTS_KEPT)
        self.wake = asyncio.Event()

    def send(self, frame: bytes | str) -> None:
        """Queue a frame, at the cost of the oldest."""
        if isinstance(frame, str):
            self.events.append(frame)
        else:
            self.frames.append(frame)
        self.wake.set()


class Live:
    """Encodes everything once and hands it to all who look."""

    def __init__(self, database: Database, bus: Bus, registry: Registry) -> None:
        self._database = database
        self._bus = bus
        self._registry = registry
        self._browsers: set[Browser] = set()
        self._watched: dict[int, list[Browser]] = {}
        self._changed_nodes: set[int] = set()
        self._seen_before: dict[int, bool] = {}
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Begin to pass on."""
        self._tasks = [asyncio.create_task(self._pass_events_on()), asyncio.create_task(self._tick_forever())]

    async def stop(self) -> None:
        """End."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def show(self, node_id: int, rates: Rates) -> None:
        """A node's newest interval, to those who look at the node."""
        if browsers := self._watched.get(node_id):
            frame = rates_frame(node_id, rates)
            for browser in browsers:
                browser.send(frame)

    def show_classes(self, node_id: int, message: ClassesMessage) -> None:
        """How a node's service classes fare, to those who look at the node."""
        if browsers := self._watched.get(node_id):
            event = {"type": "classes", "node_id": node_id, "policy_id": int(message.policy_id)}
            event |= {"time_ms": message.time_ms, "told": message.classes}
            text = msgspec.json.encode(event).decode()
            for browser in browsers:
                browser.send(text)

    def join(self, browser: Browser) -> None:
        """A page was opened, or wants something else."""
        self._browsers.add(browser)
        self._index()

    def leave(self, browser: Browser) -> None:
        """A page was closed."""
        self._browsers.discard(browser)
        self._index()

    def _index(self) -> None:
        self._watched = {}
        for browser in self._browsers:
            if browser.wanted.node is not None:
                self._watched.setdefault(browser.wanted.node, []).append(browser)

    def _tell_all(self, event: dict[str, object]) -> None:
        text = msgspec.json.encode(event).decode()
        for browser in self._browsers:
            browser.send(text)

    async def _pass_events_on(self) -> None:
        with self._bus.subscribe() as events:
            async for event in events:
                match event:
                    case ChangeEvent(change):
                        self._changed_nodes.add(change.node_id)
                        self._tell_all({"type": "change", "change": change.model_dump(mode="json")})
                    case ExperimentEvent(experiment):
                        self._tell_all({"type": "experiment", "experiment": experiment.model_dump(mode="json")})
                    case InventoryEvent(node_id):
                        # only to those who look at the node: a fleet's tasks change a thousand times a second
                        text = msgspec.json.encode({"type": "inventory", "node_id": node_id}).decode()
                        for browser in self._watched.get(node_id, ()):
                            browser.send(text)
                    case PoliciesEvent(None):
                        self._tell_all({"type": "policies", "node_id": None})
                    case PoliciesEvent(int(node_id)):
                        text = msgspec.json.encode({"type": "policies", "node_id": node_id}).decode()
                        for browser in self._watched.get(node_id, ()):
                            browser.send(text)
                    case NodeEvent(node_id):
                        self._changed_nodes.add(node_id)

    async def _tick_forever(self) -> None:
        ticks = 0
        while True:
            began = time.monotonic()
            try:
                self._changed_nodes.update(self._registry.changed_health())
                if self._browsers:
                    if ticks % _LOAD_EVERY_TICKS == 0:
                        await self._load_known()
                    await self._tell_of_nodes()
                else:
                    self._changed_nodes.clear()
            except Exception as error:
                if not is_database_away(error):
                    log.exception("The nodes' states could not be told.")
            await self._show_fleet()
            ticks += 1
            await asyncio.sleep(max(0.05, _TICK_S - (time.monotonic() - began)))

    async def _load_known(self) -> None:
        """Also nodes that have been away since the backend started belong to the fleet."""
        async with self._database.session() as session:
            self._seen_before = await nodes.seen_before(session)

    async def _tell_of_nodes(self) -> None:
        while self._changed_nodes:
            some = list(self._changed_nodes)[:_NODES_AT_ONCE]
            async with self._database.session() as session:
                summaries = await fleet.summaries(session, self._registry, some)
            self._changed_nodes.difference_update(some)
            for summary in summaries:
                self._tell_all({"type": "node", "node": summary.model_dump(mode="json")})
            await asyncio.sleep(0)

    async def _show_fleet(self) -> None:
        if not any(browser.wanted.fleet for browser in self._browsers):
            return
        frame = await self._fleet_frame()
        for browser in self._browsers:
            if browser.wanted.fleet:
                browser.send(frame)

    async def _fleet_frame(self) -> bytes:
        ids = sorted(self._seen_before.keys() | {node_id for node_id, _ in self._registry.items()})
        healths: list[int] = []
        rows: list[list[float]] = []
        for position, node_id in enumerate(ids):
            state = self._registry.get(node_id)
            health = state.health(seen_before=self._seen_before.get(node_id, False))
            figures = state.last_figures() if health is Health.LIVE else None
            healths.append(_HEALTH[health])
            rows.append([_number(getattr(figures, name, None), kind) for name, kind in _FIGURES])
            if position % _NODES_AT_ONCE == 0:
                await asyncio.sleep(0)
        table = np.array(rows, np.float64).reshape(len(ids), len(_FIGURES))
        columns = [("node_id", "u32", np.array(ids, "<u4").tobytes()), ("health", "u8", bytes(healths))]
        for position, (name, kind) in enumerate(_FIGURES):
            columns.append((name, kind, table[:, position].astype("<u4" if kind == "u32" else "<f4").tobytes()))
        return columnar_frame({"type": "fleet", "time_ms": time.time_ns() // 1_000_000}, columns)


def _number(value: float | None, kind: str) -> float:
    if value is not None:
        return value
    return ABSENT_U32 if kind == "u32" else np.nan


@router.websocket("/api/live")
async def live(websocket: WebSocket) -> None:
    """Serve one page until it is closed or its session ends."""
    try:
        await identify_websocket(websocket)
    except WebSocketException as refused:
        await websocket.accept()  # a page sees code and reason only of a connection that was accepted
        await websocket.close(refused.code, refused.reason)
        return
    await websocket.accept()
    hub: Live = websocket.app.state.live
    browser = Browser()
    hub.join(browser)
    tasks = [
        asyncio.create_task(part)
        for part in (_listen(websocket, hub, browser), _talk(websocket, browser), _check_session(websocket))
    ]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for ended in (task.exception() for task in done):
            if isinstance(ended, WebSocketException):
                async with asyncio.timeout(_SEND_TIMEOUT_S):
                    await websocket.close(ended.code, ended.reason)
            elif ended is not None and not isinstance(ended, WebSocketDisconnect | TimeoutError | RuntimeError):
                raise ended
    finally:
        hub.leave(browser)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _listen(websocket: WebSocket, hub: Live, browser: Browser) -> None:
    while True:
        message = await websocket.receive()
        if message["type"] == "websocket.disconnect":
            return
        try:
            browser.wanted = msgspec.json.decode(message.get("text") or b"", type=Wanted)
        except msgspec.MsgspecError as error:
            raise WebSocketException(_POLICY_VIOLATION, f"Not what this socket takes: {error}"[:120]) from None
        hub.join(browser)


async def _talk(websocket: WebSocket, browser: Browser) -> None:
    while True:
        await browser.wake.wait()
        browser.wake.clear()
        while browser.events or browser.frames:
            async with asyncio.timeout(_SEND_TIMEOUT_S):
                if browser.events:
                    await websocket.send_text(browser.events.popleft())
                else:
                    await websocket.send_bytes(browser.frames.popleft())


async def _check_session(websocket: WebSocket) -> None:
    while True:
        await asyncio.sleep(_IDENTIFY_EVERY_S)
        try:
            await identify_websocket(websocket)
        except WebSocketException as refused:
            if refused.code != _TRY_AGAIN_LATER:  # what a page is shown goes on without a database
                raise
