"""WebSocket /api/agent: one connection per agent. Its messages are untrusted and limited in size and rate."""

import asyncio
import logging
import time
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import msgspec
from fastapi import APIRouter, WebSocket
from starlette.websockets import WebSocketDisconnect

from coresteer.background import cancel
from coresteer.bus import Bus, InventoryEvent, PoliciesEvent
from coresteer.classes.store import ClassReportStore
from coresteer.errors import is_database_unavailable
from coresteer.experiments.runner import ExperimentRunner
from coresteer.gateway.batch_loader import BatchLoader
from coresteer.gateway.recorder import Recorder
from coresteer.gateway.validation import Arrival, validate
from coresteer.live.hub import LiveHub
from coresteer.nodes import repository
from coresteer.nodes.service import hash_key
from coresteer.policies.publisher import PolicyPublisher
from coresteer.policies.snapshot_store import SnapshotStore
from coresteer.presence.connections import Connections
from coresteer.presence.registry import NodeRegistry, NodeState
from coresteer.telemetry.repository import StreamPosition
from coresteer.telemetry.sample_buffer import SampleBuffer
from coresteer.telemetry.service import TRY_AGAIN_LATER, Ingest, now_ms
from coresteer_core.changes.report import ChangeMessage
from coresteer_core.node.rates import Rates
from coresteer_core.protocol import (
    MAX_FRAME_BYTES,
    PROTOCOL_VERSION,
    Ack,
    ClassesMessage,
    Clock,
    CloseCode,
    DecisionMessage,
    ExperimentMessage,
    FlowsMessage,
    Hello,
    InventoryMessage,
    LearnedMessage,
    Ping,
    ProtocolError,
    RatesMessage,
    TasksMessage,
    ToAgent,
    ToBackend,
    TopologyMessage,
    Welcome,
    decode_to_backend,
    encode,
)

log = logging.getLogger("coresteer.nodes")
router = APIRouter()

_PING_EVERY_S = 10.0
_SILENCE_S = 30.0
_SEND_TIMEOUT_S = 10.0
_HELLO_TIMEOUT_S = 10.0
_MESSAGES_PER_S = 300.0
"""An agent that sends more, also while it resends unacknowledged samples, is read more slowly."""
_BURST = 600.0
_MAX_QUEUED = 256
_MAX_REASON_BYTES = 123  # RFC 6455, 5.5: a control frame has at most 125 bytes, two of them the code
_LIVE_WITHIN_MS = 15_000
_INTERNAL_ERROR = 1011
_SHUTTING_DOWN = 1001


@dataclass(frozen=True)
class GatewayContext:
    """The parts of the application that a connection to an agent uses; stored in app.state.agents.

    agents: identities by the hash of their key. state_queries: by node, messages after Welcome that make its agent
    report its open changes.
    """

    agents: BatchLoader[bytes, repository.AgentIdentity]
    state_queries: BatchLoader[int, list[ToAgent]]
    bus: Bus
    connections: Connections
    registry: NodeRegistry
    recorder: Recorder
    ingest: Ingest
    live: LiveHub
    snapshots: SnapshotStore
    class_reports: ClassReportStore
    publisher: PolicyPublisher
    runner: ExperimentRunner
    record_change_report: Callable[[int, ChangeMessage], Awaitable[None]]
    record_decision: Callable[[int, DecisionMessage], Awaitable[None]]


class _Refused(Exception):  # noqa: N818 - a reason for the peer, not an error here
    """The agent's connection must be closed with this code and reason."""

    def __init__(self, code: int, reason: str) -> None:
        super().__init__(reason)
        self.code = code
        self.reason = reason


@router.websocket("/api/agent")
async def agent(websocket: WebSocket) -> None:
    """Serve the WebSocket of one agent until either side closes it."""
    await websocket.accept()
    await _AgentConnection(websocket, websocket.app.state.agents).run()


