"""Connection to the backend, maintained by a thread so that sampling never waits for the network."""

import hashlib
import logging
import random
import threading
import time
import zlib
from collections import deque
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path

from msgspec.structs import replace

from coresteer_agent.transport.decisions import OutgoingDecisions
from coresteer_agent.transport.enrol import EnrolError, NodeKey
from coresteer_agent.transport.inbox import Allowance, Inbox
from coresteer_agent.transport.key_ring import KeyRing
from coresteer_agent.transport.link_error import LinkError, bounded_delay_s, key_refused, unreachable, why_closed
from coresteer_agent.transport.link_events import LinkEvent, Request
from coresteer_agent.transport.retry import Backends, Backoff
from coresteer_agent.transport.samples import OutgoingSamples
from coresteer_agent.transport.websocket import (
    Allowances,
    ClosedError,
    ConnectionTiming,
    FloodError,
    Wakeup,
    WebSocket,
    connect,
)
from coresteer_agent.transport.websocket_protocol import InvalidStatus, WebSocketException, parse_uri
from coresteer_core.changes.events import BackendLost, BackendReconnected
from coresteer_core.changes.report import ChangeMessage
from coresteer_core.node.inventory import Inventory
from coresteer_core.node.nic import NicKnowledge
from coresteer_core.node.rates import Rates
from coresteer_core.node.topology import Topology
from coresteer_core.protocol import (
    COLUMNS,
    COMPATIBLE_PROTOCOLS,
    MAX_FRAME_BYTES,
    RSS_CONTEXTS,
    Ack,
    ChangeAck,
    ClassesMessage,
    Clock,
    CloseCode,
    DecisionMessage,
    Detail,
    ExperimentMessage,
    FlowsMessage,
    Hello,
    InventoryMessage,
    KeyStored,
    LearnedMessage,
    NewKey,
    Ping,
    ProtocolError,
    Rejected,
    StoppedMessage,
    TasksMessage,
    TopologyMessage,
    UnknownMessageError,
    Watch,
    Welcome,
    decode_to_agent,
    encode,
    lacking,
    without_rss_contexts,
)

log = logging.getLogger("coresteer.link")

MAX_DECISIONS = 1000
"""Buffered while the backend is away; at one per 5 s (a node that never settles) for an hour and a half."""
MAX_DECISIONS_BYTES = 2 * 1024 * 1024
"""A decision about 600 interrupts has 80 KiB, compressed a tenth of it."""

REQUESTS_AT_ONCE, REQUESTS_PER_S = 400, 10
"""Requests of a backend. It acknowledges up to 256 changes after an outage; an experiment needs a few a second."""
MAX_WARNINGS = 100
"""Different warnings per connection; a backend can choose the reasons in them."""
MAX_ANSWERS_BYTES = 4 * 1024 * 1024
"""Messages that the backend requested, directly or not, and does not read."""

_INTERNAL_ERROR = 1011
_REFUSED = frozenset({CloseCode.BAD_FRAME, CloseCode.TOO_LARGE})
"""Close codes of a backend that refuses something that the agent sent."""

_FASTEST = 1


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


