"""WebSocket /api/agent: one connection per agent. Its messages are untrusted and limited in size and rate."""

import asyncio
import logging
import math
import time
from collections import deque

import msgspec
from fastapi import APIRouter, WebSocket
from starlette.websockets import WebSocketDisconnect
from structlog.contextvars import bind_contextvars

from coresteer.background import cancel
from coresteer.errors import is_database_unavailable
from coresteer.gateway.clock_correction import corrected, correction_of, is_wrong
from coresteer.gateway.context import GatewayContext
from coresteer.gateway.keys import NOTE_EVERY_S
from coresteer.gateway.present import FORWARDED, is_present, show
from coresteer.gateway.presented_key import PresentedKey, Refused
from coresteer.gateway.reports import may_store, store_report
from coresteer.gateway.throttle import Throttle
from coresteer.gateway.validation import MAX_CLOCK_ERROR_MS, Arrival, validate
from coresteer.nodes import repository
from coresteer.nodes.service import hash_key
from coresteer.presence.locations import Announcement
from coresteer.presence.registry import NodeState
from coresteer.quotas import Peer
from coresteer.telemetry.repository import StreamPosition
from coresteer.telemetry.sample_buffer import SampleBuffer, read_block
from coresteer.telemetry.sample_columns import BlockError
from coresteer.telemetry.service import TRY_AGAIN_LATER, now_ms
from coresteer_core.node.rates import Rates
from coresteer_core.node.rates_block import MAX_BLOCK_SAMPLES
from coresteer_core.protocol import (
    COLUMNS,
    COMPATIBLE_PROTOCOLS,
    FEATURES,
    MAX_FRAME_BYTES,
    PROTOCOL_VERSION,
    Ack,
    Apply,
    ClassesMessage,
    Clock,
    CloseCode,
    ColumnsMessage,
    ExperimentMessage,
    Extend,
    FlowsMessage,
    Hello,
    InventoryMessage,
    KeyStored,
    NewKey,
    Ping,
    ProtocolError,
    RatesMessage,
    SampleNumbers,
    SummaryMessage,
    TasksMessage,
    ToAgent,
    ToBackend,
    UnknownMessageError,
    Welcome,
    decode_numbers,
    decode_to_backend,
    encode,
    lacking,
)

log = logging.getLogger("coresteer.nodes")
router = APIRouter()

_PING_EVERY_S = 10.0
_SILENCE_S = 30.0
_SEND_TIMEOUT_S = 10.0
_HELLO_TIMEOUT_S = 10.0
_MAX_QUEUED = 256
_MAX_REASON_BYTES = 123  # RFC 6455, 5.5: a control frame has at most 125 bytes, two of them the code
_INTERNAL_ERROR = 1011
_SHUTTING_DOWN = 1001


@router.websocket("/api/agent")
async def agent(websocket: WebSocket) -> None:
    """Serve the WebSocket of one agent until either side closes it."""
    await websocket.accept()
    await _AgentConnection(websocket, websocket.app.state.agents).run()