class _AgentConnection:
    """Implements connections.AgentConnection: one task reads, one writes, and no caller waits for the socket."""

    stream = ""

    def __init__(self, websocket: WebSocket, services: GatewayContext) -> None:
        self._websocket = websocket
        self._services = services
        self._queue: deque[ToAgent] = deque()
        self._ack: Ack | None = None
        self._closing: tuple[int, str] | None = None
        self._wake = asyncio.Event()
        self._received_at = time.monotonic()
        self._budget = _BURST
        self._last_seq = 0  # of this connection, which may begin with samples that are already stored
        self._expected_seq = 1
        self._gap_logged = False
        self._name = "an unknown agent"

    def post(self, message: ToAgent) -> None:
        """Queue a message; a newer acknowledgement replaces an older one."""
        if isinstance(message, Ack):
            self._ack = message
        elif len(self._queue) < _MAX_QUEUED:
            self._queue.append(message)
        else:
            self.close(CloseCode.BAD_FRAME, f"This agent has not read the last {_MAX_QUEUED} messages.")
        self._wake.set()

    def close(self, code: int, reason: str) -> None:
        """Close the connection; messages that arrive from now on are not read."""
        if self._closing is None:
            self._closing = (code, reason)
            self._wake.set()

    async def run(self) -> None:
        """Serve the connection from authentication to its end."""
        reader, writer = asyncio.create_task(self._read()), asyncio.create_task(self._write())
        try:
            await asyncio.wait({reader, writer}, return_when=asyncio.FIRST_COMPLETED)
            if not writer.done():
                await writer
        finally:
            await cancel([reader, writer])

    async def _read(self) -> None:
        """Read until self._closing is set, which also ends the writer."""
        try:
            await self._serve()
        except _Refused as refused:
            log.warning("The connection of %s was closed: %s", self._name, refused.reason)
            self.close(refused.code, refused.reason)
        except WebSocketDisconnect:
            self.close(_SHUTTING_DOWN, "")
        except Exception as error:
            away = is_database_unavailable(error)
            if not away:
                log.exception("The connection of %s failed.", self._name)
            reason = "The database does not answer." if away else "An unexpected error occurred in the backend."
            self.close(TRY_AGAIN_LATER if away else _INTERNAL_ERROR, reason)

    async def _serve(self) -> None:
        identity = await self._authenticate()
        self._name = f"Node {identity.node_id} ({identity.name})"
        hello = await self._hello()
        s = self._services
        queries = await s.state_queries.get(identity.node_id) or []
        state = s.registry.get_or_create(identity.node_id)
        self.stream = hello.stream
        s.connections.register(identity.node_id, self)
        buffer = s.ingest.open_buffer(
            identity.node_id, hello.stream, StreamPosition(identity.stream, identity.acked_seq)
        )
        try:
            state.connected, state.interval_s = True, hello.interval_s
            s.recorder.record(identity.node_id, msgspec.structs.replace(hello, simulated=identity.simulated))
            self._expected_seq = max(buffer.acked_seq + 1, hello.first_seq)
            self.post(Welcome(PROTOCOL_VERSION, identity.node_id, buffer.acked_seq))
            self.post(Ping(now_ms()))
            for query in queries:
                self.post(query)
            s.publisher.schedule(identity.node_id)
            s.runner.set_connected(identity.node_id, connected=True)
            while self._closing is None:
                await s.ingest.wait_for_room()
                frame = await self._receive()
                await self._handle(identity.node_id, state, buffer, frame)
        finally:
            if s.connections.unregister(identity.node_id, self):
                state.connected = False
                s.ingest.close_buffer(buffer)
                s.runner.set_connected(identity.node_id, connected=False)

    async def _authenticate(self) -> repository.AgentIdentity:
        scheme, _, key = self._websocket.headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not key:
            raise _Refused(CloseCode.BAD_KEY, "The Authorization header has no key; enrol this agent first.")
        if not self._websocket.app.state.is_ready:
            raise _Refused(TRY_AGAIN_LATER, "The backend is waiting for its database.")
        identity = await self._services.agents.get(hash_key(key.strip()))
        if identity is None:
            raise _Refused(CloseCode.BAD_KEY, "This key is unknown or revoked; enrol this agent again.")
        return identity

    async def _hello(self) -> Hello:
        try:
            async with asyncio.timeout(_HELLO_TIMEOUT_S):
                hello = self._decode(await self._receive())
        except TimeoutError:
            raise _Refused(CloseCode.BAD_FRAME, f"The agent sent no Hello within {_HELLO_TIMEOUT_S:.0f} s.") from None
        if not isinstance(hello, Hello):
            raise _Refused(CloseCode.BAD_FRAME, f"The first message must be hello, not {type(hello).__name__}.")
        if hello.protocol != PROTOCOL_VERSION:
            raise _Refused(
                CloseCode.VERSION,
                f"The agent speaks protocol {hello.protocol}, the backend {PROTOCOL_VERSION}; upgrade the older.",
            )
        if wrong := validate(hello, Arrival(now_ms())):
            raise _Refused(CloseCode.BAD_FRAME, wrong)
        return hello

    async def _receive(self) -> bytes:
        message = await self._websocket.receive()
        if message["type"] == "websocket.disconnect":
            raise WebSocketDisconnect(message.get("code", 1005))
        now = time.monotonic()
        self._budget = min(_BURST, self._budget + (now - self._received_at) * _MESSAGES_PER_S) - 1
        self._received_at = now
        if self._budget < 0:
            await asyncio.sleep(-self._budget / _MESSAGES_PER_S)
        frame = message.get("bytes")
        if frame is None:
            raise _Refused(CloseCode.BAD_FRAME, "Text frames are not allowed; send binary ones.")
        if len(frame) > MAX_FRAME_BYTES:
            raise _Refused(
                CloseCode.TOO_LARGE, f"A message may have at most {MAX_FRAME_BYTES} bytes, not {len(frame)}."
            )
        return bytes(frame)

    @staticmethod
    def _decode(frame: bytes) -> ToBackend:
        try:
            return decode_to_backend(frame)
        except ProtocolError as error:
            raise _Refused(CloseCode.BAD_FRAME, str(error)) from None

    def _validated(self, frame: bytes) -> ToBackend:
        message = self._decode(frame)
        if isinstance(message, Hello):
            raise _Refused(CloseCode.BAD_FRAME, "The agent sent Hello twice on one connection.")
        if wrong := validate(message, Arrival(now_ms(), self._last_seq)):
            raise _Refused(CloseCode.BAD_FRAME, wrong)
        return message

    async def _handle(self, node_id: int, state: NodeState, buffer: SampleBuffer, frame: bytes) -> None:
        message = self._validated(frame)
        match message:
            case RatesMessage(rates):
                self._ingest(node_id, state, buffer, rates, len(frame))
            case Clock(ping_ms, node_ms):
                state.clock_skew_ms = node_ms - (ping_ms + now_ms()) / 2  # the answer was sent half a round trip ago
            case TopologyMessage(topology):
                self._services.recorder.record(node_id, topology)
                self._services.snapshots.add_snapshot(node_id, topology)
            case InventoryMessage(inventory):
                state.set_inventory(inventory)
                self._services.recorder.record(node_id, inventory)
                self._services.snapshots.add_snapshot(node_id, inventory)
            case LearnedMessage(learned):
                self._services.recorder.record(node_id, learned)
            case TasksMessage(_, tasks):
                state.tasks = tasks
                self._services.bus.publish(InventoryEvent(node_id))
            case FlowsMessage():
                state.flows = message
                self._services.snapshots.add_flows(node_id, message)
                self._services.bus.publish(PoliciesEvent(node_id))
            case ClassesMessage():
                state.add_classes(message)
                self._services.class_reports.add_report(node_id, message)
                self._services.live.publish_classes(node_id, message)
            case ChangeMessage():
                await self._services.record_change_report(node_id, message)
            case DecisionMessage():
                await self._services.record_decision(node_id, message)
            case ExperimentMessage():
                self._services.runner.handle_message(node_id, message)

    def _ingest(self, node_id: int, state: NodeState, buffer: SampleBuffer, rates: Rates, size: int) -> None:
        if rates.seq > self._expected_seq and not self._gap_logged:
            self._gap_logged = True
            log.warning("The connection of %s skipped samples %d to %d.", self._name, self._expected_seq, rates.seq - 1)
        self._last_seq, self._expected_seq = rates.seq, max(self._expected_seq, rates.seq + 1)
        self._services.ingest.add(buffer, rates, size)
        age_ms = now_ms() + (state.clock_skew_ms or 0) - rates.time_ms
        if age_ms <= _LIVE_WITHIN_MS + 3000 * state.interval_s:  # resent samples are for the history only
            state.add_rates(rates)
            self._services.live.publish_rates(node_id, rates)
            self._services.runner.handle_rates(node_id, rates)

    async def _write(self) -> None:
        """Send queued messages and pings, and close the connection of a peer that is silent or does not read."""
        ping_at = time.monotonic() + _PING_EVERY_S
        try:
            while self._closing is None:
                try:
                    async with asyncio.timeout(max(0.0, ping_at - time.monotonic())):
                        await self._wake.wait()
                except TimeoutError:
                    ping_at = time.monotonic() + _PING_EVERY_S
                    self._queue.append(Ping(now_ms()))
                    if time.monotonic() - self._received_at > _SILENCE_S:
                        self.close(_INTERNAL_ERROR, f"Nothing was received for {_SILENCE_S:.0f} s.")
                self._wake.clear()
                while self._queue:
                    await self._send(self._queue.popleft())
                if self._ack is not None:
                    ack, self._ack = self._ack, None
                    await self._send(ack)
            code, reason = self._closing
            async with asyncio.timeout(_SEND_TIMEOUT_S):
                await self._websocket.close(code, reason.encode()[:_MAX_REASON_BYTES].decode(errors="ignore"))
        except (WebSocketDisconnect, RuntimeError, TimeoutError, OSError) as error:
            # the peer is gone or does not read; the keepalive ends its transport
            log.debug("The connection of %s ended: %r", self._name, error)
            self._closing = self._closing or (_INTERNAL_ERROR, "")

    async def _send(self, message: ToAgent) -> None:
        async with asyncio.timeout(_SEND_TIMEOUT_S):
            await self._websocket.send_bytes(encode(message))
