"""Connection to the backend, maintained by a thread so that sampling never waits for the network."""

import logging
import random
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import closing
from typing import TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from coresteer_agent.transport.enrol import EnrolError, NodeKey
from coresteer_agent.transport.unacknowledged import UnacknowledgedBuffer
from coresteer_agent.transport.websocket import ClosedError, Wakeup, WebSocket, connect
from coresteer_agent.transport.websocket_protocol import Close as CloseFrame
from coresteer_agent.transport.websocket_protocol import InvalidStatus, WebSocketException, parse_uri
from coresteer_core.changes.events import BackendLost, BackendReconnected
from coresteer_core.changes.report import ChangeMessage
from coresteer_core.node.inventory import Inventory
from coresteer_core.node.nic import NicKnowledge
from coresteer_core.node.rates import Rates
from coresteer_core.node.topology import Topology
from coresteer_core.protocol import (
    MAX_FRAME_BYTES,
    PROTOCOL_VERSION,
    Ack,
    Apply,
    BeginExperiment,
    ChangeAck,
    ClassesMessage,
    Clock,
    CloseCode,
    Confirm,
    DecisionMessage,
    EndExperiment,
    ExperimentMessage,
    Extend,
    FlowsMessage,
    Hello,
    InventoryMessage,
    LearnedMessage,
    Ping,
    Policies,
    ProtocolError,
    RatesMessage,
    Rollback,
    RunExperiment,
    TasksMessage,
    TopologyMessage,
    Welcome,
    decode_to_agent,
    encode,
)

log = logging.getLogger("coresteer.link")

Request: TypeAlias = (
    Apply | Confirm | Rollback | Extend | ChangeAck | Policies | BeginExperiment | RunExperiment | EndExperiment
)
"""Messages of the backend that the loop handles."""
LinkEvent: TypeAlias = Request | BackendReconnected | BackendLost


MAX_DECISIONS = 1000
"""Buffered while the backend is away; at one per 5 s (a node that never settles) for an hour and a half."""
MAX_DECISIONS_BYTES = 2 * 1024 * 1024
"""A decision about 600 interrupts has 80 KiB, compressed a tenth of it."""


class ConnectionTiming(Struct, frozen=True):
    """Delays and timeouts of the connection to the backend, in seconds.

    slow_retry_s: between attempts that need a person. settled: a connection of this duration resets the back-off.
    """

    first_retry_s: float = 0.5
    longest_retry_s: float = 30.0
    slow_retry_s: float = 30.0
    stable_s: float = 10.0
    welcome_s: float = 10.0
    keepalive_s: float = 10.0


class LinkError(Exception):
    """Raised if a connection attempt failed or a connection ended; the message is a sentence.

    slow: retry slowly. bad_key: the backend does not accept this node's key.
    """

    def __init__(self, sentence: str, *, slow: bool = False, bad_key: bool = False) -> None:
        super().__init__(sentence)
        self.slow = slow
        self.bad_key = bad_key


_CLOSED = {
    CloseCode.BAD_KEY: "The backend does not accept this node's key. Enrol this node again with a new token: "
    "coresteer-agent enrol.",
    CloseCode.VERSION: "The backend speaks another protocol version. Bring agent and backend to the same version.",
    CloseCode.REPLACED: "Another agent connected with this node's key. Two agents with one key displace each other; "
    "stop one of them, or enrol it separately.",
}