class Link:
    """Connection to the backend: sends the agent's messages and puts the backend's into an inbox. Thread-safe.

    A backend that floods the agent is disconnected with CloseCode.FLOOD. renew_key: returns another key when the
    backend does not accept the present one; raises EnrolError. store_key: writes a key that replaces the present one to
    disk; raises OSError. client_cert: this node's certificate and key, used if the file
    exists.
    """

    def __init__(
        self,
        key: NodeKey,
        hello: Hello,
        inbox: Inbox[LinkEvent],
        *,
        renew_key: Callable[[], NodeKey] | None = None,
        store_key: Callable[[NodeKey], None] | None = None,
        client_cert: Path | None = None,
        max_count: int = 3600,
        max_bytes: int = 4 * 1024 * 1024,
        timing: ConnectionTiming | None = None,
    ) -> None:
        self.local_address: str | None = None
        """The local address of the present or last connection."""
        self.peer_address: str | None = None
        self.rejected = 0
        """Samples of this process that the backend has rejected; they are dropped."""
        self._keys = KeyRing(key, renew_key, store_key)
        rng = random.Random()  # noqa: S311 - only keeps a fleet's nodes from reconnecting together
        self._backends = Backends(key.addresses, rng)
        self._hello = hello
        self._inbox = inbox
        self._client_cert = client_cert
        self._timing = timing or ConnectionTiming()
        self._backoff = Backoff(self._timing, rng)
        self._was_welcomed = False
        """By the present or last connection."""
        self._lock = threading.Lock()
        self._wakeup = Wakeup()
        inbox.when_drained = self._wakeup.wake
        self._allowances = Allowances()
        self._requests = Allowance(REQUESTS_AT_ONCE, REQUESTS_PER_S)
        self._samples = OutgoingSamples(max_count, max_bytes)
        self._latest: dict[type[TopologyMessage | InventoryMessage | LearnedMessage], bytes] = {}
        self._unsent: list[type[TopologyMessage | InventoryMessage | LearnedMessage]] = []
        self._flows: bytes | None = None
        self._held_flows: bytes | None = None
        """The newest, not sent because nobody needs them."""
        self._holds_next_flows = False
        self._knows_rss_contexts = False
        self._decisions = OutgoingDecisions(MAX_DECISIONS, MAX_DECISIONS_BYTES)
        self._urgent: deque[bytes] = deque()
        self._urgent_bytes = 0
        self._welcomed = False
        self._tasks: bytes | None = None
        self._has_logged_lacks = False
        self._stopping = threading.Event()
        self._overflowed = False
        self._warned: set[str] = set()
        self._thread = threading.Thread(target=self._run, name="link", daemon=True)

    def start(self) -> None:
        """Start the thread that connects to the backend."""
        self._thread.start()

    def stop(self, timeout_s: float = 1.0) -> None:
        """Send what is buffered, close the connection and stop, after at most timeout_s seconds."""
        with self._lock:
            self._samples.seal()
        self._stopping.set()
        self._wakeup.wake()
        self._thread.join(timeout_s)

    def send_rates(self, rates: Rates, physical: frozenset[str] | None = None) -> None:
        """Buffer one interval's rates and send them, in a block with others, until they are acknowledged.

        rates.seq: consecutive. physical: the netdevs whose traffic counts, None where unknown.
        """
        with self._lock:
            if self._samples.add(rates, physical) and not self._overflowed:
                self._overflowed = True
                log.warning(
                    "The backend is away, and the buffer is full: the oldest samples are dropped, %d are buffered.",
                    len(self._samples),
                )
            has_frame = self._samples.has_frame
        if has_frame:
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

    def send_now(
        self,
        message: TasksMessage | ChangeMessage | ClassesMessage | ExperimentMessage | StoppedMessage | Clock | KeyStored,
    ) -> None:
        """Send a message if connected, else drop it. Changes and experiments are sent again after a reconnect.

        Of tasks the latest are kept, and sent while the backend watches the node.
        """
        frame = encode(message)
        with self._lock:
            if isinstance(message, TasksMessage):
                self._tasks = frame
                if self._samples.sends_on_demand:
                    return
            if self._welcomed and self._urgent_bytes <= MAX_ANSWERS_BYTES:
                self._urgent.append(frame)
                self._urgent_bytes += len(frame)
        self._wakeup.wake()

    def send_flows(self, message: FlowsMessage) -> None:
        """Send flows if connected, else drop them; replaces flows that are still buffered.

        Every other report is held while nobody needs the present of the node, until a decision that is based on it.
        """
        frame = encode(message)
        if len(frame) > MAX_FRAME_BYTES:
            log.error("This node's flows, of %d processes, do not fit into a message.", len(message.tasks))
            return
        with self._lock:
            if not self._welcomed:
                return
            if self._holds_next_flows and self._samples.sends_blocks_only:
                self._held_flows, self._holds_next_flows = frame, False
                return
            self._flows, self._held_flows, self._holds_next_flows = frame, None, True
        self._wakeup.wake()

    def _release_flows(self) -> None:
        if self._held_flows is not None:
            self._flows, self._held_flows, self._holds_next_flows = self._held_flows, None, True

    def send_decision(self, message: DecisionMessage, *, again: bool = False) -> None:
        """Buffer a decision until it is sent, before all later messages about its change.

        If it began a change, it is sent again after each reconnect until the change is acknowledged. again: it was sent
        before, and is buffered until it is sent only.
        """
        frame = zlib.compress(encode(message), _FASTEST)
        with self._lock:
            self._release_flows()
            self._decisions.append(None if again else message.change_id, frame)
        self._wakeup.wake()

    def _run(self) -> None:
        while not self._stopping.is_set():
            self._was_welcomed = False
            try:
                self._connect_once()
                return
            except LinkError as error:
                if self._stopping.is_set():
                    return
                self._warn_once(str(error))
                self._stopping.wait(self._delay_s(error))
            except Exception:  # the thread must not end: nothing would connect the agent again
                log.exception("An internal error ended the connection; the agent connects again.")
                self._stopping.wait(self._backoff.slow())

    def _delay_s(self, error: LinkError) -> float:
        """Choose the next backend; return the delay before it is tried."""
        if error.bad_key and self._take_another_key():  # a key of all backends, so the present one is kept
            return self._backoff.before_next_backend()
        have_all_failed = self._backends.advance()
        if error.slow:
            return self._backoff.slow()
        if error.retry_after_s is not None:
            return self._backoff.requested(error.retry_after_s)
        if self._was_welcomed or have_all_failed:
            return self._backoff.after_failure()
        return self._backoff.before_next_backend()

    def _take_another_key(self) -> bool:
        try:
            return self._keys.next_after_refusal()
        except EnrolError as error:
            self._warn_once(str(error))
            return False

    def _warn_once(self, sentence: str) -> None:
        """Log once why the backend is unreachable, not at every attempt."""
        if sentence not in self._warned and len(self._warned) < MAX_WARNINGS:
            self._warned.add(sentence)
            log.warning("%s The agent connects again.", sentence)

    def _connect_once(self) -> None:
        """Run one connection until it ends. Returns when stopping, else raises LinkError."""
        backend = self._backends.current
        timing = self._timing
        try:
            uri = parse_uri(f"ws{backend.removeprefix('http')}/api/agent")
            connected = connect(uri, timing.welcome_s, self._keys.key.ca, self._client_cert)
            made = WebSocket(
                connected,
                uri,
                self._keys.key.key,
                self._wakeup,
                keepalive_s=timing.keepalive_s,
                allowances=self._allowances,
            )
            with closing(made) as websocket:
                self.local_address, self.peer_address = websocket.local_address, websocket.peer_address
                try:
                    websocket.shake_hands(timing.welcome_s)
                    self._run_session(websocket)
                except FloodError as error:
                    websocket.close(CloseCode.FLOOD, str(error), discard=True)
                    raise LinkError(f"{backend} sent {error}; the connection was closed.", slow=True) from None
        except InvalidStatus as error:
            status = error.response.status_code
            if status in (401, 403):
                raise key_refused(backend) from None
            retry_after_s = None
            with suppress(LookupError, ValueError):  # absent, several, or a date
                retry_after_s = bounded_delay_s(int(error.response.headers["Retry-After"]))
            raise LinkError(
                f"{backend} answers with HTTP status {status} instead of a WebSocket.", retry_after_s=retry_after_s
            ) from None
        except ClosedError as error:
            code = None if error.close is None else error.close.code
            with self._lock:
                if code in _REFUSED:
                    self._decisions.forget_sent()
                elif code == _INTERNAL_ERROR:
                    self._decisions.note_failure()
            raise why_closed(backend, error.close) from None
        except (OSError, UnicodeError, WebSocketException) as error:
            raise unreachable(backend, error, is_pinned=self._keys.key.ca != "") from None

    def _run_session(self, websocket: WebSocket) -> None:
        with self._lock:
            self._decisions.begin()
            hello = replace(
                self._hello,
                first_seq=self._samples.first_seq,
                time_ms=_now_ms(),
                rotates_keys=self._keys.can_store,
            )
        websocket.send(encode(hello))
        until = time.monotonic() + self._timing.welcome_s
        frames: list[bytes | str] = []
        while not frames:
            if self._stopping.is_set():
                return
            if time.monotonic() >= until:
                raise LinkError(f"{self._backends.current} accepted the connection but sent nothing; is it overloaded?")
            frames = websocket.receive(until)
        welcome = self._decode(websocket, frames.pop(0))
        if not isinstance(welcome, Welcome):
            raise self._protocol_error(websocket, f"a {type(welcome).__name__} arrived before Welcome")
        if welcome.protocol not in COMPATIBLE_PROTOCOLS:
            spoken = f"{COMPATIBLE_PROTOCOLS[0]} to {COMPATIBLE_PROTOCOLS[-1]}"
            websocket.close(CloseCode.VERSION, f"this agent speaks protocol {spoken}, not {welcome.protocol}")
            raise LinkError(
                f"{self._backends.current} speaks version {welcome.protocol} of the protocol and this agent "
                f"{spoken}. Bring agent and backend to the same version.",
                slow=True,
            )
        self._start_session(welcome)
        began = time.monotonic()
        try:
            self._exchange(websocket, frames)
        finally:
            if time.monotonic() - began >= self._timing.stable_s:
                self._backoff.reset()
            with self._lock:
                self._welcomed = False
                self._urgent.clear()
                self._urgent_bytes = 0
                self._flows = self._held_flows = None
                self._holds_next_flows = False
                self._samples.end()
            self._inbox.put(BackendLost())

    def _start_session(self, welcome: Welcome) -> None:
        with self._lock:
            lost = self._samples.first_seq - welcome.acked_seq - 1
            known = COLUMNS in welcome.features
            self._knows_rss_contexts = RSS_CONTEXTS in welcome.features
            self._samples.begin(welcome.acked_seq, columns=known, block_s=welcome.block_s)
            self._unsent = list(self._latest)
            self._welcomed = True
            self._overflowed = False
            self._was_welcomed = True
            self._backends.keep()
            again = len(self._samples)
            unnoticed = max(0, welcome.rejected - self.rejected)
            self.rejected += unnoticed
        self._warned.clear()
        if (lacks := lacking(welcome.features)) and not self._has_logged_lacks:
            self._has_logged_lacks = True
            log.info("%s is older than this agent and does not know: %s.", self._backends.current, ", ".join(lacks))
        if unnoticed:
            log.warning("The backend rejected %d samples before the connection was lost.", unnoticed)
        log.info("Connected to %s as node %d; %d samples are buffered.", self._backends.current, welcome.node_id, again)
        if lost > 0:
            log.warning("%d samples were lost while the backend was away.", lost)
        self._inbox.put(BackendReconnected())

    def _exchange(self, websocket: WebSocket, frames: list[bytes | str]) -> None:
        """Send and receive until stopped (then until all is sent) or closed. frames: received together with Welcome."""
        while True:
            for frame in frames:
                self._handle(self._decode(websocket, frame), len(frame))
            if self._urgent_bytes > MAX_ANSWERS_BYTES:
                raise FloodError("requests without reading the answers")
            while websocket.idle and (outgoing := self._next_frame()) is not None:
                websocket.send(outgoing)
            if websocket.idle and self._stopping.is_set():
                return
            frames = websocket.receive(reading=not self._inbox.full)

    def _next_frame(self) -> bytes | None:
        """Return the most urgent buffered frame, None without one."""
        with self._lock:
            if self._flows is not None and self._decisions.unsent:  # which name processes that are in them
                flows, self._flows = self._flows, None
                return flows
            if (decision := self._decisions.next_frame()) is not None:
                frame = zlib.decompress(decision)
                return frame if self._knows_rss_contexts else without_rss_contexts(frame)
            if self._urgent:
                self._urgent_bytes -= len(self._urgent[0])
                return self._urgent.popleft()
            if self._unsent:
                return self._latest[self._unsent.pop(0)]
            if self._flows is not None:
                flows, self._flows = self._flows, None
                return flows
            return self._samples.next_frame()

    def _decode(
        self, websocket: WebSocket, frame: bytes | str
    ) -> Welcome | Ack | Rejected | Watch | Ping | NewKey | Request | None:
        """Return the message in a frame, None for one of a type that only a newer backend knows."""
        if isinstance(frame, str):
            raise self._protocol_error(websocket, "a text frame arrived; all messages are binary")
        try:
            return decode_to_agent(frame)
        except UnknownMessageError as error:
            if str(error) not in self._warned and len(self._warned) < MAX_WARNINGS:
                self._warned.add(str(error))
                log.info("%s is newer than this agent: %s", self._backends.current, error)
            return None
        except ProtocolError as error:
            raise self._protocol_error(websocket, str(error)) from None

    def _protocol_error(self, websocket: WebSocket, what: str) -> LinkError:
        websocket.close(CloseCode.BAD_FRAME, what.encode()[:120].decode(errors="ignore"))
        return LinkError(f"{self._backends.current} does not speak this protocol: {what}")

    def _drop_rejected(self, message: Rejected) -> None:
        with self._lock:
            self.rejected += self._samples.reject(message.first_seq, message.last_seq)
        if message.reason not in self._warned and len(self._warned) < MAX_WARNINGS:
            self._warned.add(message.reason)
            which = f"samples {message.first_seq} to {message.last_seq}"
            log.warning(
                "The backend rejected %s, %d in all; they are dropped. %s", which, self.rejected, message.reason
            )

    def _handle(self, message: Welcome | Ack | Rejected | Watch | Ping | NewKey | Request | None, size: int) -> None:
        match message:
            case None:
                pass
            case Ack():
                with self._lock:
                    self._samples.acknowledge(message.seq)
            case Rejected():
                self._drop_rejected(message)
            case Watch(detail):
                with self._lock:
                    self._samples.watch(detail)
                    if detail is not Detail.BLOCKS:
                        self._release_flows()
                    if detail is Detail.SAMPLES and self._tasks is not None:
                        self._urgent.append(self._tasks)
                        self._urgent_bytes += len(self._tasks)
            case Ping():
                self._backoff.spread_s = message.reconnect_spread_s
                self.send_now(Clock(message.ping_ms, _now_ms()))
            case Welcome():
                log.warning("%s sent Welcome twice.", self._backends.current)
            case _:
                self._handle_request(message, size)

    def _handle_request(self, message: NewKey | Request, size: int) -> None:
        if not self._requests.spend():
            raise FloodError("more requests than an agent accepts")
        if isinstance(message, ChangeAck):
            with self._lock:
                self._decisions.acknowledge(message.change_id)
        if not isinstance(message, NewKey):
            self._inbox.put(message, size)
        elif self._keys.replace(message.key):
            self.send_now(KeyStored(hashlib.sha256(message.key.encode()).hexdigest()))