class _AgentConnection:
    """Implements AgentConnection and KeyHolder: one task reads, one writes, and no caller waits for the socket."""

    stream = ""
    rotates_keys = False
    obeys_stops = False
    epoch = 0
    sends_columns = False

    def __init__(self, websocket: WebSocket, services: GatewayContext) -> None:
        self._websocket = websocket
        self.host = "" if websocket.client is None else websocket.client.host
        self._services = services
        self._queue: deque[ToAgent] = deque()
        self._ack: Ack | None = None
        self._closing: tuple[int, str] | None = None
        self._wake = asyncio.Event()
        self._received_at = time.monotonic()
        self._throttle = Throttle(self._received_at)
        self._correction_ms = 0
        self._logged: set[str] = set()
        self._last_seq = 0  # of this connection, which may begin with samples that are already stored
        self._expected_seq = 1
        self._name = ""
        """Of the node, empty until its key is known."""
        self._key = PresentedKey(services.agents, services.trust, self._refuse)
        self._offered: bytes | None = None
        self._asked_about: set[str] = set()
        """Changes that the agent was asked about: what it does not know then counts as never applied."""
        self._note_key_use_at = math.inf

    @property
    def key_hash(self) -> bytes:
        """Return the hash of the key that the connection stands for."""
        return self._key.hash

    def offer_key(self, key: str) -> None:
        """Send the agent a new key, which this connection stands for once the agent has stored it."""
        self._offered = hash_key(key)
        self.post(NewKey(key))

    def _ping(self) -> Ping:
        return Ping(now_ms(), self._services.connections.reconnect_spread_s)

    def _note_key_use(self) -> None:
        self._note_key_use_at = time.monotonic() + NOTE_EVERY_S
        self._services.keys.note_use(self)

    def _is_closing(self) -> bool:
        return self._closing is not None

    def post(self, message: ToAgent) -> None:
        """Queue a message; a newer acknowledgement replaces an older one.

        A change that comes after a question about it, because its sender or NATS was frozen, is dropped: it has failed.
        """
        if isinstance(message, Extend):
            self._asked_about.add(message.change_id)
        if isinstance(message, Ack):
            self._ack = message
        elif isinstance(message, Apply) and message.change_id in self._asked_about:
            log.warning("%s: the change %s came too late, and is not applied.", self._name, message.change_id)
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

    def _refuse(self, refused: Refused) -> None:
        level = logging.WARNING if self._name else logging.DEBUG  # no stranger may fill a disk with lines
        log.log(level, "The connection of %s was closed: %s", self._name or "an unknown agent", refused.reason)
        self.close(refused.code, refused.reason)

    async def run(self) -> None:
        """Serve the connection from authentication to its end."""
        reader, writer = asyncio.create_task(self._read()), asyncio.create_task(self._write())
        try:
            await asyncio.wait({reader, writer}, return_when=asyncio.FIRST_COMPLETED)
            if not writer.done():
                await writer
        finally:
            await cancel([reader, writer])
            await self._key.close()

    async def _read(self) -> None:
        """Read until self._closing is set, which also ends the writer."""
        try:
            await self._serve()
        except Refused as refused:
            self._refuse(refused)
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
        bind_contextvars(node=identity.name)
        hello = await self._hello()
        s = self._services
        queries = await s.state_queries.get(identity.node_id) or []
        announcement = Announcement(identity.node_id, hello.stream, self.host, hello.interval_s, hello.obeys_stops)
        epoch = await s.epochs.get(announcement)
        if epoch is None:
            raise Refused(CloseCode.REPLACED, "Another connection with this node's key replaced this one.")
        self.epoch = epoch
        if self._is_closing():  # the key was revoked meanwhile
            return s.presence.end(identity.node_id, epoch)
        state = s.registry.get_or_create(identity.node_id)
        self.stream, self.rotates_keys, self.obeys_stops = hello.stream, hello.rotates_keys, hello.obeys_stops
        self.sends_columns = COLUMNS in hello.features
        if lacks := lacking(hello.features):
            log.debug("The agent %s of %s does not know: %s.", hello.agent_version, self._name, ", ".join(lacks))
        s.connections.register(identity.node_id, self)
        buffer = s.ingest.open_buffer(
            identity.node_id, hello.stream, StreamPosition(identity.stream, identity.acked_seq, identity.rejected)
        )
        try:
            s.quotas.resume(Peer("node", identity.node_id))
            state.begin(hello, epoch)
            self._correction_ms = state.clock_correction_ms = correction_of(hello.time_ms, now_ms())
            if may_store(s, identity.node_id, encode(hello)):
                hello = msgspec.structs.replace(hello, simulated=identity.simulated)
                s.recorder.record(identity.node_id, epoch, hello)
            self._expected_seq = max(buffer.acked_seq + 1, hello.first_seq)
            position = (identity.node_id, buffer.acked_seq, buffer.rejected)
            block_s = s.ingest.block_s(hello.features)
            self.post(Welcome(PROTOCOL_VERSION, *position, features=list(FEATURES), block_s=block_s))
            self.post(self._ping())
            s.interest.tell(identity.node_id)
            for query in queries:
                self.post(query)
            self._note_key_use()
            s.publisher.schedule(identity.node_id)
            s.runner.set_connected(identity.node_id, connected=True)
            while self._closing is None:
                await s.ingest.wait_for_room()
                await self._serve_message(identity.node_id, state, buffer)
        finally:
            s.presence.end(identity.node_id, epoch)
            if s.connections.unregister(identity.node_id, self):
                state.connected = False
                s.ingest.close_buffer(buffer)
                s.runner.set_connected(identity.node_id, connected=False)

    async def _serve_message(self, node_id: int, state: NodeState, buffer: SampleBuffer) -> None:
        """Receive and handle a message; it is freed before the next one arrives, because it may be large."""
        frame = await self._receive()
        if not self._is_closing() and (message := self._validated(buffer, frame)) is not None:
            await self._handle(node_id, state, buffer, message, frame)

    async def _authenticate(self) -> repository.AgentIdentity:
        scheme, _, key = self._websocket.headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not key:
            raise Refused(CloseCode.BAD_KEY, "The Authorization header has no key; enrol this agent first.")
        if not self._websocket.app.state.is_ready:
            raise Refused(TRY_AGAIN_LATER, "The backend is waiting for its database.")
        self._key.watch(hash_key(key.strip()))
        identity = await self._key.identify()
        self._services.admission.admit(identity.node_id)  # only now: strangers must not take the place of nodes
        return identity

    async def _hello(self) -> Hello:
        try:
            async with asyncio.timeout(_HELLO_TIMEOUT_S):
                hello = self._decode(await self._receive())
        except TimeoutError:
            raise Refused(CloseCode.BAD_FRAME, f"The agent sent no Hello within {_HELLO_TIMEOUT_S:.0f} s.") from None
        if not isinstance(hello, Hello):
            raise Refused(CloseCode.BAD_FRAME, f"The first message must be hello, not {type(hello).__name__}.")
        if hello.protocol not in COMPATIBLE_PROTOCOLS:
            raise Refused(
                CloseCode.VERSION,
                f"The agent speaks protocol {hello.protocol}, the backend {COMPATIBLE_PROTOCOLS[0]} to "
                f"{COMPATIBLE_PROTOCOLS[-1]}; upgrade the older.",
            )
        if wrong := validate(hello, Arrival(now_ms())):
            raise Refused(CloseCode.BAD_FRAME, wrong)
        return hello

    async def _receive(self) -> bytes:
        message = await self._websocket.receive()
        if message["type"] == "websocket.disconnect":
            raise WebSocketDisconnect(message.get("code", 1005))
        self._received_at = time.monotonic()
        frame = message.get("bytes")
        if frame is None:
            raise Refused(CloseCode.BAD_FRAME, "Text frames are not allowed; send binary ones.")
        if (pause_s := self._throttle.pause_s(self._received_at, len(frame))) > 0:
            await asyncio.sleep(pause_s)
        if len(frame) > MAX_FRAME_BYTES:
            raise Refused(CloseCode.TOO_LARGE, f"A message may have at most {MAX_FRAME_BYTES} bytes, not {len(frame)}.")
        return bytes(frame)

    @staticmethod
    def _decode(frame: bytes) -> ToBackend:
        try:
            return decode_to_backend(frame)
        except ProtocolError as error:
            raise Refused(CloseCode.BAD_FRAME, str(error)) from None

    def _log_once(self, what: str, *arguments: object) -> None:
        if what not in self._logged:
            self._logged.add(what)
            log.warning(what, *arguments)

    def _validated(self, buffer: SampleBuffer, frame: bytes) -> ToBackend | None:
        """Return the message in a frame with corrected times.

        None for invalid samples, which are rejected, and for a type that only a newer agent knows, which is ignored.
        """
        try:
            message = corrected(decode_to_backend(frame), self._correction_ms)
        except UnknownMessageError as error:
            self._log_once("%s is newer than this backend: %s", self._name, error)
            return None
        except ProtocolError as error:
            self._reject(buffer, decode_numbers(frame), str(error))
            return None
        if isinstance(message, Hello):
            raise Refused(CloseCode.BAD_FRAME, "The agent sent Hello twice on one connection.")
        is_stored = isinstance(message, ColumnsMessage) or not self.sends_columns
        if wrong := validate(message, Arrival(now_ms(), self._last_seq if is_stored else 0)):
            self._reject(buffer, decode_numbers(frame), wrong)
            return None
        return message

    def _reject(self, buffer: SampleBuffer, numbers: SampleNumbers | None, reason: str) -> None:
        """Reject the samples with these numbers, and ignore a live one; close the connection for anything else."""
        if numbers is not None and self.sends_columns and not numbers.in_block:
            # a block brings it once more; rejecting it would skip the samples of blocks that are still to come
            return self._log_once("A live sample of %s was ignored: %s", self._name, reason)
        if numbers is None or not self._last_seq < numbers.first <= numbers.last < numbers.first + MAX_BLOCK_SAMPLES:
            raise Refused(CloseCode.BAD_FRAME, reason)
        first, last = numbers.first, numbers.last
        self._log_once("Samples %d to %d of %s were rejected: %s", first, last, self._name, reason)
        self._last_seq, self._expected_seq = last, max(self._expected_seq, last + 1)
        self._services.ingest.reject(buffer, first, last, reason)

    async def _handle(
        self, node_id: int, state: NodeState, buffer: SampleBuffer, message: ToBackend, frame: bytes
    ) -> None:
        match message:
            case ColumnsMessage():
                await self._ingest_block(state, buffer, message)
            case RatesMessage(rates):
                self._ingest(buffer, rates, len(frame))
            case Clock() | KeyStored():
                self._handle_reply(state, message)
            case SummaryMessage() | TasksMessage() | FlowsMessage():
                pass
            case ClassesMessage():
                self._services.class_reports.add_report(node_id, message)
            case ExperimentMessage(measured=None):
                await self._services.runner.handle_message(node_id, message)
            case InventoryMessage(inventory):
                state.set_inventory(inventory)
                await store_report(self._services, node_id, self.epoch, message, frame)
            case _:
                await store_report(self._services, node_id, self.epoch, message, frame)
        show(self._services, node_id, state, message, len(frame))
        if isinstance(message, FlowsMessage):
            self._services.snapshots.add_flows(node_id, message.time_ms, state.packed_flows)
        if isinstance(message, FORWARDED) and self._services.forwarding.is_followed(node_id):
            self._services.forwarding.forward(node_id, self.epoch, encode(message) if self._correction_ms else frame)

    def _handle_reply(self, state: NodeState, reply: Clock | KeyStored) -> None:
        if isinstance(reply, Clock):
            # the answer was sent half a round trip ago
            state.clock_skew_ms = reply.node_ms + self._correction_ms - (reply.ping_ms + now_ms()) / 2
            if is_wrong(state.clock_skew_ms):
                raise Refused(TRY_AGAIN_LATER, "The node's clock was set; connect again to measure its offset.")
        elif self._offered is not None and self._offered.hex() == reply.sha256:  # else a newer one was sent meanwhile
            self._key.watch(self._offered)
            self._note_key_use()

    def _ingest(self, buffer: SampleBuffer, rates: Rates, size: int) -> None:
        """Take a sample to be stored; of an agent that sends blocks, it is for the present only."""
        if self.sends_columns:
            self._services.ingest.add_live(buffer, rates, size)
        else:
            self._advance(rates.seq, rates.seq)
            self._services.ingest.add(buffer, rates, size)

    async def _ingest_block(self, state: NodeState, buffer: SampleBuffer, message: ColumnsMessage) -> None:
        first, last = message.first_seq, message.last_seq
        try:
            block, columns = read_block(first, last, message.packed, self._correction_ms)
            if max(abs(time_ms - now_ms()) for time_ms in (block.start_ms, block.end_ms)) > MAX_CLOCK_ERROR_MS:
                raise BlockError("its times are more than 24 hours from the backend's; set the node's clock.")
        except BlockError as error:
            return self._reject(buffer, SampleNumbers(first, last, in_block=True), f"Columns: {error}")
        # what it takes to decode depends on the bytes before compression, and on the arrays made of them
        if (pause_s := self._throttle.pause_s(time.monotonic(), block.unpacked)) > 0:
            await asyncio.sleep(pause_s)
        self._advance(first, last)
        self._services.ingest.add(buffer, block, block.size, columns)
        if is_present(state, block.end_ms):
            state.add_block(block)

    def _advance(self, first: int, last: int) -> None:
        if first > self._expected_seq:
            self._log_once("The connection of %s skipped samples %d to %d.", self._name, self._expected_seq, first - 1)
        self._last_seq, self._expected_seq = last, max(self._expected_seq, last + 1)

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
                    self._queue.append(self._ping())
                    if time.monotonic() >= self._note_key_use_at:
                        self._note_key_use()
                    if time.monotonic() - self._received_at > _SILENCE_S:
                        self.close(_INTERNAL_ERROR, f"Nothing was received for {_SILENCE_S:.0f} s.")
                self._wake.clear()
                while self._queue and self._closing is None:
                    await self._send(self._queue.popleft())
                if self._ack is not None and self._closing is None:
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