class Link:
    """Connection to the backend: sends the agent's messages and delivers the backend's. Thread-safe.

    deliver: called by the link's thread; must not block. renew_key: returns another key when the backend does not
    accept the present one; raises EnrolError.
    """

    def __init__(
        self,
        key: NodeKey,
        hello: Hello,
        deliver: Callable[[LinkEvent], None],
        *,
        renew_key: Callable[[], NodeKey] | None = None,
        max_count: int = 3600,
        max_bytes: int = 4 * 1024 * 1024,
        timing: ConnectionTiming | None = None,
    ) -> None:
        self.local_address: str | None = None
        """The local address of the present or last connection."""
        self._key = key
        self._url = "ws" + key.backend.removeprefix("http") + "/api/agent"
        self._hello = hello
        self._deliver = deliver
        self._renew_key = renew_key
        self._timing = timing or ConnectionTiming()
        self._lock = threading.Lock()
        self._wakeup = Wakeup()
        self._rates = UnacknowledgedBuffer(max_count, max_bytes)
        self._latest: dict[type[TopologyMessage | InventoryMessage | LearnedMessage], bytes] = {}
        self._unsent: list[type[TopologyMessage | InventoryMessage | LearnedMessage]] = []
        self._flows: bytes | None = None
        self._decisions = UnacknowledgedBuffer(MAX_DECISIONS, MAX_DECISIONS_BYTES)
        self._urgent: deque[bytes] = deque()
        self._welcomed = False
        self._stopping = threading.Event()
        self._overflowed = False
        self._warned: set[str] = set()
        self._thread = threading.Thread(target=self._run, name="link", daemon=True)

    def start(self) -> None:
        """Start the thread that connects to the backend."""
        self._thread.start()

    def stop(self, timeout_s: float = 3.0) -> None:
        """Send what is buffered, close the connection and stop, after at most timeout_s seconds."""
        self._stopping.set()
        self._wakeup.wake()
        self._thread.join(timeout_s)

    def send_rates(self, rates: Rates) -> None:
        """Buffer one interval's rates and send them until they are acknowledged. rates.seq: consecutive."""
        frame = encode(RatesMessage(rates))
        with self._lock:
            if self._rates.append(rates.seq, frame) and not self._overflowed:
                self._overflowed = True
                log.warning(
                    "The backend is away, and the buffer is full: the oldest samples are dropped, %d are buffered.",
                    len(self._rates),
                )
        self._wakeup.wake()

    def send_state(self, state: Topology | Inventory | NicKnowledge) -> None:
        """Send a state now and after each reconnect; only the latest of its type is buffered."""
        message: TopologyMessage | InventoryMessage | LearnedMessage
        match state:
            case Topology():
                message = TopologyMessage(state)
            case Inventory():
                message = InventoryMessage(state)
            case NicKnowledge():
                message = LearnedMessage(state)
        frame = encode(message)
        if len(frame) > MAX_FRAME_BYTES:
            log.error("This node's %s does not fit into a message.", type(state).__name__.lower())
            return
        with self._lock:
            self._latest[type(message)] = frame
            if type(message) not in self._unsent:
                self._unsent.append(type(message))
        self._wakeup.wake()

    def send_now(self, message: TasksMessage | ChangeMessage | ClassesMessage | ExperimentMessage) -> None:
        """Send a message if connected, else drop it. Changes and experiments are sent again after a reconnect."""
        frame = encode(message)
        with self._lock:
            if self._welcomed:
                self._urgent.append(frame)
        self._wakeup.wake()

    def send_flows(self, message: FlowsMessage) -> None:
        """Send flows if connected, else drop them; replaces flows that are still buffered."""
        frame = encode(message)
        if len(frame) > MAX_FRAME_BYTES:
            log.error("This node's flows, of %d processes, do not fit into a message.", len(message.tasks))
            return
        with self._lock:
            if self._welcomed:
                self._flows = frame
        self._wakeup.wake()

    def send_decision(self, message: DecisionMessage) -> None:
        """Buffer a decision until it is sent, before all later messages about its change."""
        frame = encode(message)
        with self._lock:
            self._decisions.append(self._decisions.next_seq, frame)
        self._wakeup.wake()

    def _run(self) -> None:
        failures = 0
        while not self._stopping.is_set():
            began = time.monotonic()
            try:
                self._connect_once()
                return
            except LinkError as error:
                if self._stopping.is_set():
                    return
                if time.monotonic() - began >= self._timing.stable_s:
                    failures = 0
                longest = self._timing.longest_retry_s
                delay = (
                    self._timing.slow_retry_s if error.slow else min(longest, self._timing.first_retry_s * 2**failures)
                )
                failures = min(failures + 1, 16)
                self._warn_once(str(error))
                if error.bad_key and self._renew():
                    delay = self._timing.first_retry_s
                jitter = random.uniform(0.5, 1.0)  # noqa: S311 - only keeps a fleet's nodes from reconnecting together
                self._stopping.wait(delay * jitter)

    def _renew(self) -> bool:
        if self._renew_key is None:
            return False
        try:
            self._key = self._renew_key()
        except EnrolError as error:
            self._warn_once(str(error))
            return False
        log.info("This node was enrolled again as node %d, %s.", self._key.node_id, self._key.name)
        return True

    def _warn_once(self, sentence: str) -> None:
        """Log once why the backend is unreachable, not at every attempt."""
        if sentence not in self._warned:
            self._warned.add(sentence)
            log.warning("%s The agent connects again.", sentence)

    def _connect_once(self) -> None:
        """Run one connection until it ends. Returns when stopping, else raises LinkError."""
        backend = self._key.backend
        timing = self._timing
        try:
            uri = parse_uri(self._url)
            connected = connect(uri, timing.welcome_s)
            made = WebSocket(connected, uri, self._key.key, self._wakeup, keepalive_s=timing.keepalive_s)
            with closing(made) as websocket:
                self.local_address = websocket.local_address
                websocket.shake_hands(timing.welcome_s)
                self._run_session(websocket)
        except InvalidStatus as error:
            status = error.response.status_code
            if status in (401, 403):
                raise LinkError(f"{backend}: {_CLOSED[CloseCode.BAD_KEY]}", slow=True, bad_key=True) from None
            raise LinkError(f"{backend} answers with HTTP status {status} instead of a WebSocket.") from None
        except ClosedError as error:
            raise self._why_closed(error.close) from None
        except (OSError, UnicodeError, WebSocketException) as error:
            raise LinkError(f"The backend {backend} cannot be reached: {error}.") from None

    def _why_closed(self, frame: CloseFrame | None) -> LinkError:
        backend = self._key.backend
        if frame is None:
            return LinkError(f"The connection to the backend {backend} was lost.")
        reason = f" Its reason: {frame.reason}" if frame.reason else ""
        bad_key = frame.code == CloseCode.BAD_KEY
        if known := _CLOSED.get(frame.code):
            return LinkError(
                f"The backend {backend} closed the connection. {known}{reason}", slow=True, bad_key=bad_key
            )
        return LinkError(f"The backend {backend} closed the connection with code {frame.code}.{reason}")

    def _run_session(self, websocket: WebSocket) -> None:
        with self._lock:
            hello = replace(self._hello, first_seq=self._rates.first_seq)
        websocket.send(encode(hello))
        until = time.monotonic() + self._timing.welcome_s
        frames: list[bytes | str] = []
        while not frames:
            if self._stopping.is_set():
                return
            if time.monotonic() >= until:
                raise LinkError(f"{self._key.backend} accepted the connection but sent nothing; is it overloaded?")
            frames = websocket.receive(until)
        welcome = self._decode(websocket, frames.pop(0))
        if not isinstance(welcome, Welcome):
            raise self._protocol_error(websocket, f"a {type(welcome).__name__} arrived before Welcome")
        if welcome.protocol != PROTOCOL_VERSION:
            websocket.close(CloseCode.VERSION, f"this agent speaks protocol {PROTOCOL_VERSION}, not {welcome.protocol}")
            raise LinkError(
                f"{self._key.backend} speaks version {welcome.protocol} of the protocol and this agent "
                f"{PROTOCOL_VERSION}. Bring agent and backend to the same version.",
                slow=True,
            )
        self._start_session(welcome)
        try:
            self._exchange(websocket, frames)
        finally:
            with self._lock:
                self._welcomed = False
                self._urgent.clear()
                self._flows = None
            self._deliver(BackendLost())

    def _start_session(self, welcome: Welcome) -> None:
        with self._lock:
            first_seq = self._rates.first_seq
            lost = first_seq - welcome.acked_seq - 1
            self._rates.acknowledge(welcome.acked_seq)
            self._rates.rewind()
            self._unsent = list(self._latest)
            self._welcomed = True
            self._overflowed = False
            again = len(self._rates)
        self._warned.clear()
        log.info("Connected to %s as node %d; %d samples are buffered.", self._key.backend, welcome.node_id, again)
        if lost > 0:
            log.warning("%d samples were lost while the backend was away.", lost)
        self._deliver(BackendReconnected())

    def _exchange(self, websocket: WebSocket, frames: list[bytes | str]) -> None:
        """Send and receive until stopped (then until all is sent) or closed. frames: received together with Welcome."""
        while True:
            for frame in frames:
                self._handle(self._decode(websocket, frame))
            while websocket.idle and (outgoing := self._next_frame()) is not None:
                websocket.send(outgoing)
            if websocket.idle and self._stopping.is_set():
                return
            frames = websocket.receive()

    def _next_frame(self) -> bytes | None:
        """Return the most urgent buffered frame, None without one."""
        with self._lock:
            if (decision := self._decisions.next_frame()) is not None:
                self._decisions.acknowledge(self._decisions.first_seq)
                return decision
            if self._urgent:
                return self._urgent.popleft()
            if self._unsent:
                return self._latest[self._unsent.pop(0)]
            if self._flows is not None:
                flows, self._flows = self._flows, None
                return flows
            return self._rates.next_frame()

    def _decode(self, websocket: WebSocket, frame: bytes | str) -> Welcome | Ack | Ping | Request:
        if isinstance(frame, str):
            raise self._protocol_error(websocket, "a text frame arrived; all messages are binary")
        try:
            return decode_to_agent(frame)
        except ProtocolError as error:
            raise self._protocol_error(websocket, str(error)) from None

    def _protocol_error(self, websocket: WebSocket, what: str) -> LinkError:
        websocket.close(CloseCode.BAD_FRAME, what.encode()[:120].decode(errors="ignore"))
        return LinkError(f"{self._key.backend} does not speak this protocol: {what}")

    def _handle(self, message: Welcome | Ack | Ping | Request) -> None:
        match message:
            case Ack():
                with self._lock:
                    self._rates.acknowledge(message.seq)
            case Ping():
                frame = encode(Clock(message.ping_ms, time.time_ns() // 1_000_000))
                with self._lock:
                    self._urgent.append(frame)
            case Welcome():
                log.warning("%s sent Welcome twice.", self._key.backend)
            case _:
                self._deliver(message)
